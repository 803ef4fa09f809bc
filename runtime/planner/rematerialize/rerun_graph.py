"""Build the graph in which some kernels rerun, from a sequence of tasks.

A rerun launches the same kernel on what it read the first time or on recomputed values, so its
results have the same bits. Side results, such as the running statistics of a batch norm, stay
unread, and state is updated once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from graphc.ir import Graph, Node, Value
from graphc.ir.rewrite import drop_dead, names_of, topological
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode
from graphc.runtime.planner.loop_body import body_roots, is_alias
from graphc.runtime.planner.rematerialize.sequence import TaskSequence
from graphc.runtime.planner.tasks import Tasks


@dataclass(frozen=True)
class LaunchedGraph:
    """A graph with its tasks."""

    graph: Graph
    tasks: Tasks
    """Its tasks."""
    nodes: Mapping[int, Node]
    """The node of each launch, by task number."""
    buffers: Mapping[Value, int]
    """The work buffer of each value that a launch writes, if it is not empty."""

    @classmethod
    def of(cls, graph: Graph, kernels: Mapping[str, Kernel], tasks: Tasks) -> LaunchedGraph:
        """The tasks of `graph` with its launches."""
        named = {
            kernels[n.outputs[0].name].name: n for n in graph.nodes if n.outputs[0].name in kernels
        }
        nodes = {
            i: named[t.kernel.name]
            for i, t in enumerate(tasks.tasks)
            if t.kernel is not None and t.kernel.name in named
        }
        buffers = {
            v: a.buffer
            for i, n in nodes.items()
            for v, a in zip(n.outputs, tasks.tasks[i].writes, strict=False)
            if tasks.buffers[a.buffer].segment == "work" and a.part is None and v.type.nbytes
        }
        return cls(graph, tasks, nodes, buffers)

    def repeatable(self) -> dict[int, frozenset[int]]:
        """The launches that may rerun, each with the state buffers that it reads. Loops and what
        they replace may not, nor messages, in which other processes take part."""
        roots = body_roots(self.graph)
        scans = [n for n in self.graph.nodes if n.op.name == "scan"]
        looped = {roots[v] for n in scans for v in (*n.inputs, *n.outputs)}
        found = {}
        for i, node in self.nodes.items():
            if looped.intersection(node.outputs) or node.op.communicates:
                continue
            instead = self.idle(node)
            found[i] = frozenset(
                a.buffer
                for v, a in zip(node.inputs, self.tasks.tasks[i].reads, strict=True)
                if v not in instead and self.tasks.buffers[a.buffer].segment == "state"
            )
        return found

    def idle(self, node: Node) -> dict[Value, Value]:
        """The state that only its own update depends on, with the update. When the node reruns,
        nothing that is read depends on this state, so the new contents may be read in its place."""
        if not isinstance(node, KernelNode):
            return {}
        read = {v for n in self.graph.nodes for v in n.inputs} | set(self.graph.outputs)
        kept = tuple(
            inner
            for inner, v in zip(node.body.outputs, node.outputs, strict=True)
            if v in read
        )  # fmt: skip
        body = drop_dead(replace(node.body, outputs=kept))
        needed = {v for n in body.nodes for v in n.inputs} | set(kept)
        unneeded = {
            v
            for inner, v in zip(node.body.inputs, node.inputs, strict=True)
            if inner not in needed
        }  # fmt: skip
        return {
            old: new
            for old, new in self.graph.updates
            if old in unneeded and new in node.outputs and old.type == new.type
        }


def graph_with_reruns(
    launched: LaunchedGraph, found: TaskSequence
) -> tuple[Graph, dict[str, Node]]:
    """The graph whose nodes run as `found` says, and the rerun nodes: the original node by the name
    of the rerun's first output."""
    graph, roots = launched.graph, body_roots(launched.graph)
    names, first = names_of(graph), len(launched.tasks.buffers)
    made: dict[tuple[Value, int], Value] = {}
    """The value that replaces another, by the occurrence of its bytes."""
    nodes: list[Node] = []
    repeated: dict[str, Node] = {}

    def instead(value: Value, given: Mapping[int, int]) -> Value:
        occurrence = given.get(launched.buffers.get(roots[value], -1), 0)
        if occurrence < first:
            return value
        if (value, occurrence) not in made:
            alias = graph.producers[value]
            assert is_alias(alias), f"{value} is no alias"
            twin = Value(names.fresh(f"{value.name}.again"), value.type)
            made[value, occurrence] = twin
            nodes.append(
                replace(alias, inputs=(instead(alias.inputs[0], given),), outputs=(twin,))
            )  # fmt: skip
        return made[value, occurrence]

    for step in found.steps:
        node = launched.nodes.get(step.task)
        given = {found.buffer[v]: v for v in step.reads}
        if node is None:
            continue
        inputs = tuple(instead(v, given) for v in node.inputs)
        if not step.rerun:
            nodes.append(node if inputs == node.inputs else _renamed(node, inputs, node.outputs))
            continue
        idle = launched.idle(node)
        written = {found.buffer[v]: v for v in step.writes}
        outputs = tuple(Value(names.fresh(f"{v.name}.again"), v.type) for v in node.outputs)
        for v, twin in zip(node.outputs, outputs, strict=True):
            if v in launched.buffers:
                made[v, written[launched.buffers[v]]] = twin
        nodes.append(_renamed(node, tuple(idle.get(v, v) for v in inputs), outputs))
        repeated[outputs[0].name] = node
    known = {id(n) for n in launched.nodes.values()}
    rest = [n for n in graph.nodes if id(n) not in known]
    return replace(graph, nodes=topological([*nodes, *rest])), repeated


def _renamed(node: Node, inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> Node:
    """The node on other values, with its body renamed accordingly."""
    if not isinstance(node, KernelNode):
        return replace(node, inputs=inputs, outputs=outputs)
    body = node.body
    names = dict(zip((*body.inputs, *body.outputs), (*inputs, *outputs), strict=True))

    def new(values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(names.get(v, v) for v in values)

    inner = tuple(replace(n, inputs=new(n.inputs), outputs=new(n.outputs)) for n in body.nodes)
    body = replace(body, inputs=new(body.inputs), nodes=inner, outputs=new(body.outputs))
    return replace(node, op=replace(node.op, body=body), inputs=inputs, outputs=outputs)
