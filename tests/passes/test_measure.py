"""Rewrites come to an end: each lowers a measure, and one that does not is named."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

import graphc
from benchmarks.limit import limited
from graphc import nn, optim
from graphc.base.errors import PlanError
from graphc.ir import Graph, Node, Type, Value
from graphc.ir.rewrite import resolve, topological
from graphc.ops.base import Op
from graphc.ops.loops.bodies import through_bodies
from graphc.ops.pointwise.arithmetic import Add
from graphc.ops.pointwise.elementary import Relu
from graphc.passes.fuse.partition import Partition
from graphc.passes.pipeline import AFTER_GRADIENT
from graphc.passes.rewriting.measure import measure
from graphc.passes.rewriting.runner import run_passes
from graphc.passes.simplify import algebra
from graphc.passes.simplify.clean import clean
from graphc.passes.simplify.commute import commute
from graphc.passes.simplify.sweep import Sweep
from tests.passes.meaning import CPU, assert_same_meaning, ops, run_all

clean_module = import_module("graphc.passes.simplify.clean")
fuse_pointwise_module = import_module("graphc.passes.fuse.pointwise")
SECONDS = 60
"""More than any of these takes, far less than for ever."""


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """A pass that goes in circles fails its test."""

    with limited(SECONDS):
        yield


def sum_of_products(a: Any, w: Any, b: Any, k: Any) -> Any:
    """Two products of other shapes: each could be reshaped to the other's."""
    return graphc.reshape(a @ w + graphc.reshape(b @ k, (3, 48)), (3, 8, 6))


def product_of_reshapes(a: Any, w: Any, b: Any, k: Any) -> Any:
    """Both are reshaped, to a shape that is neither's."""
    left, right = graphc.reshape(a @ w, (144,)), graphc.reshape(b @ k, (144,))
    return graphc.tanh(left * right) + left


def three_products(a: Any, w: Any, b: Any, k: Any) -> Any:
    left, right = a @ w, graphc.reshape(b @ k, (3, 48))
    return graphc.where(left > right, graphc.reshape(graphc.reshape(left, (8, 18)), (3, 48)), right)


def turned_twice(a: Any, w: Any, b: Any, k: Any) -> Any:
    """The other operand is found to be a product after two rewrites."""
    other = graphc.permute_dims(graphc.permute_dims(b @ k, (1, 0)), (1, 0)) * 1.0
    return a @ w + graphc.reshape(other, (3, 48))


def skips(a: Any, w: Any, b: Any, k: Any) -> Any:
    left, right = graphc.reshape(a @ w, (3, 8, 6)), graphc.reshape(b @ k, (3, 8, 6))
    joined = graphc.concat([left + right, left], axis=2)
    return graphc.reshape(joined, (3, 96)) + graphc.concat([a @ w, a @ w], axis=1)


PRODUCTS = (sum_of_products, product_of_reshapes, three_products, turned_twice, skips)
SPECS = [graphc.spec(shape) for shape in ((3, 5), (5, 48), (24, 7), (7, 6))]


@pytest.mark.parametrize("function", PRODUCTS, ids=lambda f: f.__name__)
def test_products_of_several_shapes_come_to_an_end(function: Callable[..., Any]) -> None:
    for device in ("cpu", "cuda"):
        stages = run_all(function, *SPECS, target=replace(CPU, device=device))
        assert_same_meaning(stages["trace"], stages["clean_hoisted"], tolerance=1e-5)
        assert clean(stages["clean"], CPU) == stages["clean"]


