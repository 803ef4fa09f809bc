"""Helpers of test_cuda_attend_tensor.py and of tests beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.base.dtypes import convert, widened
from graphc.ir import Node, Type
from graphc.ops import Attention, AttentionGrad
from graphc.ops.base import Array, Op
from graphc.ops.pointwise.tf32 import ReadTf32
from graphc.ops.pointwise.widen import Widen
from graphc.trace import Tensor, current_builder
from tests.kernels.cuda_harness import traced

UNIT = {"tf32": 2.0**-11, "f16": 2.0**-11, "bf16": 2.0**-8}
"""The unit roundoff of what weights are rounded to."""


MODELS = {
    "d64": ((8, 12, 12, 1024, 1024, 64, 64), {"causal": True}),
    "few": ((8, 4, 4, 128, 128, 64, 64), {"causal": True}),
    "d128": ((1, 32, 8, 2048, 2048, 128, 128), {"causal": True, "dropout": 0.1}),
    "d80": ((8, 16, 16, 257, 257, 80, 80), {}),
}


CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "aligned": ((1, 2, 2, 70, 130, 32, 32), {"causal": True}),
    "grouped": ((2, 4, 2, 33, 33, 24, 40), {"causal": True}),
    "odd": ((1, 2, 2, 67, 40, 3, 18), {"mask": Type((1, 2, 67, 40), "bool")}),
    "added": ((2, 2, 1, 9, 70, 8, 16), {"mask": Type((2, 1, 1, 70), "f32")}),
    "dropped": ((1, 2, 1, 20, 37, 16, 16), {"dropout": 0.3}),
    "wide": ((1, 1, 1, 18, 40, 128, 128), {}),
    "too wide": ((1, 1, 1, 5, 40, 144, 16), {"causal": True}),
    **MODELS,
}
"""Extents n, h, g, t, u, e, d."""


def node_of(name: str, dtype: str, gradient: bool, reads: bool = True) -> Node:
    """The kernel that rounds weights to `dtype`, and `reads` what else is multiplied so, or f32."""
    (n, h, g, t, u, e, d), options = CASES[name]
    settings = dict(options)
    mask, dropout = settings.pop("mask", None), settings.pop("dropout", 0.0)
    settings.update(dropout=dropout, seed=7, number=2, rounded=dtype)
    read, memory = (ReadTf32(), "f32") if dtype == "tf32" or not reads else (Widen(), dtype)
    settings["scale"], kind = 0.37, AttentionGrad if gradient else Attention
    op: Op = kind(settings.pop("causal", False), **settings)
    factors = [(n, h, t, e), (n, g, u, e), (n, g, u, d), *([(n, t, h, d)] if gradient else [])]
    types = [Type(s, memory) for s in factors]
    types += [Type((n, h, t), "f32")] * (2 if gradient else 0)
    types += [] if mask is None else [mask]
    types += [Type((), "i32")] if dropout else []

    def attend(*inputs: Tensor) -> tuple[Tensor, ...]:
        builder = current_builder()
        narrow = [builder.emit(read, x)[0] if reads else x for x in inputs[: len(factors)]]
        return tuple(builder.emit(op, *narrow, *inputs[len(factors) :]))

    return traced(f"{op.name}_{name.replace(' ', '_')}_{dtype}_{reads:d}", attend, *types)


def arrays_of(node: Node) -> list[Array]:
    """Normal numbers, as small as makes products of features normal; logarithms of sums are large,
    so that weights are small."""
    random, found = np.random.default_rng(3), []
    for value in node.inputs:
        shape, dtype = value.type.shape, value.type.dtype
        normal = random.standard_normal(shape).astype(np.float32)
        if dtype == "bool":
            found.append(normal < 0.5)
        elif dtype == "i32":
            found.append(np.asarray(5, np.int32))
        elif len(shape) == 4:
            small = normal / np.float32(shape[3] ** 0.25)
            found.append(convert(small, value.type.numpy_dtype))
        else:
            found.append(convert(normal + 3, value.type.numpy_dtype))
    return found


def bounds(node: Node, arrays: list[Array], dtype: str) -> list[Array | float]:
    """How far results may be from the reference: weights that were rounded to either side, times
    what they multiply; and sums of float32, by the largest result."""
    inner = next(n.op for n in node.op.body.nodes if n.op.own_template)  # type: ignore[attr-defined]
    plain = [decoded(a, v.type) for a, v in zip(arrays, node.inputs, strict=True)]
    named = inner.operands(plain)  # type: ignore[attr-defined]
    positive = {k: np.abs(x) if k in ("v", "dy") else x for k, x in named.items()}
    want = inner.reference(*plain)
    length = sum(a.shape[-2] + a.shape[-1] for a in plain[:3])
    sums = [
        16 * np.sqrt(length) * 2.0**-23 * max(1.0, np.abs(x[np.isfinite(x)]).max()) for x in want
    ]
    twice = 2 * UNIT[dtype]
    if isinstance(inner, Attention):
        y, _ = inner.reference(*positive.values())
        return [twice * y + sums[0], sums[1]]
    q, k, v, dy = (named[name] for name in ("q", "k", "v", "dy"))
    repeats = q.shape[1] // k.shape[1]
    k, v = (x.repeat(repeats, axis=1) for x in (k, v))
    mask, counter = named.get("mask"), named.get("counter")
    with np.errstate(all="ignore"):
        weights = np.exp(inner.scores(q, named["k"], mask) - named["logs"][..., None])
    kept = inner.kept(weights, counter)
    dy = dy.swapaxes(1, 2)
    dw = np.abs(weights * (kept * (dy @ v.swapaxes(2, 3)) - named["delta"][..., None]))
    parts = (
        dw @ np.abs(k) * inner.scale,
        dw.swapaxes(2, 3) @ np.abs(q) * inner.scale,
        (kept * weights).swapaxes(2, 3) @ np.abs(dy),
    )
    shape = (q.shape[0], -1, repeats)
    dq, *both = parts
    joined = [x.reshape(*shape, *x.shape[2:]).sum(2) for x in both]
    both_parts = zip((dq, *joined), sums, strict=True)
    return [twice * x.swapaxes(1, 2) + s for x, s in both_parts]


def decoded(array: Array, type: Type) -> Array:
    return widened(array) if type.dtype in ("f16", "bf16") else array


def assert_near(node: Node, arrays: list[Array], got: list[Array], dtype: str) -> None:
    with np.errstate(all="ignore"):
        want = node.op.reference(*arrays)  # type: ignore[attr-defined]
    for a, b, bound in zip(got, want, bounds(node, arrays, dtype), strict=True):
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite])
        assert (np.abs(a - b) <= bound)[finite].all(), np.abs(a - b)[finite].max()
