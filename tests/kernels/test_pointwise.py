"""Pointwise kernels on the CPU: every op alone in both layouts, fused bodies, updates of many
parameters in parts, and what the text looks like."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from graphc import functions as f
from graphc.base.dtypes import convert, shown
from graphc.base.target import Target
from graphc.ir import NARROW, ROW_MAJOR, Graph, Layout, Node, Type, Value, Where
from graphc.kernels.lower import lower
from graphc.ops.base import Contraction, Reduction
from graphc.ops.indexing import TakeGrad
from graphc.ops.join import Pad
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.trace import Builder, Tensor, emit
from tests.kernels.harness import Built, build, fuse, single, traced
from tests.ops.samples import CORE, Sample

W = cpu_target().lanes
LANES = Layout(0, W)
OPS = [
    s
    for s in CORE
    if not isinstance(s.op, Contraction | Reduction)
    and s.op.own_template in ("", "index", "scatter")
]


def f32(*shape: int, layout: Layout = ROW_MAJOR) -> Type:
    return Type(shape, "f32", layout)


@pytest.fixture(scope="module")
def samples() -> list[Built]:
    return build([single(s.op, s.inputs, s.op.name) for s in OPS])


@pytest.mark.parametrize("which", range(len(OPS)), ids=lambda i: str(OPS[i]))
def test_every_op_equals_its_reference(samples: list[Built], which: int) -> None:
    sample = OPS[which]
    inputs = sample.arrays()
    for inplace in (False, True):
        same(samples[which].run(inputs, inplace=inplace), sample.op.reference(*inputs))


def with_lanes(sample: Sample) -> Node | None:
    """The sample with lanes on every value whose first axis is the batch of its outputs."""
    outputs = sample.op.infer(*sample.inputs)
    shape = outputs[0].shape
    if len(shape) < 2 or any(
        t.rank == len(shape) and t.shape[0] != shape[0] for t in sample.inputs
    ):
        return None
    if sample.op.name in ("permute_dims", "reshape", "slice", "flip", "pad", "concat"):
        return None
    if sample.op.own_template:
        return None
    if sample.op.name in ("take", "take_along_axis") and getattr(sample.op, "axis", 0) == 0:
        return None
    inputs = [
        t.with_layout(LANES) if t.rank == len(shape) and t.shape[0] != 1 else t
        for t in sample.inputs
    ]
    return single(sample.op, inputs, sample.op.name, LANES)


LANED = [(s, n) for s in OPS if (n := with_lanes(s)) is not None]


@pytest.fixture(scope="module")
def laned() -> list[Built]:
    return build([n for _, n in LANED])


@pytest.mark.parametrize("which", range(len(LANED)), ids=lambda i: str(LANED[i][0]))
def test_every_op_equals_its_reference_with_the_batch_in_lanes(
    laned: list[Built], which: int
) -> None:
    sample = LANED[which][0]
    inputs = sample.arrays()
    same(laned[which].run(inputs), sample.op.reference(*inputs))


def same(got: list[np.ndarray], want: tuple[np.ndarray, ...]) -> None:
    """Equal shapes, dtypes and elements, floats up to 8 units in the last place."""
    for y, exact in zip(got, want, strict=True):
        assert y.shape == exact.shape and y.dtype == exact.dtype
        unit = float(np.finfo(y.dtype).eps) if y.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(y, exact, rtol=8 * unit, atol=8 * unit)


def gates(x, bias):
    """Views of one input, read in place: a slice, its transpose, a flip, a broadcast."""
    n = x.shape[1] // 2
    left, right = x[:, :n], x[:, n:]
    return f.sigmoid(left) * f.tanh(right) + bias, f.transpose(left * 2.0)[::-1]


def joined(a, b):
    """Computed values under concat and pad."""
    return f.concat([f.exp(a), b * 2.0, a - 1.0], axis=1)


def spread(x):
    """The gradient of a strided slice: elements with gaps, and borders."""
    return f.exp(emit(Pad((0, 0, 1, 2), (0, 1, 0, 1), (0, 0, 1, 2), 0.5), x))


def lookup(table, indices, scale):
    return f.take(table, indices, axis=0) * scale


def dropped(x):
    from graphc.functions import dropout

    return dropout(x, 0.25, training=True)


def ramps(x, y):
    """Two loop nests that read the same constant array."""
    ramp = f.as_tensor(np.arange(5, dtype=np.float32))
    return x + ramp, y * ramp[:3]


BODIES: list[tuple[Callable[..., object], list[Type], list[Layout]]] = [
    (gates, [f32(5, 2 * 9), f32(9)], []),
    (gates, [f32(W, 2 * W), f32(W)], []),
    (joined, [f32(3, 5), f32(3, 2)], []),
    (joined, [f32(W + 2, 3), f32(W + 2, 20)], []),
    (joined, [f32(W + 2, 3, layout=LANES), f32(W + 2, 20)], [LANES]),
    (lookup, [f32(7, 37), Type((4, 3), "i32"), f32(37)], []),
    (lookup, [f32(7), Type((40,), "i64"), f32()], []),
    (spread, [f32(W + 1, 3, 4, 5, layout=LANES)], [LANES]),
    (spread, [f32(W + 1, 3, 4, 5)], [LANES]),
    (spread, [f32(2, 3, 4, 5)], []),
    (lambda x, y: f.relu(x + y), [f32(W + 1, 3, 4, 5, layout=LANES), f32(1, 3, 1, 1)], [LANES]),
    (lambda x, y: f.relu(x + y), [f32(W + 1, 3, 4, 5, layout=LANES), f32(W + 1, 3, 4, 5)], [LANES]),
    (lambda x, y: f.where(x > y, x, y), [f32(2, 1, 4, 1), f32(3, 1, 70)], []),
    (ramps, [f32(4, 5), f32(2, 3)], []),
]


@pytest.fixture(scope="module")
def bodies() -> list[Built]:
    return build([traced("body", fn, types, layouts) for fn, types, layouts in BODIES])


@pytest.mark.parametrize("which", range(len(BODIES)))
def test_bodies_equal_the_reference(bodies: list[Built], which: int) -> None:
    built, random = bodies[which], np.random.default_rng(0)
    inputs = [
        random.normal(size=v.type.shape).astype(v.type.numpy_dtype)
        if v.type.dtype == "f32"
        else random.integers(-2, 9, v.type.shape).astype(v.type.numpy_dtype)
        for v in built.node.inputs
    ]
    same(built.run(inputs), built.node.op.reference(*inputs))


@pytest.mark.parametrize("dtype", ["i32", "i64", "u8"])
def test_integer_quotients_never_trap(dtype: str) -> None:
    kind = Type((5,), dtype)
    least = np.iinfo(kind.numpy_dtype).min
    minus = least if dtype == "u8" else -1
    a = np.array([least, least, 7, 0, 9], kind.numpy_dtype)
    b = np.array([minus, 0, minus, 0, 2], kind.numpy_dtype)
    node = traced("quotients", lambda x, y: (f.floor_divide(x, y), f.remainder(x, y)), [kind, kind])
    (built,) = build([node])
    with np.errstate(all="ignore"):
        same(built.run([a, b]), (a // b, a % b))


@pytest.mark.parametrize("dtype", NARROW)
def test_floats_of_two_bytes_are_widened_computed_and_rounded_at_every_op(dtype) -> None:
    narrow = Type((5, 37), dtype)
    nodes = [
        traced("chain", lambda x, y: f.relu(x / 3.0 * y + 0.5)[:, ::2], [narrow, narrow]),
        traced("sums", lambda x: (f.sum(x, axis=1), f.max(x, axis=1)), [narrow]),
        traced("all", lambda x: f.sum(x * 2.0), [Type((700, 333), dtype)]),
        traced("narrow", lambda x: f.astype(x, dtype), [f32(5, 37)]),
        traced("wide", lambda x: f.astype(x, "float32") * 3.0, [narrow]),
        traced("gather", lambda x: f.take(x, np.array([3, 0, 36]), axis=1), [narrow]),
    ]
    random = np.random.default_rng(0)
    for built in build(nodes):
        inputs = [
            convert(random.uniform(-1, 1, v.type.shape), v.type.numpy_dtype)
            for v in built.node.inputs
        ]
        expected = built.node.op.evaluate(*inputs)
        for y, exact in zip(built.run(inputs), expected, strict=True):
            name = built.node.op.kernel
            if name in ("sums", "all"):  # in another order
                np.testing.assert_allclose(shown(y), shown(exact), rtol=2**-8, err_msg=name)
            else:
                np.testing.assert_array_equal(shown(y), shown(exact), err_msg=name)


def scattered_mean(indices):
    """The gradient of a mean of rows: a constant, broadcast."""
    return emit(TakeGrad(0, 9), indices, f.broadcast_to(f.as_tensor(np.float32(0.25)), (4, 6)))


def scattered_columns(indices, dy):
    """Rows of a transposed and broadcast view."""
    wide = f.broadcast_to(f.expand_dims(f.transpose(dy), 1), (5, 2, 3))
    return emit(TakeGrad(1, 4), indices[::2], wide)


def test_the_gradient_of_take_reads_views_and_constants() -> None:
    places = Type((4,), "i32")
    nodes = [
        traced("mean", scattered_mean, [places]),
        traced("columns", scattered_columns, [places, f32(3, 5)]),
    ]
    indices = np.array([2, -1, 3, 2], np.int32)
    dy = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    for built, inputs in zip(build(nodes), ([indices], [indices, dy]), strict=True):
        assert built.kernel.template == "index"
        same(built.run(inputs), built.node.op.reference(*inputs))


SHAPES = ((), (3,), (17,), (1,), (10, 33), (2, 3, 5, 5), (500,), (40, 800), (0, 3), (6, 1))


def update_node() -> tuple[Node, list[np.ndarray]]:
    """Adam for parameters of many shapes, with the step count that all of them share."""
    builder, random, arrays, results = Builder("update"), np.random.default_rng(0), [], []

    def draw(name: str, shape: tuple[int, ...], low: float = -1.0):
        arrays.append(random.uniform(low, 1.0, shape).astype(np.float32))
        return builder.input(name, f32(*shape))

    step = builder.input("step", Type((), "i32"))
    arrays.append(np.array(6, np.int32))
    rate = draw("rate", (), 0.1)
    with builder.building():
        count = f.astype(step + 1, "float32")
        size = rate * f.sqrt(1.0 - 0.999**count) / (1.0 - 0.9**count)
        for i, shape in enumerate(SHAPES):
            w, g, m = (draw(f"p{i}.{k}", shape) for k in ("weight", "grad", "mean"))
            v = draw(f"p{i}.square", shape, 0.0)
            mean, square = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
            results += [w - size * mean / (f.sqrt(square) + 1e-8), mean, square]
        results.append(step + 1)
    return fuse(builder.graph(results)), arrays


def test_an_update_of_many_parameters_is_one_function_and_in_place() -> None:
    node, arrays = update_node()
    (built,) = build([node])
    want = node.op.reference(*arrays)
    for inplace in (False, True):
        for seed in range(3):
            same(built.run(arrays, seed=seed, inplace=inplace), want)
    text = built.kernel.source
    # One loop for all arrays, one for the scalars: a parameter without axes, the step count.
    assert text.count("pointwise(begin") + text.count("pointwise<") == 2
    assert text.index("pow(") < text.index("pointwise(begin"), "the rate is computed once"
    updated = {node.op.body.inputs[i].name for i, _ in built.kernel.inplace}
    assert {f"p{i}.weight" for i in range(1, len(SHAPES))} <= updated
    assert "step" not in updated, "other parts read the step count"


def test_a_negative_zero_for_all_lanes_keeps_its_sign() -> None:
    def signs(x: Tensor, b: Tensor) -> Tensor:
        return x - np.float32(-0.0) + f.copysign(x, b)

    (built,) = build([traced("signs", signs, [f32(W + 3), f32(1)])])
    zeros = np.zeros(W + 3, np.float32)
    got = built.run([-zeros, np.float32([-0.0])])[0]
    np.testing.assert_array_equal(np.signbit(got), np.signbit(zeros))
    (alone,) = build([traced("sign", f.copysign, [f32(W + 3), f32(1)])])
    assert np.signbit(alone.run([zeros, np.float32([-0.0])])[0]).all()


def test_a_chain_may_be_longer_than_python_recurses() -> None:
    def chain(x: Tensor) -> Tensor:
        y = x
        for _ in range(500):
            y = f.flip(y * 1.5 + x, axis=0)
        return y

    limit = sys.getrecursionlimit()
    kernel = lower(traced("chain", chain, [f32(3)]), cpu_target())
    assert kernel.source.count("* ") >= 500
    assert sys.getrecursionlimit() == limit


def test_more_work_makes_more_chunks_and_little_makes_one() -> None:
    def chunks(*shape: int) -> int:
        return lower(traced("k", f.exp, [f32(*shape)]), cpu_target()).phases[0]

    assert chunks(3) == chunks(1000) == 1
    assert chunks(100_000) >= 8 and chunks(10_000_000) > 100


def test_axes_that_every_access_steps_through_as_one_are_merged() -> None:
    kernel = lower(traced("k", f.exp, [f32(3, 4, 5)]), cpu_target())
    assert "EXTENT[] = {60}" in kernel.source
    kernel = lower(traced("k", lambda x, b: x + b, [f32(3, 4, 5, 6), f32(4, 1, 1)]), cpu_target())
    assert "EXTENT[] = {3, 4, 30}" in kernel.source


def test_the_text_names_values_and_says_where_they_come_from(golden: Callable[..., None]) -> None:
    builder = Builder("conv1_scale_relu")
    x, scale = (
        builder.input("conv1", f32(40, 3, 4, layout=Layout(0, 16))),
        builder.input("scale", f32(3, 1)),
    )
    with builder.building(), builder.module("conv1", training=False):
        y = f.relu(x * f.exp(scale))
    graph = builder.graph([y])
    new = Value(y.value.name, y.value.type.with_layout(Layout(0, 16)))
    last = graph.nodes[-1]
    nodes = (*graph.nodes[:-1], Node(last.op, last.inputs, (new,), last.where))
    body = Graph(graph.name, graph.inputs, (), nodes, (new,))
    where = Where("conv1", ("model.py:7",))

    kernel = lower(replace(fuse(body), where=where), Target("cpu", 16))
    golden("kernels/pointwise.txt", kernel.source)
