"""Reductions on the CPU: every op alone, and the bodies that fusion makes, in both layouts."""

from __future__ import annotations

import numpy as np
import pytest

from graphc import functions as f
from graphc.base.target import Target
from graphc.ir import ROW_MAJOR, Layout, Node, Type
from graphc.kernels.lower import lower
from graphc.ops.pointwise.elementary import ReluGrad
from graphc.ops.pooling import MaxPool2dGrad
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.trace import emit
from tests.kernels.harness import Built, build, single, traced
from tests.ops.samples import REDUCTIONS

W = cpu_target().lanes
LANES = Layout(0, W)


def f32(*shape: int, layout: Layout = ROW_MAJOR) -> Type:
    return Type(shape, "f32", layout)


def laned(*shape: int) -> Type:
    return f32(*shape, layout=LANES)


def softmax(x):
    shifted = f.exp(x - f.max(x, axis=-1, keepdims=True))
    return shifted / f.sum(shifted, axis=-1, keepdims=True)


def cross_entropy(x, labels):
    """The loss per row and the gradient of the logits."""
    high = f.max(x, axis=1, keepdims=True)
    total = f.sum(f.exp(x - high), axis=1, keepdims=True)
    one_hot = f.astype(f.equal(f.expand_dims(labels, 1), f.arange(x.shape[1])), "float32")
    logs = x - high - f.log(total)
    loss = -f.sum(one_hot * logs, axis=1)
    return loss, (f.exp(logs) - one_hot) * 0.125


def batch_norm(x, weight, bias, running):
    n = x.size // x.shape[1]
    mean = f.sum(x, axis=(0, 2, 3), keepdims=True) * (1 / n)
    variance = f.sum((x - mean) * (x - mean), axis=(0, 2, 3), keepdims=True) * (1 / n)
    inverse = f.rsqrt(variance + 1e-5)
    shape = (1, x.shape[1], 1, 1)
    y = (x - mean) * inverse * f.reshape(weight, shape) + f.reshape(bias, shape)
    return y, inverse, f.reshape(mean, (x.shape[1],)) * 0.1 + running * 0.9


def batch_norm_grad(dy, x, mean, inverse, weight):
    n = x.size // x.shape[1]
    normal = (x - mean) * inverse
    dbias = f.sum(dy, axis=(0, 2, 3))
    dweight = f.sum(dy * normal, axis=(0, 2, 3))
    shape = (1, x.shape[1], 1, 1)
    share = (f.reshape(dbias, shape) + normal * f.reshape(dweight, shape)) * (1 / n)
    return (dy - share) * inverse * f.reshape(weight, shape), dweight, dbias


def relu_bias_grad(dy, y):
    d = emit(ReluGrad(), dy, y)
    return d, f.sum(d, axis=(0, 2, 3))


def pool_relu_bias_grad(dy, index, y):
    size = y.shape[2:]
    d = emit(MaxPool2dGrad((2, 2), (2, 2), (0, 0), size), dy, index)
    return relu_bias_grad(d, y)


def layer_norm(x, weight, bias):
    n = x.shape[-1]
    mean = f.sum(x, axis=-1, keepdims=True) * (1 / n)
    variance = f.sum(f.square(x - mean), axis=-1, keepdims=True) * (1 / n)
    return (x - mean) * f.rsqrt(variance + 1e-5) * weight + bias


def everything(x):
    return f.sum(f.square(x)), f.max(x)


def of(dtype: str, *shape: int, layout: Layout = ROW_MAJOR) -> Type:
    return Type(shape, dtype, layout)


def _norm(shape: tuple[int, ...], layout: Layout) -> Node:
    c = shape[1]
    types = (f32(*shape, layout=layout), f32(c), f32(c), f32(c))
    return traced("batch_norm", batch_norm, types, (layout, ROW_MAJOR, ROW_MAJOR))


def _norm_grad(shape: tuple[int, ...], layout: Layout) -> Node:
    c = shape[1]
    x, row = f32(*shape, layout=layout), f32(1, c, 1, 1)
    types = (x, x, row, row, f32(c))
    return traced("batch_norm_grad", batch_norm_grad, types, (layout, ROW_MAJOR, ROW_MAJOR))


