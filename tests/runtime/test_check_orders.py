"""GRAPHC_CHECK=meaning runs kernels with sums, and finds those that add in another order."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import graphc
from graphc.base.errors import GraphError
from graphc.ir import Graph, Layout, Node, Type
from graphc.ir.state import elements, stored
from graphc.ops.base import Contraction, Reduction
from graphc.ops.fused import KernelNode
from graphc.program import Program
from graphc.runtime.checks.orders import check_orders
from tests.tools import need_command

SHAPES = ((5, 70), (9, 70), (9,), (70, 3))


def dense(
    x: graphc.Tensor, w: graphc.Tensor, b: graphc.Tensor, v: graphc.Tensor
) -> list[graphc.Tensor]:
    y = graphc.relu(graphc.linear(x, w, b))
    return [y, graphc.tanh(x @ v), graphc.sum(x * x, axis=1)]


@pytest.fixture(scope="module")
def program() -> Program:
    need_command("g++", "clang++")
    specs = [graphc.spec(shape) for shape in SHAPES]
    with pytest.MonkeyPatch.context() as change:
        change.setenv("GRAPHC_CHECK", "meaning")
        return graphc.compile(dense, *specs, device="cpu", streams=1)


def reordered(graph: Graph, kind: type[Contraction | Reduction], order: str) -> Graph:
    """The graph with another order stated in the ops of a kind."""

    def changed(node: Node) -> Node:
        op = node.op
        if isinstance(node, KernelNode):
            body = replace(node.body, nodes=tuple(map(changed, node.body.nodes)))
            return replace(node, op=replace(node.op, body=body))
        if not isinstance(op, kind) or not op.order:
            return node
        return replace(node, op=replace(op, order=order))

    return replace(graph, nodes=tuple(map(changed, graph.nodes)))


def check(program: Program, graph: Graph) -> str:
    plan, executable = program.plan, program._executable
    assert plan is not None
    return str(check_orders(graph, plan.kernels, executable.functions))  # type: ignore[union-attr]


def test_a_plan_says_how_many_sums_were_tried(program: Program) -> None:
    assert program.plan is not None
    notes = [note for note in program.plan.notes if note.startswith("meaning")]
    assert notes == [
        "meaning: 3 of 3 results proved equal",
        "meaning: 2 of 3 kernels with sums were run and add in the order stated",
    ]
    assert check(program, program.graph) == notes[1]


@pytest.mark.parametrize("order", ["k/4,k%4", "2*k", "k%16"])
def test_a_product_in_another_order_is_found(program: Program, order: str) -> None:
    with pytest.raises(GraphError) as error:
        check(program, reordered(program.graph, Contraction, order))
    number = r"np\.float32\([-.e\d]+\)"
    assert re.fullmatch(
        rf"meaning: kernel \w+ does not add in the order stated, matmul {re.escape(order)}: "
        rf"[\w.]+ f32\[5,9\] at \[\d, \d\] expected {number}, got {number}",
        str(error.value),
    )


def test_a_sum_in_another_order_is_found(program: Program) -> None:
    with pytest.raises(GraphError, match="in the order stated, sum 1: "):
        check(program, reordered(program.graph, Reduction, "1"))


def test_the_reference_adds_so_too(program: Program) -> None:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(s).astype(np.float32) for s in SHAPES]
    found, want = program(*arrays), graphc.ir.interpret.evaluate(program.graph, arrays)[0]
    for place in (0, 2):
        np.testing.assert_array_equal(found[place], want[place])


def test_sums_of_nothing_are_checked_as_well() -> None:
    def empty(x: graphc.Tensor) -> list[graphc.Tensor]:
        return [graphc.sum(x, axis=0), graphc.sum(x * 2, axis=1), graphc.sum(x)]

    for shape in ((0, 20), (20, 0), (0, 0)):
        with pytest.MonkeyPatch.context() as change:
            change.setenv("GRAPHC_CHECK", "meaning")
            found = graphc.compile(empty, graphc.spec(shape), device="cpu")(np.zeros(shape, "f4"))
        assert [a.shape for a in found] == [shape[1:], shape[:1], ()]
        assert not any(map(np.any, found))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_empty_arrays_lie_in_lanes(shape: tuple[int, int]) -> None:
    type = Type(shape, "f32", Layout(0, 16))
    array = np.zeros(shape, np.float32)
    assert stored(array, type.layout).shape == type.storage_shape
    assert elements(stored(array, type.layout), type).shape == shape
