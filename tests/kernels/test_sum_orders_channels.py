"""Convolutions with channels in the lanes add in the order that their node states, to the last bit,
whatever the width of registers and the batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.dtypes import convert
from graphc.base.target import Caches, Target
from graphc.ir import DTYPES, ROW_MAJOR, Graph, Layout, Node, Type
from graphc.ir.interpret import evaluate
from graphc.kernels.loops.sum_orders import order_sums
from graphc.ops import Conv2d, Conv2dDgrad, Conv2dWgrad
from graphc.ops.fused import KernelNode
from graphc.passes.layout import channels
from graphc.runtime.compilers import shared_objects
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.trace import Tensor, emit
from tests.kernels.harness import build, traced

CASES = 7
NARROW = [
    # dtype, images, channels in and out, size, taps
    ("bf16", 1, 32, 16, (7, 5), (1, 1)),
    ("f16", 2, 16, 32, (3, 5), (1, 2)),
]
"""Few reads of each element, so that kernels read it as stored."""
PARTS = (6, 16, 16, (11, 10), (3, 3), (1, 1), (1, 1), (1, 1))
"""A weight gradient with so many products that images are summed in parts."""


def cases() -> Iterator[tuple[Any, ...]]:
    """Images, channels in and out, size, taps, strides, padding, dilation."""
    random = np.random.default_rng(5)

    def pair(low: int, high: int) -> tuple[int, int]:
        rows, columns = random.integers(low, high + 1, 2)
        return int(rows), int(columns)

    yield PARTS
    count = 0
    while count < CASES:
        n, size, taps = int(random.integers(1, 6)), pair(1, 11), pair(1, 4)
        c, k = int(random.choice((3, 16, 32, 48))), int(random.choice((16, 32, 48)))
        settings = pair(1, 2), pair(0, 2), pair(1, 2)
        conv = Conv2d(*settings, 1)
        if min(conv.extent(size[i], taps[i], i) for i in (0, 1)) > 0:
            count += 1
            yield (n, c, k, size, taps, *settings)


def nodes(width: int) -> Iterator[Node]:
    """The convolution of each case with a bias, and the gradients that its kernels have."""
    lanes, first = Layout(1, width), Layout(0, width)
    for n, c, k, size, taps, stride, padding, dilation in cases():
        image = Type((n, c, *size), layout=lanes if c > 3 else ROW_MAJOR)
        weight, settings = Type((k, c, *taps)), (stride, padding, dilation, 1)
        conv, wgrad = Conv2d(*settings), Conv2dWgrad(*settings, taps)

        def forward(x: Tensor, w: Tensor, b: Tensor, op: Conv2d = conv) -> Tensor:
            return emit(op, x, w) + b

        def gradient(x: Tensor, dy: Tensor, op: Conv2dWgrad = wgrad) -> Tensor:
            return emit(op, x, dy)

        (y,) = conv.infer(image.with_layout(ROW_MAJOR), weight)
        laned = y.with_layout(lanes)
        yield traced(
            "forward", forward, (image, weight.with_layout(first), Type((k, 1, 1))), (lanes,)
        )
        yield traced("wgrad", gradient, (image, laned))
        if c > 3 and stride == (1, 1):
            dgrad = Conv2dDgrad(*settings, size)

            def back(dy: Tensor, w: Tensor, op: Conv2dDgrad = dgrad) -> Tensor:
                return emit(op, dy, graphc.permute_dims(w, (1, 0, 2, 3)))

            yield traced("dgrad", back, (laned, Type((c, k, *taps), layout=first)), (lanes,))
    for dtype, n, c, k, size, taps in NARROW:
        x, w = Type((n, c, *size), dtype, lanes), Type((k, c, *taps), dtype, first)

        def narrow(x: Tensor, w: Tensor) -> Tensor:
            x, w = (graphc.astype(v, "float32") for v in (x, w))
            return emit(Conv2d((1, 1), (0, 0), (1, 1), 1), x, w)

        yield traced(dtype, narrow, (x, w), (lanes,))


def in_order(node: Node, target: Target) -> Node:
    """The node with its order stated."""
    graph = Graph("sums", node.inputs, (), (node,), node.outputs)
    return order_sums(graph, target).nodes[0]


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint32)


@pytest.fixture(scope="module")
def reference() -> list[tuple[list[np.ndarray], np.ndarray]]:
    """Inputs and what the order gives in NumPy, for each node."""
    random, found = np.random.default_rng(0), []
    for node in nodes(16):
        inputs = [
            convert(random.standard_normal(v.type.shape).astype(np.float32), DTYPES[v.type.dtype])
            for v in node.inputs
        ]
        (want,) = in_order(node, Target("cpu", 16)).op.evaluate(*inputs)
        found.append((inputs, want))
    return found


@pytest.mark.parametrize("width", [4, 8, 16])
def test_kernels_add_in_the_order_stated(width: int, reference: list[Any]) -> None:
    target = Target("cpu", width, caches=Caches(4096, 8192) if width == 8 else Caches())
    every = 2 if width > cpu_target().lanes else 1  # such registers take long to compile
    some = slice(every - 1, None, every)
    ordered = [in_order(n, target) for n in list(nodes(width))[some]]
    stated = [m.op.order for n in ordered for m in n.op.body.nodes if m.op.contracts]
    assert set(stated) == {"c,r,s", "k,r,s", "n,p,q", "2*n,p,q"}
    for built, (inputs, want) in zip(build(ordered, target), reference[some], strict=True):
        assert "conv_channels" in built.kernel.source and "PAIRS = false" in built.kernel.source
        (got,) = built.run(inputs)
        np.testing.assert_array_equal(bits(got), bits(want), err_msg=str(built.node.op.body))


def network(x: Any, filters: list[Any]) -> Any:
    """Convolutions of 3 to 16, 32 and 16 channels of odd images."""
    first, second, third = filters
    x = graphc.relu(graphc.conv2d(x, first, padding=1))
    x = graphc.relu(graphc.conv2d(x, second, stride=2, padding=1))
    return graphc.conv2d(x, third)


def with_gradients(x: Any, filters: list[Any], dy: Any) -> Any:
    """The network's output and the gradients of its filters."""

    def loss(filters: list[Any]) -> Any:
        y = network(x, filters)
        return graphc.sum(y * dy), y

    (_, y), gradients = graphc.value_and_grad(loss)(filters)
    return y, *gradients


