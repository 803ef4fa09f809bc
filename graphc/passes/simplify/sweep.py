"""The view of a graph that a rewrite of one node gets."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphc.ir import Names, Node, Value
from graphc.ops.base import Array, Op
from graphc.passes.rewriting.measure import Weights


@dataclass
class Sweep:
    """The context of a rewrite: nodes so far, counts of readers, and a way to add nodes."""

    names: Names
    shared: set[Value]
    nodes: list[Node] = field(default_factory=list)
    producers: dict[Value, Node] = field(default_factory=dict)
    substitution: dict[Value, Value] = field(default_factory=dict)
    weights: Weights = field(default_factory=Weights)
    kinds: set[type[Op]] = field(default_factory=set)
    """The classes of the nodes' ops: a rule about ops that do not occur need not look."""

    def producer(self, value: Value) -> Node | None:
        return self.producers.get(value)

    def constant(self, value: Value) -> Array | None:
        """The elements of a constant; None for any other value."""
        producer = self.producers.get(value)
        return producer.op.array if producer else None

    def emit(self, op: Op, inputs: tuple[Value, ...], like: Node) -> Value:
        """A new node before the current one, with the origin of `like`."""
        types = op.infer(*(v.type for v in inputs))
        value = Value(self.names.fresh(like.outputs[0].name), types[0])
        self.add(Node(op, inputs, (value,), like.where))
        return value

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        for value in node.outputs:
            self.producers[value] = node
        self.weights.add(node)
        self.kinds.add(type(node.op))
