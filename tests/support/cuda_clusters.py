"""Helpers of test_cuda_clusters.py and of tests beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.dtypes import convert
from graphc.ir import DTYPES, Node
from graphc.kernels.cuda.contract.tiles import tensor_tiles as tiles
from graphc.kernels.cuda.contract.tiles.tensor_tiles import (
    GeneralTile,
)
from graphc.trace import emit
from tests.kernels.cuda_harness import (
    arrays_of,
    traced,
)


def product(m: int, n: int, k: int, read: Any = None, dtype: str = "float32") -> Node:
    """relu(a b + c) and its double, with `read` operands."""

    def fn(a: Any, b: Any, c: Any) -> Any:
        a, b = (emit(read, x) if read else x for x in (a, b))
        y = graphc.relu(graphc.matmul(a, b) + c)
        return y, y * 2

    specs = graphc.spec((m, k), dtype), graphc.spec((k, n), dtype), graphc.spec((n,))
    return traced("product", fn, *specs)


def take(tile: GeneralTile, splits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let contractions take this tile, with k in so many parts."""
    for name in ("TILES", "LONG_TILES", "SHORT_TILES", "GROUP_TILES"):
        found = [t for t in getattr(tiles, name) if t == tile]
        monkeypatch.setattr(tiles, name, tuple(found))
    monkeypatch.setattr(tiles, "_parts", lambda tile, count: [splits])


def operands(node: Node) -> list[Any]:
    """As `arrays_of`, also of bfloat16."""
    random = np.random.default_rng(0)
    return [
        convert(random.standard_normal(v.type.shape).astype("f4"), DTYPES["bf16"])
        if v.type.dtype == "bf16"
        else array
        for v, array in zip(node.inputs, arrays_of(node), strict=True)
    ]