def test_the_reshape_of_one_product_is_not_traded_for_that_of_another() -> None:
    """It goes behind an op whose other operands are memory, or have the shape it is taken from; but
    not where the op would then be stored beside the product, for another reader of that."""
    graph = clean(graphc.trace(product_of_reshapes, *SPECS), CPU)
    assert ops(graph) == ["matmul", "reshape", "matmul", "reshape", "multiply", "tanh", "add"]

    def beside_memory(a: Any, w: Any, x: Any) -> Any:
        return graphc.tanh(graphc.reshape(a @ w, (144,)) + x)

    moved = clean(graphc.trace(beside_memory, *SPECS[:2], graphc.spec((144,))), CPU)
    assert ops(moved) == ["matmul", "reshape", "add", "tanh", "reshape"]

    def alike(a: Any, w: Any, b: Any) -> Any:
        return graphc.reshape(a @ w, (144,)) + graphc.reshape(b @ w, (144,))

    equal = clean(graphc.trace(alike, *SPECS[:2], SPECS[0]), CPU)
    assert ops(equal) == ["matmul", "matmul", "add", "reshape"]


class Auxiliary(nn.Module):
    """A head of a dense layer, and one of a convolution, on one convolution."""

    def __init__(self) -> None:
        self.stem = nn.Conv2d(2, 3, 3, padding=1)
        self.dense, self.side = nn.Linear(75, 4), nn.Conv2d(3, 2, 3)

    def forward(self, x: graphc.Tensor) -> Any:
        y = self.stem(x)
        dense = graphc.mean(graphc.square(self.dense(graphc.flatten(y))))
        return dense + graphc.mean(graphc.square(self.side(y)))


class Beside(nn.Module):
    """A dense layer of every step beside one of all steps together."""

    def __init__(self) -> None:
        self.first = nn.Linear(6, 4)
        self.each, self.all = nn.Linear(4, 5), nn.Linear(20, 25)

    def forward(self, x: graphc.Tensor) -> Any:
        y = graphc.relu(self.first(x))
        together = graphc.reshape(self.all(graphc.flatten(y)), (x.shape[0], 5, 5))
        return graphc.mean(graphc.square(self.each(y) + together))


@pytest.mark.parametrize(("model", "shape"), [(Auxiliary, (3, 2, 5, 5)), (Beside, (3, 5, 6))])
def test_models_whose_heads_reshape_what_they_share_compile(
    model: type[nn.Module], shape: tuple[int, ...]
) -> None:
    program = graphc.compile(
        lambda m, x: m(x), model(), graphc.spec(shape), update=optim.SGD(lr=0.1), device="reference"
    )
    assert program.graph.updates


def test_what_a_scan_computes_of_shared_values_is_hoisted_at_once() -> None:
    """Forty levels of an op on one value twice are forty nodes, not 2 ** 40 paths."""

    def squares(x: Any, w: Any) -> Any:
        def step(h: Any, e: Any) -> Any:
            for _ in range(40):
                e = e * e
            return graphc.tanh(h + e @ w), e

        return graphc.scan(step, graphc.zeros((4, 5)), x)

    def doubles(x: Any, w: Any) -> Any:
        def step(h: Any, e: Any) -> Any:
            z = e @ w
            for _ in range(40):
                z = z + z
            return h + z, h

        return graphc.scan(step, graphc.zeros((4, 5)), x)

    for function in (squares, doubles):
        stages = run_all(function, graphc.spec((6, 4, 5)), graphc.spec((5, 5)))
        assert len(stages["hoist"].nodes) < 60


def with_rules(
    monkeypatch: pytest.MonkeyPatch, kind: type[Op], rules: tuple[algebra.Rule, ...]
) -> None:
    """Give the ops of a class these rules, which are looked up each time."""
    monkeypatch.setattr(algebra, "_rules_of", inspect.unwrap(algebra._rules_of))
    monkeypatch.setitem(algebra.RULES, kind, rules)


def swapped(node: Node, sweep: Sweep) -> Value | None:
    """A rule that goes in circles: a + b = b + a."""
    return sweep.emit(node.op, node.inputs[::-1], node)


