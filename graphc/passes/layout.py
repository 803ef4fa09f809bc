"""Layout: on the CPU, let the batch lie in the vector lanes of convolutional networks.

With `[n / W][c][h][w][W]` every kernel's vectors are full whatever the number of channels, weights
stay in the user's layout, and pooling, softmax and normalisation work lane by lane. The price is
the batch's tail and a conversion of the inputs. The pass follows the batch axis from the inputs
through every kernel; a kernel that uses it other than as its own first axis keeps row-major values,
and `relayout` nodes stand between the two worlds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from graphc.ir import ROW_MAJOR, Graph, Layout, Node, Value
from graphc.ops.base import Contraction
from graphc.ops.fused import Fused
from graphc.ops.layout import Relayout
from graphc.passes.batch import carries_batch
from graphc.passes.rewrite import Names, drop_dead
from graphc.target import Target

LARGE_WEIGHT = 16384
"""Elements: the gradient of a dense layer's weight at least as large as this is computed with
features in the lanes, from a row-major activation, instead of adding lanes for every element."""


def layout(graph: Graph, target: Target) -> Graph:
    """`graph` with layouts on its values and the conversions that they need."""
    batch = _batch_of_convolutions(graph)
    if target.device != "cpu" or batch < target.lanes // 2 or target.lanes == 1:
        return graph
    return drop_dead(_Assignment(graph, batch, Layout(0, target.lanes)).run())


def _batch_of_convolutions(graph: Graph) -> int:
    """The first extent of the first convolution's image; 0 if there is none."""
    for node in graph.nodes:
        for inner in node.op.body.nodes if isinstance(node.op, Fused) else ():
            if inner.op.name == "conv2d":
                return inner.inputs[0].type.shape[0]
    return 0


class _Assignment:
    def __init__(self, graph: Graph, batch: int, lanes: Layout) -> None:
        self.graph, self.batch, self.lanes = graph, batch, lanes
        self.names = Names(graph)
        self.nodes: list[Node] = []
        self.on_batch = {v for v in graph.inputs if v.type.shape[:1] == (batch,)}
        """Values, by their old names, whose first axis is the batch."""
        self.row: dict[Value, Value] = {v: v for v in (*graph.inputs, *graph.state)}
        """Old value -> its row-major form, where it exists."""
        self.laned: dict[Value, Value] = {}
        """Old value -> its form with lanes, where it exists."""

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if node.op.name == "reshape":
                self._reshape(node)
            else:
                self._kernel(node)
        outputs = tuple(self._as_row(v) for v in self.graph.outputs)
        updates = tuple((old, self._as_row(v)) for old, v in self.graph.updates)
        return replace(self.graph, nodes=tuple(self.nodes), outputs=outputs, updates=updates)

    def _reshape(self, node: Node) -> None:
        (source,), (output,) = node.inputs, node.outputs
        if source in self.on_batch and output.type.shape[:1] == (self.batch,):
            self.on_batch.add(output)
            if source in self.laned:
                new = replace(output, type=output.type.with_layout(self.lanes))
                self.nodes.append(replace(node, inputs=(self.laned[source],), outputs=(new,)))
                self.laned[output] = new
                return
        self.nodes.append(replace(node, inputs=(self._as_row(source),)))
        self.row[output] = output

    def _kernel(self, node: Node) -> None:
        op = node.op
        assert isinstance(op, Fused), f"layout: {op.name} is not fused"
        on_batch = {
            b for v, b in zip(node.inputs, op.body.inputs, strict=True) if v in self.on_batch
        }
        carried = carries_batch(op.body, on_batch, self.batch)
        if carried is None:
            inputs = [self._as_row(v) for v in node.inputs]
            outputs = list(node.outputs)
            self.row.update(zip(outputs, outputs, strict=True))
        else:
            as_row = _row_operands(op.body) if not carried.intersection(op.body.outputs) else set()
            inputs = [
                self._as_lanes(v) if b in on_batch and b not in as_row else self._as_row(v)
                for v, b in zip(node.inputs, op.body.inputs, strict=True)
            ]
            outputs = []
            for value, inner in zip(node.outputs, op.body.outputs, strict=True):
                if inner in carried:
                    self.on_batch.add(value)
                    new = replace(value, type=value.type.with_layout(self.lanes))
                    self.laned[value] = new
                else:
                    self.row[value] = new = value
                outputs.append(new)
        body = _with_types(op.body, inputs, outputs)
        self.nodes.append(
            replace(node, op=replace(op, body=body), inputs=tuple(inputs), outputs=tuple(outputs))
        )

    def _as_row(self, value: Value) -> Value:
        if value not in self.row:
            self.row[value] = self._convert(self.laned[value], ROW_MAJOR, f"{value.name}.row")
        return self.row[value]

    def _as_lanes(self, value: Value) -> Value:
        if value not in self.laned:
            self.laned[value] = self._convert(self.row[value], self.lanes, f"{value.name}.lanes")
        return self.laned[value]

    def _convert(self, value: Value, layout: Layout, name: str) -> Value:
        new = Value(self.names.fresh(name), value.type.with_layout(layout))
        origin = next((n.where for n in self.nodes if value in n.outputs), None)
        origin = origin or next(n.where for n in self.graph.nodes if value in n.inputs)
        self.nodes.append(Node(Relayout(layout), (value,), (new,), origin))
        return new


def _row_operands(body: Graph) -> set[Value]:
    """The activation of a dense layer's large weight gradient: b of a matmul summed over n."""
    for node in body.nodes:
        if isinstance(node.op, Contraction) and node.op.name == "matmul":
            if node.output.type.size >= LARGE_WEIGHT and node.inputs[1] in body.inputs:
                return {node.inputs[1]}
    return set()


def _with_types(body: Graph, inputs: Iterable[Value], outputs: Iterable[Value]) -> Graph:
    """The body with the layouts of these values on its inputs and outputs."""
    new: dict[Value, Value] = {}
    for inner, outer in zip((*body.inputs, *body.outputs), (*inputs, *outputs), strict=True):
        new[inner] = replace(inner, type=inner.type.with_layout(outer.type.layout))

    def renew(values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(new.get(v, v) for v in values)

    nodes = tuple(replace(n, inputs=renew(n.inputs), outputs=renew(n.outputs)) for n in body.nodes)
    return replace(body, inputs=renew(body.inputs), nodes=nodes, outputs=renew(body.outputs))
