"""Attention on the CPU: its kernels against the op's meaning, for every width of register."""

from __future__ import annotations

import numpy as np
import pytest

from graphc import functions as f
from graphc.base.target import Target
from graphc.ir import Node, Type
from graphc.kernels.lower import lower
from graphc.ops import Attention, AttentionGrad
from graphc.ops.base import Array
from graphc.ops.fused import Fused
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.trace import Tensor, current_builder
from tests.kernels.harness import Built, build, single, traced
from tests.ops.samples_attention import ATTENTIONS

WIDTH = cpu_target().lanes


def node_of(
    extents: tuple[int, ...], causal: bool = False, mask: Type | None = None, dtype: str = "f32"
) -> tuple[Node, Node]:
    """The forward and the backward kernel of extents n, h, g, t, u, e, d."""
    n, h, g, t, u, e, d = extents
    inputs = [Type(s, dtype) for s in ((n, h, t, e), (n, g, u, e), (n, g, u, d))]
    more = [] if mask is None else [mask]
    y, logs = Attention(causal, e**-0.5).infer(*inputs)
    gradient = AttentionGrad(causal, e**-0.5)
    return (
        single(Attention(causal, e**-0.5), [*inputs, *more]),
        single(gradient, [*inputs, y, logs, logs, *more]),
    )


def drawn(types: list[Type], seed: int = 0) -> list[Array]:
    """Normal floats and booleans of which most are true."""
    random = np.random.default_rng(seed)
    return [
        random.random(t.shape) < 0.7
        if t.dtype == "bool"
        else random.standard_normal(t.shape).astype(t.numpy_dtype)
        for t in types
    ]


def arrays_of(node: Node) -> list[Array]:
    """Inputs of either kernel; those of the backward one are what the forward one gives."""
    assert isinstance(node.op, Fused)
    (inner,) = node.op.body.nodes
    arrays = drawn([v.type for v in node.inputs])
    op = inner.op
    if isinstance(op, AttentionGrad):
        q, k, v, dy, _, _, *mask = (wide(a) for a in arrays)
        y, logs = Attention(op.causal, op.scale).reference(q, k, v, *mask)
        delta = (dy * y).sum(-1).swapaxes(1, 2)
        arrays[4], arrays[5] = (x.astype(arrays[0].dtype) for x in (logs, delta))
    return arrays


def wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def assert_right(built: Built, arrays: list[Array]) -> None:
    """The results equal the op's meaning in f64 but for the rounding of their sums."""
    assert isinstance(built.node.op, Fused)
    want = built.node.op.reference(*map(wide, arrays))
    length = max(a.shape[-1] for a in arrays[:3]) + max(a.shape[-2] for a in arrays[:3])
    for got, exact in zip(built.run(arrays), want, strict=True):
        finite = np.abs(exact[np.isfinite(exact)])
        scale = max(1.0, float(finite.max(initial=0)))
        tolerance = 4 * np.sqrt(length) * np.finfo(got.dtype).eps * scale
        np.testing.assert_allclose(got, exact, rtol=0, atol=tolerance, equal_nan=True)


LARGER = [
    *node_of((1, 2, 2, 128, 128, 64, 64), causal=True),
    *node_of((2, 2, 1, 70, 130, 64, 48), mask=Type((2, 1, 1, 130))),
    *node_of((1, 1, 1, 1, 300, 256, 256)),
    *node_of((1, 2, 2, 197, 197, 32, 32), mask=Type((1, 1, 197, 1), "bool")),
    *node_of((1, 1, 1, 100, 50, 3, 1), causal=True, mask=Type((1, 1, 100, 50), "f64"), dtype="f64"),
]


@pytest.mark.parametrize("width", sorted({4, 8, WIDTH}))
def test_kernels_equal_the_meaning_whatever_the_width(width: int) -> None:
    nodes = LARGER if width == WIDTH else LARGER[2:4] + LARGER[-2:]
    for built in build(nodes, Target("cpu", width)):
        assert_right(built, arrays_of(built.node))