def _pooled(n: int, c: int, h: int, w: int, layout: Layout) -> Node:
    pooled = (n, c, h // 2, w // 2)
    types = (f32(*pooled, layout=layout), of("u8", *pooled, layout=layout))
    types = (*types, f32(n, c, h, w, layout=layout))
    return traced("pool_relu_bias", pool_relu_bias_grad, types, (layout, ROW_MAJOR))


BODIES = [
    *(traced("softmax", softmax, [f32(*s)]) for s in ((5, 37), (3, 1), (1, 16), (0, 3), (70, 3))),
    traced("softmax", softmax, [laned(W + 3, 10)], [LANES]),
    *(
        traced("softmax", cross_entropy, [t, of("i32", t.shape[0])], [ROW_MAJOR, t.layout])
        for t in (f32(33, 10), laned(33, 10), f32(1, 1), laned(1, 7))
    ),
    traced("loss", cross_entropy, [laned(33, 10), of("i32", 33, layout=LANES)], [LANES, LANES]),
    *(
        _norm(s, x)
        for s in ((5, 3, 4, 7), (W + 5, 2, 3, 3), (1, 1, 1, 1))
        for x in (ROW_MAJOR, LANES)
    ),
    *(_norm_grad(s, x) for s in ((5, 3, 4, 7), (W + 5, 2, 3, 3)) for x in (ROW_MAJOR, LANES)),
    *(
        traced("relu_bias", relu_bias_grad, [f32(*s, layout=x)] * 2, [x, ROW_MAJOR])
        for s in ((W + 1, 3, 5, 4), (2, 1, 1, 9), (130, 2, 12, 12))
        for x in (ROW_MAJOR, LANES)
    ),
    *(_pooled(*s, x) for s in ((W + 1, 3, 4, 6), (3, 2, 5, 7)) for x in (ROW_MAJOR, LANES)),
    *(
        traced("layer_norm", layer_norm, [f32(*s), f32(s[-1]), f32(s[-1])])
        for s in ((6, 37), (2, 3, 1))
    ),
    *(traced("everything", everything, [f32(*s)]) for s in ((7,), (700, 333), (1, 1))),
    traced("everything", everything, [laned(700, 333)]),
    traced("columns", lambda x: f.sum(x, axis=0), [f32(400, 70)]),
    traced("columns", lambda x: f.sum(x, axis=0), [laned(W + 3, 9)]),
    traced("rows", lambda x: f.sum(x, axis=1), [laned(W + 3, 9)], [LANES]),
    traced("softmax64", softmax, [of("f64", 5, 37)]),
    traced("few_rows", softmax, [f32(2, 40_000)]),
    traced("few_rows", softmax, [f32(1, 200_003)]),
]


@pytest.fixture(scope="module")
def bodies() -> list[Built]:
    return build(BODIES)


@pytest.mark.parametrize("which", range(len(BODIES)))
@pytest.mark.parametrize("inplace", [False, True])
def test_bodies_equal_the_reference(bodies: list[Built], which: int, inplace: bool) -> None:
    built = bodies[which]
    inputs = draw(built.node)
    check(built, inputs, built.run(inplace=inplace, inputs=inputs))


@pytest.fixture(scope="module")
def samples() -> list[Built]:
    return build([single(s.op, s.inputs, s.op.name) for s in REDUCTIONS])


@pytest.mark.parametrize("which", range(len(REDUCTIONS)), ids=lambda i: str(REDUCTIONS[i]))
def test_every_reduction_equals_its_reference(samples: list[Built], which: int) -> None:
    inputs = REDUCTIONS[which].arrays()
    check(samples[which], inputs, samples[which].run(inputs))


@pytest.mark.parametrize("lanes", [4, 8])
def test_bodies_equal_the_reference_in_narrower_registers(lanes: int) -> None:
    layout = Layout(0, lanes)
    x = f32(lanes + 3, 3, 5, 4, layout=layout)
    nodes = [
        traced("relu_bias", relu_bias_grad, [x, x], [layout, ROW_MAJOR]),
        traced("softmax", softmax, [f32(5, 37)]),
        traced("rows", lambda x: f.max(x, axis=1), [f32(lanes + 3, 9, layout=layout)], [layout]),
        _pooled(lanes + 1, 2, 4, 6, layout),
        _pooled(3, 2, 4, 6, ROW_MAJOR),
    ]
    for built in build(nodes, Target("cpu", lanes)):
        inputs = draw(built.node)
        check(built, inputs, built.run(inputs))


def test_a_nan_passes_through_a_maximum_in_every_lane(samples: list[Built]) -> None:
    node = traced("largest", lambda x: (f.max(x, axis=1), f.min(x, axis=1)), [f32(40, 37)])
    (built,) = build([node])
    x = np.random.default_rng(0).normal(size=(40, 37)).astype(np.float32)
    x[np.arange(37), np.arange(37)] = np.nan
    for got in built.run([x]):
        np.testing.assert_array_equal(np.isnan(got), np.arange(40) < 37)


def test_few_long_rows_are_cut_into_pieces(bodies: list[Built]) -> None:
    long = next(b for b in bodies if b.node.inputs[0].type.shape == (700, 333))
    assert len(long.kernel.phases) == 2 and long.kernel.phases[0] > 1 and long.kernel.workspace
    short = next(b for b in bodies if b.node.inputs[0].type.shape == (7,))
    assert short.kernel.phases == (1,) and not short.kernel.workspace


def test_work_behind_the_sums_makes_chunks_too() -> None:
    def chunks(count: int) -> int:
        def rows(x):
            y = f.sum(x, axis=1)
            for _ in range(count):
                y = f.exp(y)
            return y

        return lower(traced("rows", rows, [f32(4000, 4)]), cpu_target()).phases[0]

    assert 1 <= chunks(1) < chunks(40)


@pytest.mark.parametrize("groups", [1, 3])
def test_columns_that_lie_apart_are_summed_side_by_side(groups: int) -> None:
    """Some registers of columns in one sweep, the lanes along them or along the batch."""

    def both(x):
        return f.sum(x, axis=0) * 0.5, f.max(x, axis=0)

    columns = 8 * W * groups
    nodes = [
        traced("columns", lambda x: f.sum(x, axis=0), [f32(20, columns)]),
        traced("both", both, [f32(20, columns)]),
        traced("kept", lambda x: f.sum(x, axis=1), [laned(2 * W, 5, columns)], [LANES]),
    ]
    built = build(nodes)
    assert ["Neighbours<" in b.kernel.source for b in built] == [True, True, True]
    for each in built:
        inputs = draw(each.node)
        check(each, inputs, each.run(inputs))


def draw(node: Node) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    arrays = []
    for value in node.inputs:
        kind, shape = value.type.numpy_dtype, value.type.shape
        high = 4 if value.type.dtype == "u8" else 10
        if kind.kind == "f":
            arrays.append(random.normal(size=shape).astype(kind))
        else:
            arrays.append(random.integers(0, high, shape).astype(kind))
    return arrays


def check(built: Built, inputs: list[np.ndarray], got: list[np.ndarray]) -> None:
    """Equal to the reference in double precision, up to the rounding of sums of that length."""
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in inputs]
    node = built.node
    narrow = node.op.reference(*inputs)
    want = node.op.reference(*wide) if all(a.dtype == np.float32 for a in inputs) else narrow
    length = max([v.type.size for v in node.inputs] + [1])
    for y, exact, kind in zip(got, want, narrow, strict=True):
        assert y.shape == kind.shape and y.dtype == kind.dtype
        unit = float(np.finfo(y.dtype).eps) if y.dtype.kind == "f" else 0.0
        scale = float(np.max(np.abs(exact), initial=1.0))
        np.testing.assert_allclose(y, exact, rtol=16 * unit, atol=(8 + length**0.5) * unit * scale)
