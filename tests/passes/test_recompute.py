"""Recompute repeats cheap forward nodes for the backward pass, and stores the less."""

from __future__ import annotations

from typing import Any

import pytest

import graphc
from graphc import nn, optim
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


def test_the_gradient_of_gelu_reads_its_argument_alone() -> None:
    graph = run_all(gelu_gradient, X, WEIGHT)["layout"]
    forward, backward = (n for n in kernels(graph) if "tanh" in ops(n.op.body))
    assert len(forward.outputs) == 2, "what follows reads the result itself"
    assert ops(backward.op.body).count("tanh") == 1


def test_what_is_repeated_belongs_to_the_backward_kernel() -> None:
    graph = run_all(gelu_gradient, X, WEIGHT)["layout"]
    full = [n for n in kernels(graph) if n.outputs[0].type.shape == (64, 48)]
    assert [any(n.op.name == "matmul" for n in k.op.body.nodes) for k in full] == [True, True]


def test_repeating_keeps_the_meaning_to_the_bit() -> None:
    before = run_all(gelu_gradient, X, WEIGHT)["clean_hoisted"]
    after = recompute(before, CPU)
    assert len(after.nodes) > len(before.nodes)
    assert_same_meaning(before, after)


def test_what_takes_longer_than_memory_is_stored() -> None:
    def fn(x: Any) -> Any:
        return graphc.grad(lambda x: graphc.sum(graphc.exp(graphc.lgamma(x))))(x)

    before = run_all(fn, X)["clean_hoisted"]
    assert recompute(before, CPU) == before


def test_what_two_kernels_read_again_is_computed_in_each() -> None:
    """The gradients of a normalisation's scale and of its input; neither is the forward kernel."""

    def fn(x: Any, scale: Any, w: Any) -> Any:
        def loss(x: Any, scale: Any) -> Any:
            y = graphc.layer_norm(x, (32,), scale)
            return graphc.sum(graphc.square(graphc.linear(y, w)))

        return graphc.grad(loss, (0, 1))(x, scale)

    stages = run_all(fn, X, graphc.spec((32,)), WEIGHT)
    assert_same_meaning(stages["trace"], stages["layout"], tolerance=1e-4)
    norm = next(n for n in kernels(stages["layout"]) if "rsqrt" in ops(n.op.body))
    wide = [v for v in norm.outputs if v.type.shape == (64, 32)]
    assert len(wide) == 1, "the result, of which the centred input is none"


def test_small_values_are_stored() -> None:
    def fn(x: Any, scale: Any) -> Any:
        def loss(x: Any, scale: Any) -> Any:
            return graphc.sum(graphc.sin(x * (scale * 2.0)))

        return graphc.grad(loss)(x, scale)

    before = run_all(fn, X, graphc.spec((32,)))["clean_hoisted"]
    after = recompute(before, CPU)
    again = [n for n in after.nodes if n.output.type.shape == (32,)]
    assert len(again) == 1


@pytest.mark.parametrize(("rows", "sums"), [(8, 2), (7, 1)])
def test_a_value_an_eighth_as_large_is_small(rows: int, sums: int) -> None:
    """Then the sum that the sine is of is repeated for its gradient, which reads nothing stored
    but x; else it is stored."""

    def fn(x: Any, scale: Any) -> Any:
        def loss(x: Any, scale: Any) -> Any:
            return graphc.sum(graphc.sin(x + scale * 2.0))

        return graphc.grad(loss)(x, scale)

    before = run_all(fn, graphc.spec((rows, 32)), graphc.spec((32,)))["clean_hoisted"]
    after = recompute(before, CPU)
    full = [n for n in after.nodes if n.output.type.shape == (rows, 32)]
    assert [n.op.name for n in full].count("add") == sums


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


def test_what_a_contraction_reads_as_well_is_stored() -> None:
    def fn(x: Any, w: Any) -> Any:
        def loss(x: Any, w: Any) -> Any:
            y = x * x
            return graphc.sum(graphc.linear(y, w)) + graphc.sum(y * y)

        return graphc.grad(loss, (0, 1))(x, w)

    before = run_all(fn, X, WEIGHT)["clean_hoisted"]
    assert recompute(before, CPU) == before


def test_a_value_that_is_read_twice_is_computed_once_on_the_way() -> None:
    """Each is the square of the one before: the n-th costs n products, and not 2 ** n - 1."""

    def fn(x: Any) -> Any:
        def loss(x: Any) -> Any:
            for _ in range(8):
                x = x * x
            return graphc.sum(x)

        return graphc.grad(loss)(x)

    before = run_all(fn, X)["clean_hoisted"]
    after = recompute(before, CPU)
    assert len(after.nodes) == len(before.nodes) + sum(range(8)), "the n-th from n products"


def test_batch_norm_holds_what_it_reads_and_writes_no_other_image() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 4, 3))
    program = graphc.compile(
        lambda m, x: graphc.mean(graphc.square(m(x))),
        model,
        graphc.spec((8, 3, 12, 12)),
        update=optim.SGD(lr=0.1),
        device="cpu",
        streams=1,
    )
    forward = [n for n in kernels(program.graph) if not n.where.derived]
    (norm,) = (n for n in forward if "rsqrt" in ops(n.op.body))
    images = [v for v in norm.outputs if v.type.shape == (8, 16, 10, 10)]
    assert [norm.op.body.producers[v].op.name for v in images] == ["relu"]
    convolved = next(v for v in norm.inputs if v.type.shape == (8, 16, 10, 10))
    readers = program.graph.consumers[convolved]
    assert any(n.where.derived for n in readers), "the backward pass reads what the norm does"


def head_gradient(x: Any, w: Any, labels: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        return graphc.cross_entropy(graphc.linear(x, w), labels)

    return graphc.grad(loss, (0, 1))(x, w)


@pytest.mark.parametrize(("limit", "kept"), [(64 * 48 * 4, "matmul"), (64 * 48 * 4 + 1, "exp")])
def test_large_logits_are_kept_and_not_their_exponentials(
    limit: int, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie in memory anyway, for their largest is looked for before the rest."""
    monkeypatch.setattr("graphc.passes.simplify.recompute.LARGE", limit)
    stages = run_all(head_gradient, X, WEIGHT, graphc.spec((64,), "int64"))
    assert_same_meaning(stages["clean_hoisted"], stages["recompute"])
    graph = stages["recompute"]
    producers = graph.producers
    read = {
        producers[v].op.name
        for n in graph.nodes
        if n.where.derived
        for v in n.inputs
        if v in producers and not producers[v].where.derived and v.type.shape == (64, 48)
    }
    assert read == {kept}
