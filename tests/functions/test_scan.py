"""scan: what it computes, what it accepts, its gradient."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.base.errors import GraphError
from tests.nn.running import random


def run(fn: Any, *arrays: Any, **options: Any) -> Any:
    specs = (graphc.spec(a.shape, a.dtype) for a in arrays)
    return graphc.compile(fn, *specs, device="reference", **options)(*arrays)


def test_scan_carries_a_tree_and_stacks_another() -> None:
    def fn(x: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            total, (count,) = carry["total"] + element, carry["more"]
            return {"total": total, "more": [count + 1]}, (total, {"last": element})

        init = {"total": graphc.zeros(3), "more": [graphc.zeros((), "i32")]}
        return graphc.scan(step, init, x)

    x = random(5, 3)
    carry, (totals, elements) = run(fn, x)
    np.testing.assert_allclose(totals, np.cumsum(x, 0), rtol=1e-6)
    assert (carry["total"] == totals[-1]).all()
    assert carry["more"][0] == 5
    assert (elements["last"] == x).all()


def test_reverse_begins_at_the_end_and_stacks_in_order() -> None:
    def fn(x: Any) -> Any:
        return graphc.scan(lambda c, e: (c + e, c + e), graphc.zeros(3), x, reverse=True)

    x = random(5, 3)
    last, totals = run(fn, x)
    np.testing.assert_allclose(totals, np.cumsum(x[::-1], 0)[::-1], rtol=1e-6)
    assert (last == totals[0]).all()


def test_scan_without_xs_or_results_takes_a_length() -> None:
    last, nothing = run(lambda x: graphc.scan(lambda c, _: (c * 2, None), x, length=4), random(3))
    np.testing.assert_allclose(last, 16 * random(3))
    assert nothing is None


@pytest.mark.parametrize("count", [0, 1])
def test_no_iteration_and_one(count: int) -> None:
    def fn(x: Any) -> Any:
        return graphc.scan(lambda c, e: (c + e, c * e), graphc.ones(3), x)

    x = random(count, 3)
    last, stack = run(fn, x)
    np.testing.assert_allclose(last, 1 + x.sum(0))
    assert stack.shape == (count, 3)


def test_scans_nest_and_read_what_is_around_them() -> None:
    layer = nn.Linear(3, 3)

    def fn(layer: Any, x: Any, scale: Any) -> Any:
        def outer(carry: Any, rows: Any) -> Any:
            def inner(carry: Any, row: Any) -> Any:
                return graphc.tanh(layer(carry) + row * scale), None

            carry, _ = graphc.scan(inner, carry, rows)
            return carry, carry

        return graphc.scan(outer, graphc.zeros(3), x)[1]

    x, scale = random(4, 2, 3), random(3, seed=1)
    specs = graphc.spec(x.shape), graphc.spec(scale.shape)
    got = graphc.compile(fn, layer, *specs, device="reference")(x, scale)
    weight, bias = (layer.state_dict()[name] for name in ("weight", "bias"))
    carry, wanted = np.zeros(3, np.float32), []
    for rows in x:
        for row in rows:
            carry = np.tanh(weight @ carry + bias + row * scale)
        wanted.append(carry)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_the_gradient_of_nested_scans_is_that_of_the_unrolled_loops() -> None:
    def step(carry: Any, row: Any, w: Any) -> Any:
        return graphc.tanh(graphc.matmul(carry, w) + row)

    def scanned(w: Any, x: Any, start: Any) -> Any:
        def outer(carry: Any, rows: Any) -> Any:
            carry, ys = graphc.scan(lambda c, r: (step(c, r, w), graphc.sin(c)), carry, rows)
            return carry, graphc.sum(ys)

        last, sums = graphc.scan(outer, start, x, reverse=True)
        return graphc.sum(sums) + graphc.sum(last * last)

    def unrolled(w: Any, x: Any, start: Any) -> Any:
        carry, total = start, 0.0
        for i in reversed(range(3)):
            for j in range(2):
                total = total + graphc.sum(graphc.sin(carry))
                carry = step(carry, x[i, j], w)
        return total + graphc.sum(carry * carry)

    arrays = random(4, 4), random(3, 2, 5, 4, seed=1), random(5, 4, seed=2)
    for a, b in zip(
        run(graphc.grad(scanned, (0, 1, 2)), *arrays),
        run(graphc.grad(unrolled, (0, 1, 2)), *arrays),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, atol=2e-5)


def test_every_iteration_draws_its_own_numbers() -> None:
    def fn(x: Any) -> Any:
        return graphc.scan(lambda c, e: (c, graphc.dropout(e, 0.5)), graphc.zeros(()), x)[1]

    x = np.ones((6, 50), np.float32)
    program = graphc.compile(fn, graphc.spec(x.shape), device="reference", training=True)
    first, second = program(x), program(x)
    assert len({row.tobytes() for row in (*first, *second)}) == 12


# fmt: off
MISTAKES = [
    (lambda x: graphc.scan(lambda c, e: c, x[0], x),
     "scan: expected the function to return (carry, y), got Tensor"),
    (lambda x: graphc.scan(lambda c, e: (c, c, c), x[0], x),
     "scan: expected the function to return (carry, y), got tuple of 3"),
    (lambda x: graphc.scan(lambda c, e: ((c, c), c), x[0], x),
     "scan: the carry begins as *, the function returns ('*', '*')"),
    (lambda x: graphc.scan(lambda c, e: (e + x, None), x[0], x),
     "scan: the carry begins as f32[3], the function returns f32[4,3]"),
    (lambda x: graphc.scan(lambda c, e: (c, None), x, (x, x[1:])),
     "scan: expected one number of iterations, got xs at 0 4, xs at 1 3"),
    (lambda x: graphc.scan(lambda c, e: (c, None), x, x, length=3),
     "scan: expected one number of iterations, got xs 4, length 3"),
    (lambda x: graphc.scan(lambda c, e: (c, None), x),
     "scan: expected xs, or length=, got neither"),
    (lambda x: graphc.scan(lambda c, e: (c, None), x, x[0, 0]),
     "scan: xs is a scalar, expected a first axis to scan"),
    (lambda x: graphc.scan(lambda c, e: (c, None), x, length=-1),
     "scan: length expected a number of iterations, got -1"),
]
# fmt: on


@pytest.mark.parametrize(("fn", "message"), MISTAKES)
def test_mistakes_are_named(fn: Any, message: str) -> None:
    with pytest.raises(GraphError, match=rf"^{re.escape(message)} \(test_scan.py:\d+\)$"):
        graphc.trace(fn, graphc.spec((4, 3)))


@pytest.mark.parametrize("made_of", [lambda t: t * 2, lambda t: t])
def test_a_tensor_of_the_body_stays_in_it(made_of: Any) -> None:
    kept = []

    def fn(x: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            kept.append(carry + element)
            return kept[-1], None

        graphc.scan(step, x[0], x)
        return made_of(kept[0])

    said = r"^%add : f32\[3\] belongs to another function: what a .*\(test_scan.py:\d+\)$"
    with pytest.raises(GraphError, match=said):
        graphc.trace(fn, graphc.spec((4, 3)))


def test_a_length_may_be_an_integer_of_numpy() -> None:
    fn = lambda x: graphc.scan(lambda c, _: (c, c), x, length=np.int64(3))[1]  # noqa: E731
    graph = graphc.trace(fn, graphc.spec((4,)))
    assert graph.outputs[0].type.shape == (3, 4)


def _descent(steps: Any) -> Any:
    """Steps of gradient descent within a loop, and the gradient of what they lead to."""

    def final(x: Any, w: Any) -> Any:
        def step(w: Any, rows: Any) -> Any:
            loss = lambda w: graphc.mean(graphc.square(graphc.tanh(rows @ w) - 1.0))  # noqa: E731
            value, slope = graphc.value_and_grad(loss)(w)
            return w - 0.1 * slope, value

        w, values = steps(step, w, x)
        return graphc.sum(w * w) + graphc.sum(values)

    return _flat_gradient(final)


def _flat_gradient(fn: Any) -> Any:
    def both(x: Any, w: Any) -> Any:
        value, slopes = graphc.value_and_grad(fn, (0, 1))(x, w)
        return value, *slopes

    return both


def _loop(step: Any, w: Any, x: Any) -> Any:
    values = []
    for rows in (x[t] for t in range(x.shape[0])):
        w, value = step(w, rows)
        values.append(value)
    return w, graphc.stack(values)


def test_a_gradient_is_taken_inside_a_body_and_through_it() -> None:
    x, w = random(4, 5, 3), random(3, 3)
    got, expected = (run(_descent(steps), x, w) for steps in (graphc.scan, _loop))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_gradient_of_a_gradient_passes_through_scans() -> None:
    def curvature(steps: Any) -> Any:
        def loss(x: Any, w: Any) -> Any:
            return steps(lambda h, e: ((n := graphc.tanh(h @ w + e)), n), x[0], x)[0].sum()

        def length(x: Any, w: Any) -> Any:
            return graphc.sum(graphc.square(graphc.value_and_grad(loss, 1)(x, w)[1]))

        return _flat_gradient(length)

    x, w = random(4, 5, 3), random(3, 3)
    got, expected = (run(curvature(steps), x, w) for steps in (graphc.scan, _loop))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_a_carry_that_no_iteration_reads_is_the_last_of_the_new_ones() -> None:
    x = random(4, 3)
    last, _ = run(lambda x: graphc.scan(lambda _, e: (e * 2, e), graphc.zeros(3), x), x)
    np.testing.assert_array_equal(last, x[-1] * 2)


def test_samples_differ_in_a_carry_that_only_reads_another() -> None:
    """One whose first value is the samples' own only an iteration later."""

    def fn(x: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            first, second, third = carry
            return (second, third, third + x * element), first

        zeros = (graphc.zeros(3),) * 3
        return graphc.scan(step, zeros, graphc.ones((5, 3)))

    x = random(2, 3)
    (first, *others), stack = run(graphc.vmap(fn), x)
    for i, row in enumerate(x):
        (one, *rest), own = run(fn, row)
        for a, b in zip((first, *others, stack), (one, *rest, own), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-6)


def test_what_was_computed_before_a_gradient_counts_as_a_constant() -> None:
    def fn(x: Any) -> Any:
        before = graphc.square(x)
        return graphc.grad(lambda x: graphc.sum(before * x))(x)

    x = random(3)
    np.testing.assert_array_equal(run(fn, x), x * x)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_gradient_inside_a_body_reaches_what_was_captured(depth: int) -> None:
    def fn(w: Any, x: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            found = graphc.grad(lambda v: graphc.sum(v * v * element))(w)
            return carry + found, found

        def outer(carry: Any, elements: Any) -> Any:
            return graphc.scan(step, carry, elements)

        return graphc.scan(step if depth == 1 else outer, graphc.zeros(3), x)

    w, x = random(3), random(*(2, 4)[:depth], 3)
    total, each = run(fn, w, x)
    np.testing.assert_allclose(each, 2 * w * x, rtol=1e-6)
    np.testing.assert_allclose(total, (2 * w * x).reshape(-1, 3).sum(0), rtol=1e-5)


def test_a_gradient_inside_a_body_reaches_parameters_and_a_loss_from_outside() -> None:
    layer = nn.Linear(3, 1)

    def fn(x: Any, loss: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            found = graphc.grad(lambda m: graphc.sum(m(element)))(layer)
            return carry, (found["weight"], graphc.grad(lambda v: v)(loss))

        return graphc.scan(step, graphc.zeros(()), x)[1]

    x = random(4, 3)
    weights, ones = run(fn, x, np.float32(2))
    np.testing.assert_allclose(weights, x[:, None, :], rtol=1e-6)
    assert (ones == 1).all()


def test_a_carry_of_integers_has_no_gradient() -> None:
    def fn(x: Any) -> Any:
        def step(carry: Any, e: Any) -> Any:
            count, total = carry
            return (count + 1, total * e + graphc.astype(count, "f32")), total

        start = (graphc.full((), 1, "i32"), graphc.full((), 1.0))
        return graphc.sum(graphc.scan(step, start, x)[0][1])

    x = np.asarray([2.0, 3.0, 5.0], np.float32)
    # total = ((1 * a + 1) * b + 2) * c + 3
    np.testing.assert_allclose(run(graphc.grad(fn), x), [15.0, 15.0, 11.0])
