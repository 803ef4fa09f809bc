"""Functions with gradients of their own: what `grad`, `vmap` and `scan` make of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.ops.custom_gradient import CustomGradient
from tests.functions.tracing import run

DEVICES = ("reference", "cpu")
LINE = r"\(test_custom_vjp\.py:\d+\)"
X = np.array([0.25, -0.5, 0.75], np.float32)
XS = np.stack([X, 2 * X, X - 1])


def scaled(factor: float) -> Callable[..., Any]:
    """exp(x s), whose gradient for x is `factor` times as large as it should be, and 0 for s."""

    def forward(x: Any, s: Any) -> Any:
        y = graphc.exp(x * s)
        return y, {"y": y, "s": s}

    def backward(kept: Any, d: Any) -> Any:
        return factor * d * kept["y"] * kept["s"], None

    return graphc.custom_vjp(forward, backward)


def test_a_gradient_is_what_backward_says() -> None:
    own = scaled(3.0)
    (found,) = run(graphc.grad(lambda x: graphc.sum(own(x, 2.0) * x)), X)
    np.testing.assert_allclose(found, np.exp(2 * X) * (1 + 6 * X), rtol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_a_right_rule_has_the_right_second_gradient(device: str) -> None:
    def twice(f: Callable[..., Any]) -> Callable[..., Any]:
        slope = graphc.grad(lambda x: graphc.sum(f(x, 2.0) * x))
        return graphc.grad(lambda x: graphc.sum(slope(x) ** 2))

    pair = [
        graphc.compile(twice(f), graphc.spec(3), device=device)(X)
        for f in (scaled(1.0), lambda x, s: graphc.exp(x * s))
    ]
    np.testing.assert_allclose(*pair, rtol=1e-4)


def test_each_argument_and_output_has_its_gradient() -> None:
    def forward(pair: Any, n: Any, w: Any, how: Any) -> Any:
        assert how == "up"
        a, b = pair["a"], pair["b"]
        return (a + n, {"both": a * b, "count": n}), [a, w]

    def backward(kept: Any, d: Any, more: Any) -> Any:
        assert more["count"] is None
        a, w = kept
        return {"a": 10 * d, "b": more["both"] * a}, None, graphc.sum(d) * w, None

    own = graphc.custom_vjp(forward, backward)

    def loss(a: Any, b: Any, w: Any) -> Any:
        d, more = own({"a": a, "b": b}, np.int32(2), w, "up")
        return graphc.sum(d * X) + 5 * graphc.sum(more["both"]) + more["count"]

    a, b, w = run(graphc.grad(loss, (0, 1, 2)), X, X + 1, np.float32(4))
    np.testing.assert_allclose(a, 10 * X)
    np.testing.assert_allclose(b, 5 * X)
    np.testing.assert_allclose(w, X.sum() * 4)


@pytest.mark.parametrize("device", [*DEVICES, "sim"])
def test_samples_and_loops_have_the_gradients_of_the_function(device: str) -> None:
    own = scaled(3.0)

    def through_loop(f: Callable[..., Any], x: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            carry = f(graphc.tanh(carry + element), 0.5)
            return carry, carry

        return graphc.sum(graphc.scan(step, 0.0, x)[1])

    def unrolled(f: Callable[..., Any], x: Any) -> Any:
        carry, total = graphc.as_tensor(0.0), graphc.as_tensor(0.0)
        for i in range(3):
            carry = f(graphc.tanh(carry + x[i]), 0.5)
            total = total + carry
        return total

    def losses(xs: Any, of_one: Callable[..., Any]) -> Any:
        return graphc.sum(graphc.vmap(lambda x: of_one(own, x))(xs))

    def each(xs: Any) -> Any:
        return (
            graphc.grad(losses)(xs, through_loop),
            graphc.vmap(graphc.grad(lambda x: unrolled(own, x)))(xs),
            graphc.stack([graphc.grad(lambda x: unrolled(own, x))(xs[i]) for i in range(3)]),
        )

    first, second, third = graphc.compile(each, graphc.spec((3, 3)), device=device)(XS)
    np.testing.assert_allclose(first, third, rtol=1e-5)
    np.testing.assert_allclose(second, third, rtol=1e-5)
    assert not np.allclose(
        third,
        run(graphc.vmap(graphc.grad(lambda x: unrolled(lambda a, s: graphc.exp(a * s), x))), XS)[0],
        rtol=1e-2,
    )


def test_an_argument_that_samples_share_gets_the_sum_of_their_gradients() -> None:
    own = graphc.custom_vjp(lambda w, x: (w * x, x), lambda x, d: (7 * d * x, d))

    def loss(w: Any, x: Any) -> Any:
        return graphc.sum(graphc.vmap(own, in_axes=(None, 0))(w, x))

    w, x = run(graphc.grad(loss, (0, 1)), np.float32(2), X)
    np.testing.assert_allclose(w, 7 * X.sum(), rtol=1e-6)
    np.testing.assert_allclose(x, np.ones(3))


class Ternary(nn.Module):
    """A layer of weights that are rounded, with the gradient of those that are not."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(np.array([0.75, -0.25], np.float32))
        self.rounded = graphc.custom_vjp(lambda w: (graphc.round(w), None), lambda _, d: (d,))

    def forward(self, x: Any) -> Any:
        return graphc.sum(self.rounded(self.weight) * x)


