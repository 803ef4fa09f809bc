"""Reductions add in the order that their nodes state, to the bit, whatever the registers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import graphc
from graphc import functions as f
from graphc.base.dtypes import convert
from graphc.base.target import Target
from graphc.ir import ROW_MAJOR, Layout, Node, Type
from graphc.ir.interpret import evaluate
from graphc.kernels.loops.reduction_orders import order_reductions
from graphc.ops.base import Array, Reduction
from tests.kernels.harness import build, traced

WIDTHS = (4, 8, 16)
BATCHES = (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 100)
CASES = [
    *(((n,), (0,)) for n in (1, 7, 33, 49, 1000, 4099)),
    *(((3, n), (1,)) for n in (7, 33, 1000)),
    *(((n, 5), (0,)) for n in (1, 7, 49, 1000)),
    *(((n, 40), (0,)) for n in (33, 1000)),
    ((2, 33, 3), (1,)),
    ((5, 3, 7, 7), (0, 2, 3)),
    ((5, 1, 7, 7), (0, 2, 3)),
    ((5, 6, 133), (0, 2)),
    ((7, 1, 1), (0, 1)),
    ((9, 1), (0,)),
    ((2, 1, 3), (1,)),
    ((200_003,), (0,)),
    ((2, 70_001), (1,)),
    ((5000, 6), (0,)),
    ((9, 20_000), (0, 1)),
]
LANED = [
    ((19, 10), (1,)),
    ((19, 10), (0,)),
    ((100, 5), (0,)),
    ((70, 200), (0, 1)),
    ((19, 3, 5, 7), (0, 2, 3)),
    ((3, 2, 1, 5), (0, 2, 3)),
    ((300, 2, 16, 9), (0, 2, 3)),
    ((19, 3, 5, 7), (2, 3)),
    ((17, 160), (1,)),
    ((40, 37, 3), (1,)),
]


def statistics(axes):
    def body(x, y):
        count = int(np.prod([x.shape[a] for a in axes]))
        mean = f.sum(x, axis=axes, keepdims=True) * (1 / count)
        variance = f.sum(f.square(x - mean), axis=axes)
        return f.sum(x * y, axis=axes), mean, variance, f.max(x, axis=axes)

    return body


def shares(axes):
    def body(x, y):
        high = f.max(x, axis=axes, keepdims=True)
        less = f.square(x - high) + 1
        return less / f.sum(less, axis=axes, keepdims=True), f.prod(1 + y * 0.01, axis=axes)

    return body


def columns(x, dy):
    """A normalization's gradients: sums along each row, and over all rows."""
    mean = f.sum(x, axis=-1, keepdims=True) * (1 / x.shape[-1])
    scaled = (x - mean) * dy
    rows = tuple(range(x.ndim - 1))
    total = f.sum(scaled, axis=-1, keepdims=True)
    return dy - total, f.sum(scaled, axis=rows), f.sum(dy, axis=rows)


def node(function, shape: tuple[int, ...], dtype: str = "f32", layout: Layout = ROW_MAJOR) -> Node:
    type = Type(shape, dtype, layout)
    return traced("sums", function, [type, type])


def draw(node: Node) -> list[Array]:
    random = np.random.default_rng(1)
    inputs = [random.standard_normal(v.type.shape) for v in node.inputs]
    return [
        convert(x.astype(np.float32), v.type.numpy_dtype)
        for x, v in zip(inputs, node.inputs, strict=True)
    ]


def orders(node: Node) -> list[str]:
    nodes = order_reductions(node.op.body).nodes
    return [n.op.order for n in nodes if isinstance(n.op, Reduction)]


def assert_ordered(nodes: list[Node], width: int) -> None:
    """Each kernel gives the bits of the reference in the order that it states."""
    for built in build(nodes, Target("cpu", width)):
        inputs = draw(built.node)
        op = replace(built.node.op, body=order_reductions(built.node.op.body))
        for got, want in zip(built.run(inputs), op.evaluate(*inputs), strict=True):
            assert got.tobytes() == want.tobytes(), f"{orders(built.node)}: {got}, not {want}"


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_are_added_in_order(width):
    several = [c for c in CASES if len(c[0]) > 1]
    nodes = [node(statistics(a), s) for s, a in CASES]
    nodes += [node(shares(a), s) for s, a in several[::3]]
    assert_ordered(nodes, width)


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_other_dtypes(width):
    cases = [((3, 49), (1,)), ((33, 5), (0,)), ((3, 4, 150), (0, 2)), ((3, 4099), (1,))]
    dtypes = ("f64", "f16", "bf16")
    assert_ordered([node(statistics(a), s, d) for (s, a), d in product(cases, dtypes)], width)


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_with_lanes_are_added_in_order(width):
    layout = Layout(0, width)
    bodies = [node(statistics(a), s, "f32", layout) for s, a in LANED]
    bodies += [node(shares(a), s, "f32", layout) for s, a in LANED[::4]]
    time = node(statistics((0, 1)), (5, 35, 24), "f32", Layout(1, width))
    assert_ordered([*bodies, time], width)


