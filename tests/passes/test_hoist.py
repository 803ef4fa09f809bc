"""What leaves a loop takes along what it is made of, and leaves behind what others read."""

from __future__ import annotations

from typing import Any

import pytest

import graphc
from graphc.ops.loops.scan import Scan
from graphc.passes.loops.hoist import hoist
from tests.passes.meaning import CPU, assert_same_meaning, ops


def test_a_product_of_elements_and_a_constant_of_the_body_leaves_the_loop() -> None:
    def fn(x: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            return graphc.tanh(carry + element @ graphc.full((3, 2), 0.5)), None

        return graphc.scan(step, graphc.zeros((5, 2)), x)[0]

    before = graphc.trace(fn, graphc.spec((4, 5, 3)))
    after = hoist(before, CPU)
    assert_same_meaning(before, after, tolerance=1e-6)
    (loop,) = [n.op.body for n in after.nodes if isinstance(n.op, Scan)]
    assert ops(loop) == ["add", "tanh"]


def test_a_view_that_is_also_read_by_what_stays_does_so_too() -> None:
    """The product leaves the loop, and reads the view's stack; the exponential of it stays."""

    def fn(x: Any, w: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            carry = graphc.tanh(carry + element)
            turned = graphc.matrix_transpose(carry)
            return carry, (turned @ w, graphc.exp(turned))

        return graphc.scan(step, x[0], x)

    before = graphc.trace(fn, graphc.spec((4, 3, 3)), graphc.spec((3, 5)))
    after = hoist(before, CPU)
    assert_same_meaning(before, after, tolerance=1e-6)
    (loop,) = [n.op.body for n in after.nodes if isinstance(n.op, Scan)]
    assert ops(loop) == ["add", "tanh", "permute_dims", "exp"]


def test_a_carry_may_be_what_is_computed_before_the_loop() -> None:
    def fn(h: Any, xs: Any, w: Any) -> Any:
        return graphc.scan(lambda h, x: (x @ w, graphc.exp(h)), h, xs)

    before = graphc.trace(fn, *(graphc.spec(s) for s in ((3, 5), (4, 3, 2), (2, 5))))
    after = hoist(before, CPU)
    assert_same_meaning(before, after, tolerance=1e-5)
    (loop,) = [n.op.body for n in after.nodes if isinstance(n.op, Scan)]
    assert ops(loop) == ["exp"]


def test_sums_side_by_side_leave_the_loop_as_sums_over_time() -> None:
    """As the gradient of a parameter is, of which each gate reads a part."""

    def fn(x: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            h, total = carry
            h = graphc.tanh(h + element)
            sums = [graphc.sum(h * h, axis=0), graphc.sum(h * element, axis=0)]
            return (h, total + graphc.concat(sums)), None

        return graphc.scan(step, (x[0], graphc.zeros(6)), x)[0]

    before = graphc.trace(fn, graphc.spec((4, 5, 3)))
    after = hoist(before, CPU)
    assert_same_meaning(before, after, tolerance=1e-5)
    (loop,) = [n.op.body for n in after.nodes if isinstance(n.op, Scan)]
    assert ops(loop) == ["add", "tanh", "multiply", "multiply"]


SHAPES = (3, 4), (5, 3, 2), (5, 3, 1), (7, 4)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("order", "products"), [("xhy", 1), ("xyh", 1), ("hxy", 1), ("xh", 1), ("hhx", 1), ("hxh", 2)]
)
def test_a_product_of_a_concat_leaves_the_loop_but_for_the_carry(
    order: str, products: int, turned: bool
) -> None:
    """What is multiplied may be either operand; neighbours that both stay are one product."""

    def fn(h: Any, x: Any, y: Any, w: Any) -> Any:
        def step(h: Any, elements: Any) -> Any:
            parts = dict(zip("xyh", (*elements, h), strict=True))
            joined = graphc.concat([parts[name] for name in order], axis=1)
            weight = graphc.concat([w] * 2)[: joined.shape[1]]
            if turned:
                z = graphc.matrix_transpose(
                    graphc.matrix_transpose(weight)
                    @ graphc.concat([graphc.matrix_transpose(parts[name]) for name in order])
                )
            else:
                z = joined @ weight
            return graphc.tanh(z), None

        return graphc.scan(step, h, (x, y))[0]

    before = graphc.trace(fn, *map(graphc.spec, SHAPES))
    after = hoist(before, CPU)
    assert_same_meaning(before, after, tolerance=1e-5)
    (loop,) = [n.op.body for n in after.nodes if isinstance(n.op, Scan)]
    inside = [n for n in loop.nodes if n.op.name == "matmul"]
    assert len(inside) == products


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_concats_that_each_would_round_stay(dtype: str) -> None:
    def fn(h: Any, x: Any, w: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            return graphc.tanh(graphc.concat([x, h], axis=1) @ w), None

        return graphc.scan(step, h, x)[0]

    specs = (graphc.spec(s, dtype) for s in ((3, 4), (5, 3, 2), (6, 4)))
    after = hoist(graphc.trace(fn, *specs), CPU)
    (loop,) = [n.op.body for n in after.nodes if isinstance(n.op, Scan)]
    assert ops(loop) == ["concat", "matmul", "tanh"]


def test_products_of_weights_that_change_stay_whole() -> None:
    def fn(h: Any, x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            joined = graphc.concat([x, h], axis=1)
            return joined @ (graphc.matrix_transpose(joined) @ joined)[:, :4], None

        return graphc.scan(step, h, x)[0]

    before = graphc.trace(fn, graphc.spec((3, 4)), graphc.spec((5, 3, 2)))
    after = hoist(before, CPU)
    assert_same_meaning(before, after, tolerance=1e-4)
    (loop,) = [n.op.body for n in after.nodes if isinstance(n.op, Scan)]
    assert ops(loop).count("matmul") == 2


@pytest.mark.parametrize(("groups", "inside"), [(1, [(3, 4, 6, 6)]), (2, [(3, 8, 6, 6)])])
def test_a_convolution_of_a_concat_is_one_of_the_state(groups: int, inside: list[Any]) -> None:
    """As of a convolutional LSTM; not where groups of channels are apart."""

    def fn(h: Any, x: Any, w: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            joined = graphc.concat([x, h], axis=1)
            return graphc.tanh(graphc.conv2d(joined, w, None, 1, 1, groups=groups)), None

        return graphc.scan(step, h, x)[0]

    shapes = (3, 4, 6, 6), (5, 3, 4, 6, 6), (4, 8 // groups, 3, 3)
    before = graphc.trace(fn, *map(graphc.spec, shapes))
    after = hoist(before, CPU)
    assert_same_meaning(before, after, tolerance=1e-5)
    (loop,) = [n.op.body for n in after.nodes if isinstance(n.op, Scan)]
    assert [n.inputs[0].type.shape for n in loop.nodes if n.op.name == "conv2d"] == inside