@pytest.mark.parametrize("device", DEVICES)
def test_a_module_trains_through_its_rule(device: str) -> None:
    model, x = Ternary(), np.array([3, 5], np.float32)
    step = graphc.compile(
        model, graphc.spec(2), update=optim.SGD(lr=0.5), device=device, disable=["clean"]
    )
    assert step(x) == 3  # the weights are used as 1 and 0
    np.testing.assert_allclose(model.weight.numpy(), [0.75 - 1.5, -0.25 - 2.5])


def test_a_program_without_gradients_has_no_mark() -> None:
    own = scaled(3.0)
    program = graphc.compile(lambda x: own(x, 2.0), graphc.spec(3), device="reference")
    assert "custom_gradient" in str(program.stages["trace"])
    assert all("custom_gradient" not in str(g) for g in list(program.stages.values())[1:])
    np.testing.assert_allclose(program(X), np.exp(2 * X), rtol=1e-6)


def test_a_trace_is_written_and_parsed() -> None:
    own = scaled(3.0)
    graph = graphc.trace(graphc.grad(lambda x: graphc.sum(own(x, 2.0))), graphc.spec(3))
    assert graphc.text.parse(str(graph)) == graph


def test_rules_that_differ_are_programs_that_differ() -> None:
    for factor in (2.0, 5.0):
        model = Ternary()
        rule = lambda _, d, factor=factor: (factor * d,)  # noqa: E731
        model.rounded = graphc.custom_vjp(lambda w: (graphc.round(w), None), rule)
        step = graphc.compile(model, graphc.spec(2), update=optim.SGD(lr=1.0))
        step(np.ones(2, np.float32))
        np.testing.assert_allclose(model.weight.numpy(), [0.75 - factor, -0.25 - factor])


def test_rows_are_padded_and_the_meaning_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_CHECK", "meaning")
    own = scaled(3.0)
    program = graphc.compile(
        lambda x: own(x, 2.0), graphc.spec(("batch", 3)), batch=graphc.Buckets(4)
    )
    np.testing.assert_allclose(program(XS), np.exp(2 * XS), rtol=1e-6)
    assert "batch=3: padded to batch=4" in str(program.explain("batch"))


def test_random_numbers_in_a_rule_are_drawn_at_each_call() -> None:
    def backward(_: Any, d: Any) -> Any:
        return (d * graphc.rand(d.shape),)

    own = graphc.custom_vjp(lambda x: (x, None), backward)
    program = graphc.compile(
        graphc.grad(lambda x: graphc.sum(own(x))), graphc.spec(3), device="reference", seed=0
    )
    assert not np.array_equal(program(X), program(X))


def keeps(x: Any) -> Any:
    return x, None