def test_a_rule_that_goes_in_circles_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with_rules(monkeypatch, Add, (swapped,))
    graph = graphc.trace(lambda x, y: x + y, graphc.spec(3), graphc.spec(3))
    where = graph.nodes[-1].where
    with pytest.raises(PlanError) as caught:
        clean(graph, CPU)
    message = f"clean: swapped of add does not lower the pass's measure ({where})"
    assert str(caught.value) == message
    with pytest.raises(PlanError) as caught:
        run_passes(graph, CPU, [("clean", through_bodies(clean))], lambda *_: None)
    assert caught.value.__notes__ == ["in pass clean"]


def test_two_rules_that_undo_each_other_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second does what the first undid."""

    def doubled(node: Node, sweep: Sweep) -> Value | None:
        return sweep.emit(Add(), (node.inputs[0],) * 2, node)

    def halved(node: Node, sweep: Sweep) -> Value | None:
        return (
            None if node.inputs[0] != node.inputs[1] else sweep.emit(Relu(), node.inputs[:1], node)
        )

    with_rules(monkeypatch, Relu, (doubled,))
    with_rules(monkeypatch, Add, (halved,))
    with pytest.raises(
        PlanError, match=r"^clean: doubled of relu does not lower the pass's measure"
    ):
        clean(graphc.trace(graphc.relu, graphc.spec(3)), CPU)


def test_a_sweep_that_changes_a_graph_without_lowering_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def renamed(graph: Graph) -> Graph:
        (node,) = graph.nodes
        value = replace(node.output, name=f"{node.output.name}.again")
        return replace(graph, nodes=(replace(node, outputs=(value,)),), outputs=(value,))

    monkeypatch.setattr(clean_module, "prune_scans", renamed)
    with pytest.raises(
        PlanError, match=r"^clean: a sweep of tanh does not lower the pass's measure"
    ):
        clean(graphc.trace(graphc.tanh, graphc.spec(3)), CPU)


def test_kernels_that_are_never_made_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = run_all(lambda x: graphc.tanh(x) + 1, graphc.spec(3))
    monkeypatch.setattr(fuse_pointwise_module, "fuse_groups", lambda graph, groups: graph)
    with pytest.raises(PlanError, match=r"^fuse_pointwise: fusing alone of tanh does not lower"):
        fuse_pointwise_module.fuse_pointwise(stages["fuse_axis"], CPU)


def test_a_merge_with_itself_is_named() -> None:
    graph = graphc.trace(lambda x: graphc.tanh(x) + x, graphc.spec(3))
    partition = Partition(graph, name="fuse_contract")
    with pytest.raises(PlanError) as caught:
        partition.merge(0, 0)
    assert str(caught.value) == "fuse_contract: a merge of groups 0 and 0 leaves as many groups"
    partition.merge(0, 1)
    with pytest.raises(PlanError, match=r"^fuse_contract: a merge of groups 0 and 1 leaves"):
        partition.merge(0, 1)


def test_substitutions_and_nodes_in_a_circle_are_named() -> None:
    a, b = (Value(name, Type((3,))) for name in "ab")
    with pytest.raises(PlanError) as caught:
        resolve(a, {a: b, b: a})
    assert str(caught.value) == "the substitutions of a go in a circle"
    tanh = graphc.trace(graphc.tanh, graphc.spec(3)).nodes[0].op
    with pytest.raises(PlanError) as caught:
        topological([Node(tanh, (a,), (b,)), Node(tanh, (b,), (a,))])
    assert str(caught.value) == "a cycle through b, a tanh"


def test_relus_go_behind_one_pooling_after_another() -> None:
    def fn(x: Any) -> Any:
        return graphc.max_pool2d(graphc.relu(graphc.relu(x)), 3, stride=1, padding=1)

    graph = commute(graphc.trace(fn, graphc.spec((2, 3, 8, 8))), CPU)
    assert ops(graph) == ["relu", "max_pool2d", "relu"]


def test_the_measure_falls_through_clean() -> None:
    before = graphc.trace(sum_of_products, *SPECS)
    assert measure(clean(before, CPU)) <= measure(before)
    assert "clean" in dict(AFTER_GRADIENT)
