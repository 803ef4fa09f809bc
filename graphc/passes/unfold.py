"""Unfold: pointwise ops behind the reshape of a contraction move before it.

A dense layer on [n, t, features] is one product of n * t rows and a reshape. What follows, such as
the bias, the activation and the residual, would be a kernel of its own behind the reshape; on the
product's own shape it fits into the epilogue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from graphc.ir import Graph, Node, Value
from graphc.ops.base import Contraction, Pointwise, Reduction, View
from graphc.ops.view import Reshape
from graphc.passes.groups import of_update_rule
from graphc.passes.rewrite import Names, drop_dead
from graphc.target import Target


def unfold(graph: Graph, target: Target) -> Graph:
    """`graph` with such ops on the shape of the contraction; reshapes follow them where somebody
    reads the other shape."""
    if not any(isinstance(n.op, Contraction) for n in graph.nodes):
        return graph
    return drop_dead(_Unfolding(graph).graph())


class _Unfolding:
    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.names = Names(graph)
        self.consumers = graph.consumers
        self.nodes: list[Node] = []
        self.flat: dict[Value, Value] = {}
        """Value -> the same elements in the shape of the contraction that it comes from."""
        self.producers: dict[Value, Node] = {}
        self.behind: set[Value] = set()
        """Contractions' results, and what pointwise ops make of them."""

    def graph(self) -> Graph:
        for node in self.old.nodes:
            moved = self._moved(node)
            if moved is None:
                self._add(node)
            else:
                self._add(moved)
                shape = node.output.type.shape
                self._add(Node(Reshape(shape), moved.outputs, node.outputs, node.where))
                self.flat[node.output] = moved.output
            if isinstance(node.op, Reshape) and node.inputs[0] in self.behind:
                self.flat[node.output] = node.inputs[0]
        return replace(self.old, nodes=tuple(self.nodes))

    def _add(self, node: Node) -> None:
        self.nodes.append(node)
        self.producers.update(dict.fromkeys(node.outputs, node))
        same = (v in self.behind and v.type.shape == node.output.type.shape for v in node.inputs)
        if isinstance(node.op, Contraction) or (isinstance(node.op, Pointwise) and any(same)):
            self.behind.add(node.output)

    def _moved(self, node: Node) -> Node | None:
        """The node on the flat shape, if one of its inputs has one and the others fit."""
        if not isinstance(node.op, Pointwise) or of_update_rule(node):
            return None
        shape = node.output.type.shape
        flats = [self.flat[v] for v in node.inputs if v in self.flat and v.type.shape == shape]
        if not flats or self._only_reduced(node):
            return None
        flat = flats[0].type.shape
        common = 0
        while common < min(len(flat), len(shape)) and flat[-1 - common] == shape[-1 - common]:
            common += 1
        inputs = []
        for value in node.inputs:
            own = self.flat.get(value)
            if own is not None and own.type.shape == flat:
                inputs.append(own)
            elif value.type.shape == shape:
                inputs.append(self._reshaped(value, flat, node))
            elif value.type.rank <= common:
                inputs.append(value)
            elif all(n == 1 for n in value.type.shape[: value.type.rank - common]):
                kept = value.type.shape[value.type.rank - common :]
                inputs.append(self._reshaped(value, kept, node))
            else:
                return None
        name = self.names.fresh(f"{node.output.name}.flat")
        output = Value(name, replace(node.output.type, shape=flat))
        return replace(node, inputs=tuple(inputs), outputs=(output,))

    def _only_reduced(self, node: Node) -> bool:
        """Whether a reduction computes the node's output where it reads it, and no contraction
        needs it in memory."""
        readers = self.consumers.get(node.output, [])
        return any(isinstance(n.op, Reduction) for n in readers) and not self._contracted(readers)

    def _contracted(self, readers: Iterable[Node]) -> bool:
        return any(
            isinstance(n.op, Contraction)
            or (isinstance(n.op, View) and self._contracted(self.consumers.get(n.output, [])))
            for n in readers
        )

    def _reshaped(self, value: Value, shape: tuple[int, ...], reader: Node) -> Value:
        name = self.names.fresh(f"{value.name}.flat")
        new = Value(name, replace(value.type, shape=shape))
        where = self.producers[value].where if value in self.producers else reader.where
        self._add(Node(Reshape(shape), (value,), (new,), where))
        if new.type.size > 1:
            self.flat[value] = new
        return new