def test_samples_equal_the_meaning() -> None:
    nodes = [single(s.op, s.inputs) for s in ATTENTIONS]
    for sample, built in zip(ATTENTIONS, build(nodes), strict=True):
        assert_right(built, list(sample.arrays()))


def test_a_query_that_sees_nothing_gives_zeros_and_passes_no_gradient() -> None:
    mask = Type((1, 1, 40, 1), "bool")
    forward, backward = build(node_of((1, 2, 2, 40, 20, 8, 8), mask=mask))
    q, k, v, seen = arrays_of(forward.node)
    blind = ~seen[0, 0, :, 0]
    y, logs = forward.run([q, k, v, seen])
    assert blind.any() and not y[0, blind].any()
    assert (logs[0][:, blind] == np.inf).all()
    arrays = arrays_of(backward.node)
    dq, *others = backward.run(arrays)
    blind = ~arrays[-1][0, 0, :, 0]
    assert blind.any() and not dq[0, blind].any() and all(np.isfinite(x).all() for x in others)


def test_a_nan_reaches_the_queries_that_see_it_alone() -> None:
    forward, _ = build(node_of((1, 1, 1, 64, 64, 16, 16), causal=True))
    q, k, v = arrays_of(forward.node)
    k[0, 0, 40, 3] = np.nan
    y, logs = forward.run([q, k, v])
    assert np.isnan(y[0, 40:]).all() and np.isfinite(y[0, :40]).all()
    assert np.isnan(logs[0, 0, 40:]).all() and np.isfinite(logs[0, 0, :40]).all()


def test_scores_of_hundreds_do_not_overflow() -> None:
    forward, _ = build(node_of((1, 1, 1, 33, 70, 16, 16)))
    q, k, v = arrays_of(forward.node)
    assert_right(forward, [20 * q, 20 * k, v])


def test_query_key_and_value_are_read_in_place_as_parts_of_one_array() -> None:
    def attend(x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = (f.permute_dims(x[:, :, i], (0, 2, 1, 3)) for i in range(3))
        return current_builder().emit(Attention(True, 0.3), q, k, v)

    node = traced("parts", attend, [Type((2, 21, 3, 4, 8))])
    (built,) = build([node])
    (x,) = drawn([v.type for v in node.inputs])
    q, k, v = (wide(x)[:, :, i].swapaxes(1, 2) for i in range(3))
    want = Attention(True, 0.3).reference(q, k, v)
    for got, exact in zip(built.run([x]), want, strict=True):
        np.testing.assert_allclose(got, exact, rtol=0, atol=1e-5)


def test_gradients_are_written_as_parts_of_one_array_in_any_order() -> None:
    _, backward = node_of((2, 4, 4, 21, 21, 8, 8), causal=True)

    def joined(*inputs: Tensor) -> Tensor:
        gradients = current_builder().emit(AttentionGrad(True, 8**-0.5), *inputs)
        return f.concat([gradients[i] for i in (2, 0, 1)], axis=2)

    node = traced("joined", joined, [v.type for v in backward.inputs])
    (built,) = build([node])
    assert_right(built, arrays_of(backward))


@pytest.mark.parametrize(("width", "dtype", "registers"), [
    (16, "f32", 4), (16, "f64", 2), (8, "f32", 2), (8, "f64", 1),
])  # fmt: skip
def test_a_block_fills_no_more_than_the_machines_registers(
    width: int, dtype: str, registers: int
) -> None:
    """Of which a row of f64 needs twice as many."""
    for node in node_of((1, 1, 1, 200, 200, 8, 8), dtype=dtype):
        source = lower(node, Target("cpu", width)).source
        for name in ("QUERY_REGISTERS", "KEY_REGISTERS"):
            assert f"static constexpr int {name} = {registers};" in source