def _used(backward: Callable[..., Any], forward: Callable[..., Any] = keeps) -> Any:
    return lambda x: graphc.custom_vjp(forward, backward)(x)


def _reads_outside(x: Any) -> Any:
    own = graphc.custom_vjp(lambda a: (a * x, None), lambda _, d: (d,))
    return graphc.grad(
        lambda w: graphc.sum(graphc.custom_vjp(lambda a: (a * w, None), lambda _, d: (d,))(x))
    )(x) + own(x)


def _updates(x: Any) -> Any:
    norm = nn.BatchNorm1d(3)
    return graphc.custom_vjp(keeps, lambda _, d: (norm(d),))(graphc.expand_dims(x, 0))


PLACE = r"in test_custom_vjp\.py:\d+"
# fmt: off
MESSAGES: list[tuple[Callable[..., Any], str]] = [
    (lambda x: graphc.custom_vjp(keeps, None),  # type: ignore[arg-type]
     "custom_vjp: expected backward to be a function, got None"),
    (_used(lambda _, d: (d,), lambda x: x),
     "custom_vjp: forward <lambda> PLACE: expected (outputs, residuals), got Tensor"),
    (_used(lambda _, d: (d, d)),
     "custom_vjp: backward <lambda> PLACE: expected a tuple of 1 gradients, one for each argument, "
     "got tuple of 2"),
    (_used(lambda _, d: d),
     "custom_vjp: backward <lambda> PLACE: expected a tuple of 1 gradients, one for each argument, "
     "got Tensor"),
    (_used(lambda _, d: (d[:2],)),
     "custom_vjp: backward <lambda> PLACE: gradient 0: expected f32[3], got f32[2]"),
    (_used(lambda _, d: (graphc.astype(d, "float64"),)),
     "custom_vjp: backward <lambda> PLACE: gradient 0: expected f32[3], got f64[3]"),
    (lambda x: graphc.custom_vjp(lambda p: (p["a"], None), lambda _, d: ({"b": d},))({"a": x}),
     "custom_vjp: backward <lambda> PLACE: gradient 0: 'a' is missing"),
    (lambda x: graphc.custom_vjp(lambda p: (p[0], None), lambda _, d: (d,))([x, x]),
     "custom_vjp: backward <lambda> PLACE: gradient 0: expected list of 2 or None, got Tensor"),
    (lambda x: graphc.custom_vjp(lambda a, n: (a, None), lambda _, d: (d, d))(x, 3),
     "custom_vjp: backward <lambda> PLACE: gradient 1: expected None for 3"),
    (_used(lambda _, d: (graphc.show(d, "d"),)),
     "custom_vjp: backward <lambda> PLACE: show and tap do not reach into a gradient's rule"),
    (lambda x: graphc.custom_vjp(keeps, lambda _, d: (d,))(nn.Linear(3, 3)),
     "custom_vjp: argument 0 is a module: pass the parameters that have gradients"),
    (_reads_outside,
     "custom_vjp: forward reads %x.1 : f32[3] from outside, and backward gives no gradient of it: "
     "make it an argument, or read its stop_gradient"),
    (_updates,
     "custom_vjp: expected backward to have no side effects, got an update of state"),
]
# fmt: on


def test_a_mark_fits_its_rule() -> None:
    body = graphc.trace(lambda d: 2 * d, graphc.spec(3))
    mark, three, two = CustomGradient(body, 0, 1), graphc.spec(3), graphc.spec(2)
    assert mark.infer(three, three) == (three,)
    message = "custom_gradient: its body takes f32[3], expected f32[2]"
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        mark.infer(three, two)
    message = "custom_gradient: its body returns f32[3], expected f32[2]"
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        mark.infer(two, three)


@pytest.mark.parametrize(("fn", "message"), MESSAGES, ids=[m for _, m in MESSAGES])
def test_a_mistake_is_named_with_its_line(fn: Callable[..., Any], message: str) -> None:
    pattern = re.escape(message).replace("PLACE", PLACE)
    with pytest.raises(GraphError, match=f"^{pattern} {LINE}$"):
        graphc.trace(fn, graphc.spec(3), training=True)