@pytest.mark.parametrize("width", WIDTHS)
def test_columns_are_added_in_order(width):
    shapes = [(64, 37), (7, 20, 33), (2, 64, 1), (1000, 300)]
    laned = [(67, 5), (19, 4, 6), (1200, 64)]
    nodes = [node(columns, s) for s in shapes]
    assert_ordered([*nodes, *(node(columns, s, "f32", Layout(0, width)) for s in laned)], width)


@pytest.mark.parametrize(("shape", "axes"), LANED)
def test_orders_with_lanes_do_not_depend_on_registers(shape, axes):
    texts = {tuple(orders(node(statistics(axes), shape, "f32", Layout(0, w)))) for w in WIDTHS}
    assert len(texts) == 1


def test_orders():
    def of(shape, axes, layout=ROW_MAJOR):
        return orders(node(lambda x, y: f.sum(x * y, axis=axes), shape, "f32", layout))[0]

    assert of((8, 10), (1,)) == "1%16"
    assert of((8, 100), (1,)) == "1%32"
    assert of((8, 128), (1,)) == "1%64"
    assert orders(node(statistics((1,)), (8, 128)))[0] == "1%32"
    assert of((100, 32), (0,)) == "0%4"
    assert of((20, 32), (0,)) == "0"
    assert of((8, 200_000), (1,)) == "6*1/64,1%64"
    assert of((5, 3, 9, 9), (0, 2, 3)) == "0,2.3%32"
    assert of((5, 3, 9, 9), (0, 2, 3), Layout(0, 8)) == "0/16,2.3%4,0%16"
    assert of((50, 3), (0,), Layout(0, 8)) == "0%16"
    assert orders(node(columns, (400, 64)))[1:] == ["1%32", "2*0", "2*0"]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_has_the_same_bits_in_every_batch(width):
    """Whether the batch is one row, lies row-major or in the lanes."""
    for row, axes in [((10,), (1,)), ((300,), (1,)), ((4, 33), (1, 2)), ((70_000,), (1,))]:
        full = width == 8 and len(row) == 1 and row[0] < 1000
        pairs = [(b, ROW_MAJOR) for b in (BATCHES if full else (1, 3))]
        if row[0] < 1000:
            pairs += [(b, Layout(0, width)) for b in (15, 17, 100)]
        nodes = [node(shares(axes), (b, *row), "f32", x) for b, x in pairs]
        (x, y) = draw(node(shares(axes), (100, *row)))
        whole = None
        for built in reversed(build(nodes, Target("cpu", width))):
            n = built.node.inputs[0].type.shape[0]
            results = built.run([x[:n], y[:n]])
            whole = results if whole is None else whole
            for got, want in zip(results, whole, strict=True):
                np.testing.assert_array_equal(got, want[:n])


@pytest.mark.parametrize("isa", ["sse2", "avx2", "avx512"])
def test_programs_add_as_their_graphs_state(isa, monkeypatch):
    monkeypatch.setenv("GRAPHC_ISA", isa)

    def sums(x, y):
        return (
            *statistics((1,))(x, x * 2),
            *shares((0,))(x, x + 1),
            f.mean(y),
            f.mean(y, axis=0),
            f.astype(f.sum(f.astype(y, "float16"), axis=1), "float32"),
        )

    random = np.random.default_rng(2)
    x, y = (random.standard_normal(s).astype(np.float32) for s in ((50, 77), (300, 1000)))
    results = []
    for threads in (1, 2, 3):
        program = graphc.compile(
            sums, graphc.spec(x.shape), graphc.spec(y.shape), device="cpu", threads=threads
        )
        results.append(program(x, y))
        want, _ = evaluate(program.graph, [x, y])
    for got in results:
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_sample_has_the_same_bits_in_every_batch():
    """Through all passes: a layer norm, the mean over time, a softmax."""

    def model(x):
        mean = f.mean(x, axis=-1, keepdims=True)
        variance = f.mean(f.square(x - mean), axis=-1, keepdims=True)
        y = f.mean((x - mean) * f.rsqrt(variance + 1e-5), axis=1)
        shifted = f.exp(y - f.max(y, axis=-1, keepdims=True))
        return y, shifted / f.sum(shifted, axis=-1, keepdims=True)

    x = np.random.default_rng(3).standard_normal((100, 37, 50)).astype(np.float32)
    whole = None
    for n in (100, 17, 3, 1):
        results = graphc.compile(model, graphc.spec((n, 37, 50)), device="cpu")(x[:n])
        whole = results if whole is None else whole
        for got, want in zip(results, whole, strict=True):
            np.testing.assert_array_equal(got, want[:n])
