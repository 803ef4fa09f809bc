"""Graphs as ONNX files, loaded again or played by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.frontends.onnx_models import onnx
from tests.tools import need_module

runtime = need_module("onnxruntime")
Array = np.ndarray[Any, Any]


def loaded(source: Any, path: Path, *specs: Any) -> Any:
    """The model of a file made of a graph or function, which the checker accepts."""
    import graphc.onnx

    graphc.onnx.save(source, path, *specs)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    return graphc.onnx.load(path)


def played_by_runtime(path: Path, arrays: list[Array]) -> list[Array] | None:
    """What ONNX Runtime computes; None where it lacks an operator for a dtype."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        assert "NOT_IMPLEMENTED" in str(error), error
        return None
    given = zip(session.get_inputs(), arrays, strict=True)
    return list(session.run(None, {value.name: np.asarray(array) for value, array in given}))
