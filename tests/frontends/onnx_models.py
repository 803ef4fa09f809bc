"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.tools import need_module

onnx = need_module("onnx")
helper = need_module("onnx.helper")
numpy_helper = need_module("onnx.numpy_helper")

FLOAT, INT64, BOOL = 1, 7, 9


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node called after its operator and first output; names are split at spaces."""
    names = ["" if name == "-" else name for name in inputs.split()]
    first = outputs.split()[0]
    return helper.make_node(op, names, outputs.split(), f"{op.lower()}_{first}", **attributes)


def declared(name: str, shape: Sequence[Any] | None = (None,), kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    arrays: Mapping[str, Any] | None = None,
    functions: Sequence[Any] = (),
    opset: int = 18,
) -> Any:
    """A model of these nodes; `arrays` are its initializers."""
    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in (arrays or {}).items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, tensors)
    domains = {"": opset, **{function.domain: 1 for function in functions}}
    imports = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)


def linear() -> Any:
    """y = relu(x w + b)."""
    nodes = [node("Gemm", "x fc.weight fc.bias", "h", transB=1), node("Relu", "h", "y")]
    weights = {
        "fc.weight": np.arange(12, dtype=np.float32).reshape(3, 4) / 6 - 1,
        "fc.bias": np.ones(3, np.float32),
    }
    return model(nodes, [declared("x", ("n", 4))], [declared("y", ("n", 3))], weights)


def run(module: Any, *arrays: Any) -> Any:
    """What the module gives for arrays, on the reference."""
    import graphc

    return graphc.compile(module, *arrays, device="reference")(*arrays)
