"""Lanes along one axis that are wanted along another, or that a reshape carries along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import Tensor
from graphc.ir import Graph, Value
from graphc.ir.interpret import evaluate
from graphc.ir.sum_order import LANES
from graphc.ops.fused import Fused
from graphc.ops.loops.scan import Scan

W = LANES
"""Samples that fill the lanes, whatever the width of registers."""


def laid_out(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Graph:
    """The graph after the pass; the program has computed what the traced graph means."""
    program = graphc.compile(function, *(graphc.spec(s) for s in shapes), device="cpu")
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(s).astype(np.float32) for s in shapes]
    (wanted,), _ = evaluate(program.stages["trace"], arrays)
    np.testing.assert_allclose(program(*arrays), wanted, rtol=1e-5, atol=1e-5)
    return program.stages["layout"]


def axis_of(value: Value) -> int | None:
    return value.type.layout.axis


def test_a_stack_begins_another_scan_with_lanes_along_its_first_axis() -> None:
    """As long as the batch is large, the stack is a batch of states; its own lanes are the second
    axis, those of a carry the first."""

    def function(x: Tensor, e: Tensor) -> Tensor:
        def step(h: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            h = graphc.tanh(h + v)
            return h, h

        _, stack = graphc.scan(step, graphc.zeros((W, 6)), x)
        return graphc.scan(lambda c, v: (graphc.tanh(c * v), None), stack, e)[0]

    graph = laid_out(function, (W, W, 6), (3, W, W, 6))
    first, second = (n for n in graph.nodes if isinstance(n.op, Scan))
    assert [axis_of(v) for v in first.outputs] == [0, 1]
    assert axis_of(second.inputs[0]) == 0


def test_a_body_that_turns_its_carry_gives_it_back_with_its_own_lanes() -> None:
    def function(x: Tensor, first: Tensor) -> Tensor:
        def step(c: Tensor, v: Tensor) -> tuple[Tensor, None]:
            return graphc.tanh(graphc.permute_dims(c, (1, 0, 2)) + v), None

        return graphc.scan(step, first, x)[0]

    graph = laid_out(function, (3, W, W, 5), (W, W, 5))
    (loop,) = (n.op for n in graph.nodes if isinstance(n.op, Scan))
    assert [axis_of(v) for v in (*loop.body.inputs, *loop.body.outputs)] == [0, 0, 0]


def convolved(x: Tensor, w: Tensor) -> Tensor:
    return graphc.relu(graphc.conv2d(x, w, padding=1))


RESHAPES = {
    "the batch stays": ((W, 3, 4, 4), (W, 32), 0),
    "a batch with a rest stays": ((W - W // 4, 3, 4, 4), (W - W // 4, 32), 0),
    "an axis of one comes before the batch": ((W, 3, 4, 4), (1, W, 32), 1),
    "the batch is cut into whole registers": ((4 * W, 3, 4, 4), (2, 2 * W, 32), 1),
    "the batch is cut into parts of registers": ((2 * W, 3, 4, 4), (4, W // 2, 32), None),
}


@pytest.mark.parametrize("name", RESHAPES)
def test_a_reshape_keeps_lanes_only_where_their_rows_stay(name: str) -> None:
    shape, to, axis = RESHAPES[name]

    def function(x: Tensor, w: Tensor) -> Tensor:
        return graphc.tanh(graphc.reshape(convolved(x, w), to)) * 2.0

    graph = laid_out(function, shape, (2, 3, 3, 3))
    assert [axis_of(n.output) for n in graph.nodes if n.op.name == "reshape"] == [axis]


def test_a_stack_of_batches_with_a_rest_is_no_matrix_of_full_registers() -> None:
    """Four batches of three quarters of a register are three registers' rows, yet each batch lies
    in a register of its own."""
    batch = W - W // 4

    def function(x: Tensor, w: Tensor, e: Tensor) -> Tensor:
        def step(h: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            h = graphc.tanh(h + v)
            return h, h

        _, stack = graphc.scan(step, graphc.reshape(convolved(x, w), (batch, 32)), e)
        return graphc.exp(graphc.reshape(stack, (4 * batch, 32)))

    graph = laid_out(function, (batch, 3, 4, 4), (2, 3, 3, 3), (4, batch, 32))
    (loop,) = (n for n in graph.nodes if isinstance(n.op, Scan))
    assert axis_of(loop.outputs[-1]) == 1
    matrices = [n for n in graph.nodes if n.op.name == "reshape" and n.inputs[0].type.rank == 3]
    assert [axis_of(n.output) for n in matrices] == [None]


def test_all_pairs_of_a_batch_have_no_lanes() -> None:
    """The turned column lies along the axis that a batch broadcasts along: whoever reads it needs
    all samples at once."""

    def function(x: Tensor, first: Tensor) -> Tensor:
        def step(c: Tensor, v: Tensor) -> tuple[Tensor, None]:
            column = c[:, :1]
            apart = graphc.abs(column - graphc.permute_dims(column, (1, 0)))
            return graphc.tanh(c + v + graphc.mean(apart, axis=1, keepdims=True)), None

        return graphc.scan(step, first, x)[0]

    graph = laid_out(function, (3, W, 6), (W, 6))
    (loop,) = (n.op for n in graph.nodes if isinstance(n.op, Scan))
    pairs, tanh = (n for n in loop.body.nodes if isinstance(n.op, Fused))
    assert [axis_of(v) for v in (*pairs.inputs, *pairs.outputs)] == [None, None]
    assert axis_of(tanh.output) == 0


def test_a_product_of_what_has_no_batch_beside_a_batch_along_another_axis_is_row_major() -> None:
    """The gradient of some images is that of a convolution, whose images have lost the batch, and
    of images with the batch along the channels."""

    def loss(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        some = graphc.conv2d(x, w, None, 1, 1)[: W - 1]
        turned = graphc.permute_dims(x, (1, 0, 2, 3))
        return graphc.mean(turned * y) + graphc.mean(graphc.square(some))

    images = (W, W, 4, 4)
    graph = laid_out(graphc.grad(loss), images, images, (3, W, 3, 3))
    assert axis_of(graph.outputs[0]) is None


@pytest.mark.parametrize("derive", [False, True])
def test_images_behind_products_of_each_sample_have_lanes_in_the_convolution(derive: bool) -> None:
    """A product of each image with a matrix is row-major; what is convolved behind it is not."""

    def function(x: Tensor, m: Tensor, w: Tensor) -> Tensor:
        def total(x: Tensor) -> Tensor:
            return graphc.sum(graphc.tanh(convolved(m @ x @ m.T, w) / 16) ** 2)

        return graphc.grad(total)(x) if derive else convolved(m @ x @ m.T, w)

    graph = laid_out(function, (W, 1, 4, 4), (8, 4), (2, 1, 3, 3))
    kernels = [n for n in graph.nodes if isinstance(n.op, Fused)]
    convolutions = [k for k in kernels if any(n.op.name == "conv2d" for n in k.op.body.nodes)]
    assert [axis_of(v) for k in convolutions for v in (k.inputs[0], *k.outputs)][:2] == [0, 0]
    assert any(k not in convolutions and axis_of(k.output) is None for k in kernels)
