"""Helpers of test_cuda_tensor.py and of tests beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.dtypes import convert
from graphc.ir import DTYPES
from graphc.kernels.cuda.contract.tiles import tensor_tiles as tiles
from graphc.kernels.cuda.contract.tiles.tensor_tiles import (
    TensorTile,
)
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.ops.base import Array

EPS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
"""The rounding of a result, relative."""


def transposed(x: Any) -> Any:
    return graphc.permute_dims(x, (1, 0))


def products(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Both operands in both orders: of (m, k), (k, n), (k, m) and (n, k)."""
    return (
        graphc.matmul(a, b),
        graphc.relu(graphc.matmul(a, transposed(d))),
        graphc.matmul(transposed(c), b) * 0.5,
        graphc.matmul(transposed(c), transposed(d)),
    )


def of_products(m: int, n: int, k: int) -> list[tuple[int, ...]]:
    return [(m, k), (k, n), (k, m), (n, k)]


def convolution(x: Any, w: Any, b: Any) -> Any:
    return graphc.relu(graphc.conv2d(x, w, b, padding=1))


def strided(x: Any, w: Any) -> Any:
    return graphc.conv2d(x, w, stride=2, padding=1, dilation=2)


CASES = [
    ("odd", products, of_products(37, 41, 53)),
    ("aligned", products, of_products(40, 136, 80)),
    ("long", graphc.matmul, [(12, 1031), (1031, 9)]),
    ("batched", graphc.matmul, [(3, 2, 9, 24), (2, 24, 16)]),
    ("convolution", convolution, [(2, 8, 9, 7), (19, 8, 3, 3), (19,)]),
    ("strided", strided, [(2, 3, 11, 13), (5, 3, 3, 3)]),
]


def arrays(shapes: list[tuple[int, ...]], dtype: str) -> list[Array]:
    random = np.random.default_rng(7)
    floats = [random.standard_normal(s).astype(np.float32) for s in shapes]
    return [convert(x, DTYPES["f16"]) for x in floats] if dtype == "float16" else floats


APART = "fuse_products"
"""What would make one kernel of several products."""


def played(fn: Any, shapes: list[tuple[int, ...]], dtype: str, **settings: Any) -> Any:
    """The program on the simulated device, its results, and the reference's."""
    specs, values = [graphc.spec(s, dtype) for s in shapes], arrays(shapes, dtype)
    program = graphc.compile(fn, *specs, device="sim", streams=1, disable=APART, **settings)
    precision = {k: v for k, v in settings.items() if k == "precision"}
    wanted = graphc.compile(fn, *specs, device="reference", **precision)(*values)
    got = program(*values)
    single = not isinstance(got, tuple)
    return program, (got,) if single else got, (wanted,) if single else wanted


def often(found: tuple[TensorTile, ...], *places: int) -> list[Any]:
    """Tiles as parameters; all but those at `places` are tested in the campaign."""
    marks = [() if i in places else (pytest.mark.slow,) for i in range(len(found))]
    return [pytest.param(t, id=str(t), marks=m) for t, m in zip(found, marks, strict=True)]


def prefer(
    tile: TensorTile,
    name: str,
    known: tuple[TensorTile, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Let contractions take `tile`, or the last of `known` where that cannot be."""
    best = replace(tile, speed=1e6)
    monkeypatch.setattr(tiles, name, (best, known[-1]))
    monkeypatch.setattr(tiles, "TILES", ())
    monkeypatch.setattr(tiles, "GPU", replace(GPU, l2_rate=1e12))
    monkeypatch.setattr(tiles, "SUM", 0)
    monkeypatch.setattr(tiles, "ISSUE", 0)
    monkeypatch.setenv("GRAPHC_CHECK", "race")


def everything(*inputs: Any) -> Any:
    """The results of all cases, each of inputs of its own."""
    return results_of(CASES, inputs)


def results_of(cases: list[Any], inputs: Any) -> Any:
    results: list[Any] = []
    for _, fn, shapes in cases:
        mine, inputs = inputs[: len(shapes)], inputs[len(shapes) :]
        made = fn(*mine)
        results += made if isinstance(made, tuple) else [made]
    return tuple(results)