def data(images: int) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    random = np.random.default_rng(1)
    shapes = [(16, 3, 3, 3), (32, 16, 3, 3), (16, 32, 1, 1)]
    filters = [random.standard_normal(s).astype(np.float32) for s in shapes]
    x, dy = (random.standard_normal((7, *s)).astype(np.float32) for s in ((3, 11, 9), (16, 6, 5)))
    return x[:images], filters, dy[:images]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes wherever they are possible, though these images are too small to gain."""
    monkeypatch.setattr(channels, "ROW_SHARE", 1e-6)


@pytest.mark.parametrize("isa", ["sse2", "avx2", ""])
def test_programs_give_the_bits_of_their_graphs(
    isa: str, always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_ISA", isa)
    x, filters, dy = data(3)
    program = graphc.compile(with_gradients, x, filters, dy, device="cpu")
    assert "conv_channels_gradient" in "".join(k.source for k in program.plan.kernels.values())
    want, _ = evaluate(program.graph, [x, *filters, dy])
    for a, b in zip(program(x, filters, dy), want, strict=True):
        np.testing.assert_array_equal(bits(np.asarray(a)), bits(b))


def test_an_image_has_the_same_bits_in_every_batch(always: None) -> None:
    x, filters, _ = data(7)
    whole = np.asarray(graphc.compile(network, x, filters, device="cpu")(x, filters))
    for images in (1, 2, 3):
        program = graphc.compile(network, x[:images], filters, device="cpu")
        got = np.asarray(program(x[:images], filters))
        np.testing.assert_array_equal(bits(got), bits(whole[:images]))


@pytest.mark.parametrize("precision", ["float32", "winograd"])
def test_no_order_is_stated_where_winograd_may_compute(
    precision: str, always: None, unbuilt: None
) -> None:
    def blocks(x: Any, filters: list[Any]) -> Any:
        for w in filters:
            x = graphc.conv2d(x, w, padding=1)
        return x

    filters = [graphc.spec((16, 16, *taps)) for taps in ((3, 3), (3, 1))]
    program = graphc.compile(
        blocks, graphc.spec((2, 16, 9, 9)), filters, device="cpu", precision=precision
    )
    assert orders(program) == ["" if precision == "winograd" else "c,r,s", "c,r,s"]


@pytest.mark.parametrize("together", [False, True])
def test_no_order_is_stated_where_pairs_are_multiplied(
    together: bool, always: None, unbuilt: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = replace(cpu_target(), multiplies_pairs=together, multiplies_tiles=False)
    monkeypatch.setattr(shared_objects, "cpu_target", lambda: target)
    x, w = graphc.spec((1, 16, 7, 5), "bf16"), graphc.spec((16, 16, 1, 1), "bf16")
    program = graphc.compile(graphc.conv2d, x, w, device="cpu")
    (kernel,) = (k for k in program.plan.kernels.values() if "conv_channels" in k.source)
    assert f"PAIRS = {str(together).lower()}" in kernel.source
    assert orders(program) == ["" if together else "c,r,s"]


def orders(program: Any) -> list[str]:
    """Those that the contractions of a program state."""
    bodies = (n.op.body for n in program.graph.nodes if isinstance(n, KernelNode))
    return [m.op.order for body in bodies for m in body.nodes if m.op.contracts]
