"""A bug in a stage of the compiler is said with the stage, the node and the user's line."""

from __future__ import annotations

import re
from typing import Any

import pytest

import graphc
from graphc.base.errors import BUGS, GraphError, PlanError
from graphc.base.target import Target
from graphc.ir import Graph
from graphc.ir.failures import stage
from graphc.passes.rewriting.runner import run_passes

END = "; device='reference' computes the program without kernels"


def fail(*_: Any, **__: Any) -> Any:
    raise AssertionError("a view mixes\n  divided indices")


def relu_graph() -> Graph:
    return graphc.trace(lambda x: graphc.relu(x), graphc.spec((3,)))


def test_a_pass_names_the_node_in_its_hands() -> None:
    def rewrite(graph: Graph, target: Target) -> Graph:
        for node in graph.nodes:
            fail(node)
        return graph

    message = (
        r"rewrite: graphc failed at %relu = relu \(test_failures\.py:\d+\) by a bug of its own: "
        rf"AssertionError: a view mixes divided indices{END}\nin pass rewrite"
    )
    with pytest.raises(PlanError, match=f"^{message}$") as caught:
        run_passes(relu_graph(), Target(), [("rewrite", rewrite)], lambda *_: None)
    assert isinstance(caught.value.__cause__, AssertionError)


@pytest.mark.parametrize(
    ("place", "name", "said", "node"),
    [
        ("graphc.kernels.lower", "lower", "lower", True),
        ("graphc.runtime.planner.planner", "make_plan", "plan", False),
        ("graphc.runtime.cpu.executable", "load", "load", False),
    ],
)
def test_lowering_planning_and_loading_name_themselves(
    place: str, name: str, said: str, node: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{place}.{name}", fail)
    at = r" at %relu = relu \(test_failures\.py:\d+\)" if node else ""
    message = (
        rf"{said}: graphc failed{at} by a bug of its own: "
        rf"AssertionError: a view mixes divided indices{END}"
    )
    with pytest.raises(PlanError, match=f"^{message}$"):
        graphc.compile(lambda x: graphc.relu(x), graphc.spec((3,)), device="cpu")


def test_a_gradient_of_graphc_that_fails_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.ops.pointwise.elementary.Relu.grad", fail)
    message = (
        r"differentiate: graphc failed at %relu = relu \(test_failures\.py:\d+\) by a bug of its "
        rf"own: AssertionError: a view mixes divided indices{END}"
    )
    layer = graphc.nn.Linear(2, 2)
    with pytest.raises(PlanError, match=f"^{message}$"):
        graphc.compile(
            lambda layer, x: graphc.sum(graphc.relu(layer(x))),
            layer,
            graphc.spec((3, 2)),
            update=graphc.optim.SGD(lr=0.1),
            device="reference",
        )


@pytest.mark.parametrize("bug", BUGS)
def test_every_kind_of_bug_is_a_plan_error(bug: type[Exception]) -> None:
    message = f"plan: graphc failed by a bug of its own: {bug.__name__}{END}"
    with pytest.raises(PlanError, match=f"^{re.escape(message)}$"), stage("plan"):
        raise bug


def test_what_graphc_means_to_raise_and_what_the_system_does_pass_a_stage() -> None:
    for error in (GraphError("a"), MemoryError("b"), OSError("c"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, stage("plan"):
            raise error
        assert caught.value is error
