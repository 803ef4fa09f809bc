"""Recompute repeats cheap forward nodes for the backward pass, and stores the less."""

from __future__ import annotations

from typing import Any

import graphc
from graphc.ir import Graph
from graphc.passes.simplify.recompute import recompute
from tests.passes.meaning import CPU, assert_same_meaning, ops, run_all

X, WEIGHT = graphc.spec((64, 32)), graphc.spec((48, 32))


def gelu_gradient(x: Any, w: Any) -> Any:
    def loss(w: Any) -> Any:
        y = graphc.gelu(graphc.linear(x, w), approximate="tanh")
        return graphc.sum(graphc.square(graphc.linear(y, graphc.ones((16, 48)))))

    return graphc.grad(loss)(w)


def kernels(graph: Graph) -> list[Any]:
    return [n for n in graph.nodes if n.op.name == "kernel"]


def test_the_gradient_of_gelu_reads_its_argument_and_the_tanh_alone() -> None:
    graph = run_all(gelu_gradient, X, WEIGHT)["layout"]
    forward = next(n for n in kernels(graph) if "tanh" in ops(n.op.body))
    assert len(forward.outputs) == 3, "what follows reads the result itself"


def test_what_is_repeated_belongs_to_the_backward_kernel() -> None:
    graph = run_all(gelu_gradient, X, WEIGHT)["layout"]
    full = [n for n in kernels(graph) if n.outputs[0].type.shape == (64, 48)]
    assert [any(n.op.name == "matmul" for n in k.op.body.nodes) for k in full] == [True, True]


def test_repeating_keeps_the_meaning_to_the_bit() -> None:
    before = run_all(gelu_gradient, X, WEIGHT)["clean_hoisted"]
    after = recompute(before, CPU)
    assert len(after.nodes) > len(before.nodes)
    assert_same_meaning(before, after)


def test_transcendental_functions_are_stored() -> None:
    def fn(x: Any) -> Any:
        return graphc.grad(lambda x: graphc.sum(graphc.exp(graphc.exp(x))))(x)

    before = run_all(fn, X)["clean_hoisted"]
    assert recompute(before, CPU) == before


def test_what_needs_another_stored_value_is_not_repeated() -> None:
    def fn(x: Any, y: Any) -> Any:
        def loss(x: Any) -> Any:
            hidden = graphc.exp(x) * graphc.exp(y)
            return graphc.sum(graphc.tanh(hidden + 1.0) * hidden)

        return graphc.grad(loss)(x)

    before = run_all(fn, X, X)["clean_hoisted"]
    after = recompute(before, CPU)
    stored = {v.name for n in before.nodes if not n.where.derived for v in n.outputs}
    read = {v.name for n in after.nodes if n.where.derived for v in n.inputs}
    assert read & stored <= {v.name for n in before.nodes if n.where.derived for v in n.inputs}, (
        "nothing is stored that was not"
    )


def test_a_forward_pass_is_left_alone() -> None:
    before = run_all(lambda x: graphc.gelu(x, approximate="tanh"), X)["clean_hoisted"]
    assert recompute(before, CPU) is before
