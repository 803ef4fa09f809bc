"""Contractions of register tiles add in the order that their node states, to the last bit, whatever
the width of registers, the tile and the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

import graphc
from graphc import functions as F
from graphc.base.dtypes import convert
from graphc.base.target import Target
from graphc.ir import DTYPES, ROW_MAJOR, Graph, Layout, Node, Type, Value
from graphc.kernels.cpu.contract import contract
from graphc.kernels.loops.sum_orders import order_sums
from graphc.kernels.program.kernel import Kernel
from graphc.ops import Conv2d, Conv2dWgrad, Matmul
from graphc.ops.base import Array, Contraction
from graphc.ops.pointwise.logic import Cast
from graphc.trace import Tensor, emit
from tests.kernels import harness
from tests.kernels.contract_samples import convolutions, matmuls
from tests.kernels.harness import Built, build, single, traced

WIDTHS = (4, 8, 16)
BATCHES = (1, 2, 3, 7, 8, 15, 16, 17, 31, 33)
Nodes = Callable[[int], Sequence[Node]]
"""Nodes by the width of registers, which decides layouts and nothing else."""


def ordered(node: Node, order: str = "") -> Node:
    """The node with the orders that the compiler states; `order` is that of its contraction."""
    graph = Graph("one", node.inputs, (), (node,), node.outputs)
    (node,) = order_sums(graph, Target()).nodes
    if not order:
        return node
    nodes = (
        replace(n, op=replace(n.op, order=order)) if isinstance(n.op, Contraction) else n
        for n in node.op.body.nodes
    )
    return replace(node, op=replace(node.op, body=replace(node.op.body, nodes=tuple(nodes))))


def inputs_of(node: Node) -> list[Array]:
    random = np.random.default_rng(3)
    return [
        convert(random.standard_normal(v.type.shape), DTYPES[v.type.dtype]) for v in node.inputs
    ]


def assert_equal_bits(nodes: Nodes) -> None:
    """Kernels of all widths compute the bits of the reference."""
    of_widths = [build([*map(ordered, nodes(w))], Target("cpu", w)) for w in WIDTHS]
    for same in zip(*of_widths, strict=True):
        node = same[0].node
        inputs = inputs_of(node)
        want = node.op.reference(*inputs)
        for built in same:
            assert_bits(built, inputs, want)


def assert_bits(built: Built, inputs: Sequence[Array], want: Sequence[Array]) -> None:
    for value, got, right in zip(built.node.outputs, built.run(inputs), want, strict=True):
        bits = [a.view(f"u{a.itemsize}") for a in (got, right.astype(got.dtype))]
        np.testing.assert_array_equal(*bits, err_msg=f"{value} of {built.kernel.choice}")


@pytest.mark.parametrize(
    "seed, count", [(1, 8), *(pytest.param(s, 24, marks=pytest.mark.slow) for s in range(2, 7))]
)
def test_matmuls_have_the_bits_of_the_reference(seed: int, count: int) -> None:
    assert_equal_bits(lambda width: matmuls(seed, count, width))


@pytest.mark.parametrize(
    "seed, count", [(1, 6), *(pytest.param(s, 24, marks=pytest.mark.slow) for s in range(2, 7))]
)
def test_convolutions_have_the_bits_of_the_reference(seed: int, count: int) -> None:
    assert_equal_bits(lambda width: convolutions(seed, count, width))


@pytest.mark.parametrize(
    "dtype, count", [("f64", 4), ("bf16", 3), pytest.param("f16", 30, marks=pytest.mark.slow)]
)
def test_other_floats_have_the_bits_of_the_reference(dtype: str, count: int) -> None:
    """Those of two bytes are added in f32; what reads them often is given f32 instead."""

    def nodes(width: int) -> list[Node]:
        found = matmuls(7, 3 * count, width, dtype)
        if dtype == "f64":
            found += convolutions(7, 3 * count, width, dtype)
        return [n for n in found if not _converts_operands(n)][:: 3 if count < 9 else 1]

    assert_equal_bits(nodes)


def _converts_operands(node: Node) -> bool:
    producers = node.op.body.producers
    product = next(n for n in node.op.body.nodes if n.op.contracts)

    def converted(value: Value) -> bool:
        node = producers.get(value)
        if node is None:
            return False
        return isinstance(node.op, Cast) or (node.op.moves and converted(node.inputs[0]))

    return any(map(converted, product.inputs))


@pytest.mark.parametrize("order", ["n/16,p,q,n%16", "3*n/16,p,q,n%16"])
def test_sums_over_lanes_in_parts(order: str) -> None:
    """Images of 7 blocks of 16, the last of which is not full; the last of 16 has a part alone."""
    settings = ((1, 1), (1, 1), (1, 1), 1)

    def nodes(width: int) -> list[Node]:
        lanes = Layout(0, width)
        x, dy = Type((101, 3, 4, 5), layout=lanes), Type((101, 5, 4, 5), layout=lanes)
        return [ordered(single(Conv2dWgrad(*settings, (3, 3)), [x, dy]), order)]

    for width in WIDTHS:
        (built,) = build(nodes(width), Target("cpu", width))
        inputs = inputs_of(built.node)
        assert_bits(built, inputs, built.node.op.reference(*inputs))


def test_plain_loops_add_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "ranked", lambda *_: [])
    nodes = [*map(ordered, matmuls(9, 10, 8)[::3] + convolutions(9, 3, 8))]
    lanes = Layout(0, 8)
    x, dy = Type((40, 3, 4, 5), layout=lanes), Type((40, 5, 4, 5), layout=lanes)
    gradient = single(Conv2dWgrad((1, 1), (1, 1), (1, 1), 1, (3, 3)), [x, dy])
    nodes.append(ordered(gradient, "2*n/16,p,q,n%16"))
    for built in build(nodes, Target("cpu", 8)):
        assert built.kernel.note.startswith("plain loop")
        inputs = inputs_of(built.node)
        assert_bits(built, inputs, built.node.op.reference(*inputs))


def test_candidates_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [*map(ordered, matmuls(8, 4, 8) + convolutions(8, 3, 8))]
    target = Target("cpu", 8)
    number = 0

    def lowered(node: Node, target: Target) -> Kernel:
        candidates = list(contract.contract_candidates(node, target))
        return candidates[number % len(candidates)]

    monkeypatch.setattr(harness, "lower", lowered)
    for number in (1, 2, 5):  # noqa: B007  what `lowered` picks
        for built in build(nodes, target):
            inputs = inputs_of(built.node)
            assert_bits(built, inputs, built.node.op.reference(*inputs))


def sample_nodes(batch: int, width: int) -> list[Node]:
    """Products and a convolution of a batch, which is in the lanes if it fills them."""
    laned = Target("cpu", width).fills_lanes(batch)
    lanes = Layout(0, width) if laned else ROW_MAJOR
    rows, images = Type((batch, 67), layout=lanes), Type((batch, 3, 6, 7), layout=lanes)

    def linear(x: Tensor, weight: Tensor) -> Tensor:
        return emit(Matmul(), x, F.permute_dims(weight, (1, 0)))

    return [
        ordered(n)
        for n in (
            single(Matmul(), [rows, Type((67, 21))], layout=lanes),
            traced("linear", linear, [rows, Type((21, 67))], [lanes]),
            single(Conv2d((1, 1), (1, 1), (1, 1), 1), [images, Type((5, 3, 3, 3))], layout=lanes),
        )
    ]


@pytest.mark.parametrize(
    "width", [pytest.param(4, marks=pytest.mark.slow), 8, pytest.param(16, marks=pytest.mark.slow)]
)
def test_samples_have_the_same_bits_in_every_batch(width: int) -> None:
    nodes = [n for batch in BATCHES for n in sample_nodes(batch, width)]
    whole = [inputs_of(n) for n in sample_nodes(max(BATCHES), width)]
    built = build(nodes, Target("cpu", width))
    results = [
        b.run([x[: b.node.inputs[0].type.shape[0]], weight])[0]
        for b, (x, weight) in zip(built, whole * len(BATCHES), strict=True)
    ]
    for place, result in enumerate(results):
        largest = results[len(results) - len(whole) + place % len(whole)]
        np.testing.assert_array_equal(result, largest[: len(result)])


def test_networks_give_samples_the_same_bits_in_every_batch() -> None:
    """Tiles with pooling windows, weights as they are and transposed."""
    random = np.random.default_rng(4)
    kernel, dense = (
        random.standard_normal(s).astype(np.float32) for s in ((6, 3, 3, 3), (6 * 3 * 4, 11))
    )
    images = random.standard_normal((33, 3, 8, 10)).astype(np.float32)

    def network(x: graphc.Tensor, w: graphc.Tensor, d: graphc.Tensor) -> graphc.Tensor:
        y = F.max_pool2d(F.relu(F.conv2d(x, w)), 2)
        return F.reshape(y, (y.shape[0], -1)) @ d

    largest = None
    for batch in (33, 16, 7, 1):
        inputs = images[:batch], kernel, dense
        types = [graphc.spec(a.shape) for a in inputs]
        got = graphc.compile(network, *types, device="cpu")(*inputs)
        largest = got if largest is None else largest
        np.testing.assert_array_equal(got, largest[:batch])
