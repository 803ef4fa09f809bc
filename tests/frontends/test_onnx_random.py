"""Random programs as ONNX files compute the same when they are loaded, and in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import GraphError
from graphc.ir.interpret import evaluate
from tests.frontends.onnx_files import Array, loaded, played_by_runtime
from tests.random_dtypes import DTYPES, RandomDtypes
from tests.random_transforms import RandomTransforms
from tests.scan_checks import Case
from tests.tools import first_quick

CLOSE = 1e-3
"""Of the largest, at least 1: float32 in other orders."""


def assert_same(got: Sequence[Array], want: Sequence[Array], exact: bool) -> None:
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        largest = float(np.abs(b[np.isfinite(b)]).max(initial=1)) if b.dtype.kind == "f" else 1.0
        np.testing.assert_allclose(a, b, rtol=0, atol=0 if exact else CLOSE * largest)


@pytest.mark.parametrize("seed", first_quick(40, range(200)))
def test_programs_of_all_dtypes(seed: int, tmp_path: Path) -> None:
    program = RandomDtypes(seed, tuple(d for d in DTYPES if d != "bf16"))
    arrays = [np.asarray(a) for a in program.arrays]
    want, _ = evaluate(program.graph(), arrays)
    check(program.run, program.kinds, arrays, want, tmp_path, exact=True)


@pytest.mark.parametrize("seed", first_quick(20, range(100)))
def test_programs_of_transformations(seed: int, tmp_path: Path) -> None:
    case = Case(seed, RandomTransforms)
    want = case.meaning(case.traced(), np.float32)
    model = case.model
    check(lambda *inputs: model(*inputs), model.inputs, case.arrays, want, tmp_path, exact=False)


def check(
    source: Any, specs: Any, arrays: list[Array], want: Any, folder: Path, exact: bool
) -> None:
    try:
        model = loaded(source, folder / "model.onnx", *specs)
    except GraphError as error:
        assert "not offered" in str(error)
        return
    found = graphc.compile(model, *specs, device="reference", training=False)(*arrays)
    found = found if isinstance(found, tuple | list) else [found]
    assert_same([np.asarray(a) for a in found], want, exact)
    if not any(a.dtype.kind == "f" and np.isnan(a).any() for a in want):  # it drops some NaNs
        again = played_by_runtime(folder / "model.onnx", arrays)
        assert_same(again or want, want, exact)
