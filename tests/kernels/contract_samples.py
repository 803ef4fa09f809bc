"""Random contractions with epilogues, over all operand layouts, to try the CPU's tiles on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from graphc import functions as F
from graphc.base.errors import GraphError
from graphc.ir import ROW_MAJOR, Layout, Node, Type
from graphc.ops import Conv2d, Conv2dDgrad, Conv2dWgrad, Matmul
from graphc.trace import Tensor, emit
from tests.kernels.harness import traced

EXTENTS = (1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 40, 50, 65)
MATMULS = ("nn", "nt", "tn", "tt", "batched", "broadcast", "sliced", "forward", "dgrad", "wgrad")


def matmuls(seed: int, count: int, width: int, dtype: str = "f32") -> list[Node]:
    """Matrix products of every transposition, batched, sliced, and of batches in the lanes."""
    random = np.random.default_rng(seed)
    return [_matmul(random, MATMULS[i % len(MATMULS)], width, dtype) for i in range(count)]


def convolutions(seed: int, count: int, width: int, dtype: str = "f32") -> list[Node]:
    """Convolutions and both gradients: strides, padding, dilation, groups, odd shapes."""
    random = np.random.default_rng(seed)
    nodes: list[Node] = []
    while len(nodes) < count:
        node = _convolution(random, ("forward", "dgrad", "wgrad")[len(nodes) % 3], width, dtype)
        if node is not None:
            nodes.append(node)
    return nodes


def _matmul(random: np.random.Generator, kind: str, width: int, dtype: str) -> Node:
    m, k, n = (int(random.choice(EXTENTS)) for _ in range(3))
    lanes = Layout(0, width)
    rows = Type((m, n))
    a, b, out = Type((m, k)), Type((k, n)), ROW_MAJOR
    if kind in ("tn", "tt", "wgrad"):
        a = Type((k, m))
    if kind in ("nt", "tt", "forward"):
        b = Type((n, k))
    if kind == "batched":
        a, b, rows = Type((2, 3, m, k)), Type((2, 3, k, n)), Type((2, 3, m, n))
    if kind == "broadcast":
        a, rows = Type((3, m, k)), Type((3, m, n))
    if kind == "sliced":
        a, b = Type((m, k + 3)), Type((k, n + 2))
    if kind in ("forward", "dgrad", "wgrad"):
        a = a.with_layout(lanes)
        out = ROW_MAJOR if kind == "wgrad" else lanes
    if kind == "wgrad" and random.integers(2):
        b = b.with_layout(lanes)

    def product(a: Tensor, b: Tensor) -> Tensor:
        if kind == "sliced":
            a, b = a[:, 2 : k + 2], b[:, 1 : n + 1]
        if kind in ("tn", "tt", "wgrad"):
            a = F.permute_dims(a, (1, 0))
        if kind in ("nt", "tt", "forward"):
            b = F.permute_dims(b, (1, 0))
        return emit(Matmul(), a, b)

    bias = Type((n,))
    types = [replace(t, dtype=dtype) for t in (a, b)]
    rows, bias = (replace(t, dtype=dtype) for t in (rows.with_layout(out), bias))
    return _with_epilogue(random, f"matmul_{kind}", product, types, rows, bias)


def _convolution(random: np.random.Generator, kind: str, width: int, dtype: str) -> Node | None:
    def pick(*choices: int) -> int:
        return int(random.choice(choices))

    groups = pick(1, 1, 1, 2, 3)
    n, c, k = pick(1, 2, 3, 7, 16, 17, 20, 33), pick(1, 2, 3, 5) * groups, pick(1, 2, 4, 5) * groups
    r, s, h, w = pick(1, 2, 3, 5), pick(1, 2, 3, 5), pick(5, 6, 7, 9, 13), pick(5, 6, 7, 12, 33)
    settings = (
        (pick(1, 1, 2, 3), pick(1, 1, 2, 3)),
        (pick(0, 0, 1, 2), pick(0, 0, 1, 2)),
        (pick(1, 1, 2), pick(1, 1, 2)),
        groups,
    )
    lanes = Layout(0, width) if random.integers(3) else ROW_MAJOR
    x, weight = Type((n, c, h, w), dtype, lanes), Type((k, c // groups, r, s), dtype)
    try:
        (y,) = Conv2d(*settings).infer(x, weight)
    except GraphError:
        return None
    y = y.with_layout(lanes)
    if kind == "forward":
        types, out, op = [x, weight], y, Conv2d(*settings)
    elif kind == "dgrad":
        types, out, op = [y, weight], x, Conv2dDgrad(*settings, (h, w))
    else:
        mixed = y if random.integers(2) else y.with_layout(ROW_MAJOR)
        types, out, op = [x, mixed], weight, Conv2dWgrad(*settings, (r, s))
    bias = Type((out.shape[1], 1, 1), dtype)
    return _with_epilogue(random, f"conv_{kind}", lambda a, b: emit(op, a, b), types, out, bias)


def _with_epilogue(
    random: np.random.Generator,
    name: str,
    product: Callable[[Tensor, Tensor], Tensor],
    types: list[Type],
    out: Type,
    bias: Type,
) -> Node:
    """`product` alone, with bias and relu, with a residual, or stored before and after."""
    epilogue = ("alone", "bias", "residual", "both")[random.integers(4)]
    extra = {"alone": [], "bias": [bias], "residual": [out], "both": [out]}[epilogue]

    def function(a: Tensor, b: Tensor, *others: Tensor) -> Any:
        total = product(a, b)
        if epilogue == "bias":
            return F.relu(total + others[0])
        if epilogue == "residual":
            return F.where(others[0] > 0, total * others[0], total)
        return (total, total * others[0]) if epilogue == "both" else total

    outputs = [out.layout] * (2 if epilogue == "both" else 1)
    return traced(f"{name}_{epilogue}", function, [*types, *extra], outputs)
