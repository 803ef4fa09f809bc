"""Helpers of test_loops.py and of tests beside it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from graphc.ir import Graph, Node, Type, Value
from graphc.ir import verify as verify_graph
from graphc.kernels.program.kernel import Kernel
from graphc.ops.loops.scan import Scan
from graphc.runtime.plan.plan import Plan
from graphc.runtime.planner.planner import make_plan
from tests.runtime.brute_force import graph_meaning, is_ordered, plan_meaning
from tests.runtime.random_graphs import Opaque, kernel_node, opaque_kernel

SIZE, BYTES = 16, 64


def value(name: str, *shape: int) -> Value:
    return Value(name, Type(shape or (SIZE,)))


class Recipe:
    """A graph `g` of kernels and one loop, step by step, and its plan."""

    def __init__(self, length: int = 4, reverse: bool = False) -> None:
        self.length, self.reverse = length, reverse
        self.kernels: dict[str, Kernel] = {}
        self.nodes: list[Node] = []
        self.x = value("x", length, SIZE)
        self.h = value("h")
        self.s = value("s")

    def kernel(
        self,
        name: str,
        reads: Sequence[Value],
        *sizes: int,
        inplace: tuple[tuple[int, int], ...] = (),
    ) -> Node:
        self.kernels[name] = opaque_kernel(name, inplace=inplace)
        return kernel_node(name, list(reads), list(sizes or (SIZE,)))

    def scan(
        self,
        body: Sequence[Node],
        constants: Sequence[tuple[Value, Value]] = (),
        carries: Sequence[tuple[Value, Value, Value]] = (),
        xs: Sequence[tuple[Value, Value]] = (),
        ys: Sequence[Value] = (),
    ) -> tuple[Value, ...]:
        """Add the loop. Inner values come first: (constant, outer), (old, new, initial),
        (element, whole). The outputs: last carries, stacks."""
        inside = [c for c, _ in constants] + [old for old, _, _ in carries] + [x for x, _ in xs]
        outside = [v for _, v in constants] + [v for *_, v in carries] + [v for _, v in xs]
        new = [n for _, n, _ in carries]
        graph = Graph("body", tuple(inside), (), tuple(body), (*new, *ys))
        op = Scan(graph, self.length, len(carries), len(xs), self.reverse)
        last = [Value(f"last_{v.name}", v.type) for v in new]
        stacks = [value(f"stack_{v.name}", self.length, *v.type.shape) for v in ys]
        self.nodes.append(Node(op, tuple(outside), (*last, *stacks)))
        return (*last, *stacks)

    def plan(
        self,
        outputs: Sequence[Value],
        updates: Sequence[tuple[Value, Value]] = (),
        device: str = "cpu",
    ) -> Plan:
        """The plan, once it is shown to compute what the graph means."""
        graph = Graph(
            "g", (self.x, self.h), (self.s,), tuple(self.nodes), tuple(outputs), tuple(updates)
        )
        verify_graph(graph)
        plan = make_plan(graph, self.kernels, device=device)
        plan.verify()
        assert is_ordered(plan)
        assert plan_meaning(plan, random.Random(0)) == graph_meaning(graph, self.kernels)
        return plan

    def produced(self, name: str, *sizes: int, reads: Sequence[Value] = ()) -> tuple[Value, ...]:
        """Outputs of a kernel outside of the loop."""
        node = self.kernel(name, reads, *sizes)
        self.nodes.append(node)
        return node.outputs

    def whole(self, name: str) -> Value:
        """A value to be scanned, made by a kernel."""
        node = self.kernel(name, [self.x], self.length * SIZE)
        values = value(name, self.length, SIZE)
        self.nodes.append(Node(Opaque((values.type,)), node.inputs, (values,)))
        return values
