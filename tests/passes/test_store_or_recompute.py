"""What a forward scan stores for its gradient, by what it would cost to compute it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc
from graphc.base.messages import decisions
from graphc.base.target import Target
from graphc.ir import Graph
from graphc.ops.loops.scan import Scan
from graphc.passes.loops.store_or_recompute import store_or_recompute

STEPS, BATCH = 6, 32
CHEAP = ("square", "tanh", "exp")
ONE = "asinh atanh digamma erfc erfcx erfinv exp2 i0e i1e lgamma log2 log10 ndtri sinc".split()
TWO = ("atan2", "fmod", "hypot", "remainder")


def loss(name: str) -> Callable[..., Any]:
    """A scan whose step applies the function to what its carry and its element make."""
    function = getattr(graphc, name)

    def step(h: Any, x: Any) -> Any:
        inner = graphc.sigmoid(h * x) * 0.5 + 0.2
        y = function(inner, h * h + 0.3) if name in TWO else function(inner)
        h = h * 0.5 + graphc.square(y) * x  # whose gradient reads y itself
        return h, h

    return lambda h, x: graphc.sum(graphc.scan(step, h, x)[1])


def scans_that_compute(name: str) -> int:
    """In how many of the two scans of the gradient the op stands."""
    specs = graphc.spec((BATCH,)), graphc.spec((STEPS, BATCH))
    program = graphc.compile(graphc.grad(loss(name)), *specs, device="reference")
    graph: Graph = program.stages["store_or_recompute"]
    bodies = [n.op.body for n in graph.nodes if isinstance(n.op, Scan)]
    assert len(bodies) == 2
    return sum(any(n.op.name == name for n in body.nodes) for body in bodies)


@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_a_costly_function_is_computed_once_and_stored(name: str) -> None:
    assert scans_that_compute(name) == 1


@pytest.mark.parametrize("name", CHEAP)
def test_a_cheap_function_is_computed_again(name: str) -> None:
    assert scans_that_compute(name) == 2


def test_a_scan_of_another_length_is_no_gradient() -> None:
    """Not even where it turns back what another one ends with, and computes something alike."""

    def step(h: Any, x: Any, scale: Any) -> Any:
        return h * 0.5 + graphc.sinc(scale) * x, None

    def function(h: Any, x: Any, scale: Any) -> Any:
        last, _ = graphc.scan(lambda h, x: step(h, x, scale), h, x)
        return graphc.scan(lambda h, x: step(h, x, scale), h[0], last, reverse=True)[0]

    specs = [graphc.spec(s) for s in ((3, BATCH), (STEPS, 3, BATCH), (BATCH,))]
    program = graphc.compile(function, *specs, device="reference")
    graph: Graph = program.stages["store_or_recompute_traced"]
    assert [len(n.op.stacks) for n in graph.nodes if isinstance(n.op, Scan)] == [0, 0]


def test_views_are_not_said_to_be_computed_again() -> None:
    """A gradient turns the weight as the step did."""

    def step(h: Any, x: Any, w: Any) -> Any:
        h = graphc.tanh(h @ graphc.permute_dims(w, (1, 0)) + x)
        return h, h

    def loss(w: Any, h: Any, x: Any) -> Any:
        y = graphc.scan(lambda h, x: step(h, x, w), h, x)[1]
        return graphc.sum(y * y)

    specs = [graphc.spec(s) for s in ((3, 3), (BATCH, 3), (STEPS, BATCH, 3))]
    stages = graphc.compile(graphc.grad(loss), *specs, device="reference").stages
    names = list(stages)
    for name in ("store_or_recompute_traced", "store_or_recompute"):
        with decisions() as told:
            store_or_recompute(stages[names[names.index(name) - 1]], Target("cpu"))
        assert not told
