"""Put the batch of convolutional and recurrent networks into the lanes, on the CPU.

With `[n / W][c][h][w][W]` every kernel's vectors are full whatever the number of channels, weights
stay in the user's layout, and pooling, softmax and normalisation work lane by lane. The price is
the batch's tail and a conversion of the inputs. The pass follows the batch axis from the inputs
through every kernel; a kernel that uses it other than as its own first axis keeps row-major values,
and `relayout` nodes stand between the two worlds. Images of convolutions come back to the lanes.

In a recurrent network the carries of its scans have lanes, and so have the elements that they scan:
a stack [t][n / W][h][W] has the batch as its second axis, and is at the same time a matrix of t * n
rows with lanes along its first, so that what was hoisted out of the loop has lanes too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import ROW_MAJOR, Graph, Layout, Node, Type, Value, Where
from graphc.ir.rewrite import drop_dead, names_of
from graphc.ir.sum_order import LANES
from graphc.ops.fused import KernelNode, kernels_in
from graphc.ops.layout import Relayout
from graphc.ops.loops.bodies import unique_names
from graphc.ops.loops.scan import BoundScan, Scan
from graphc.passes.layout.batch import carries_batch

LARGE_WEIGHT = 16384
"""Elements: the gradient of a dense layer's weight at least as large as this is computed with
features in the lanes, from a row-major activation, instead of adding lanes for every element."""

WIDE_WEIGHT = 64
"""Rows: the same for a weight of so many, whose gradient reads each element that often."""


def layout(graph: Graph, target: Target) -> Graph:
    """Give values layouts, and insert the conversions between them."""
    if not target.has_lanes:
        return graph
    batch, times = _batch_of_convolutions(graph), frozenset[int]()
    if not target.fills_lanes(batch):
        batch, times = _batch_of_scans(graph)
    if not batch:
        return graph
    on_batch = {v: a for v in graph.inputs if (a := _batch_axis(v.type, batch, times)) is not None}
    return unique_names(_Assignment(graph, target.lanes, on_batch, batch, times).run())


def _batch_of_convolutions(graph: Graph) -> int:
    """The first extent of the first convolution's image; 0 if there is none."""
    for node in kernels_in(graph):
        for inner in node.body.nodes:
            if inner.op.name == "conv2d":
                return inner.inputs[0].type.shape[0]
    return 0


def _batch_of_scans(graph: Graph) -> tuple[int, frozenset[int]]:
    """Return the batch of all scans and their lengths; 0 if there is none.

    It is the first size of the carries, if it is the same everywhere and fills the widest
    registers.
    """
    scans = [n.op for n in graph.nodes if isinstance(n.op, Scan)]
    if not any(_may_have_lanes(op) for op in scans):
        return 0, frozenset()
    carries = [v.type for op in scans for v in op.old_carries if v.type.rank > 1]
    batches = {t.shape[0] for t in carries}
    if len(batches) != 1 or max(batches) % LANES or not max(batches):
        return 0, frozenset()
    return batches.pop(), frozenset(op.length for op in scans)


def _may_have_lanes(op: Scan) -> bool:
    """Return whether the first axis of carries may be the lanes in a contraction of the body.

    It may not if it numbers the matrices of both operands, as for models that train side by side.
    """
    nodes = [n for k in op.body.nodes if isinstance(k, KernelNode) for n in k.body.nodes]
    products = [n for n in nodes if n.op.contracts]
    maps = [n.op.axis_map(*(v.type for v in n.inputs))[0] for n in products]
    return not maps or not all(0 in a and 0 in b for a, b in maps)


def _batch_axis(type: Type, batch: int, times: Iterable[int]) -> int | None:
    """Where a value of the user has its batch: first, or behind time where that is scanned."""
    if type.shape[:1] == (batch,) and (type.rank > 1 or not times):
        return 0
    if type.rank > 2 and type.shape[0] in times and type.shape[1] == batch:
        return 1
    return None


class _Assignment:
    """Decides and converts, in a graph or in the body of a scan."""

    def __init__(
        self,
        graph: Graph,
        width: int,
        on_batch: Mapping[Value, int],
        batch: int,
        times: frozenset[int],
        where: Where | None = None,
    ) -> None:
        self.graph, self.width, self.batch, self.times = graph, width, batch, times
        self.where = where or Where()
        """Where a body's values come from that it takes from outside and gives back."""
        self.names = names_of(graph)
        self.nodes: list[Node] = []
        self.on_batch = dict(on_batch)
        """Values, by their old names, with the axis that is the batch."""
        self.row: dict[Value, Value] = {v: v for v in (*graph.inputs, *graph.state)}
        """Old value -> its row-major form, where it exists."""
        self.laned: dict[Value, Value] = {}
        """Old value -> its form with lanes, where it exists."""

    def run(self) -> Graph:
        self._nodes()
        outputs = tuple(self._as_row(v) for v in self.graph.outputs)
        updates = tuple((old, self._as_row(v)) for old, v in self.graph.updates)
        graph = replace(self.graph, nodes=tuple(self.nodes), outputs=outputs, updates=updates)
        return drop_dead(graph)

    def run_body(self, op: Scan) -> Graph:
        """The body of `op`: what is on the batch comes in and goes out with lanes."""
        for value in self.graph.inputs:
            if value in self.on_batch:
                self.laned[value] = self._with_lanes(value)
                del self.row[value]
        self._nodes()
        kept = (*op.old_carries, *op.stacks)
        outputs = tuple(
            self._as_lanes(value, self.on_batch[like])
            if like in self.on_batch
            else self._as_row(value)
            for value, like in zip(op.results, kept, strict=True)
        )
        if op.guard is not None:
            outputs = (*outputs, self._as_row(op.guard))
        inputs = tuple(self.laned[v] if v in self.on_batch else v for v in self.graph.inputs)
        nodes = tuple(self.nodes)
        return drop_dead(replace(self.graph, inputs=inputs, nodes=nodes, outputs=outputs))

    def _nodes(self) -> None:
        for node in self.graph.nodes:
            if node.op.moves:
                self._reshape(node)
            elif isinstance(node.op, Scan):
                self._scan(Scan.bind(node))
            elif node.op.communicates:
                inputs = tuple(map(self._as_row, node.inputs))
                self.nodes.append(replace(node, inputs=inputs))
                self.row.update(zip(node.outputs, node.outputs, strict=True))
            else:
                assert isinstance(node, KernelNode), f"layout: {node.op.name} is not fused"
                self._kernel(node)

    def _reshape(self, node: Node) -> None:
        (source,), (output,) = node.inputs, node.outputs
        axis = self.on_batch.get(source)
        place = None if axis is None else self._same_rows(source.type, axis, output.type)
        if place is not None:
            self.on_batch[output] = place
            if source in self.laned:
                self.laned[output] = new = self._with_lanes(output)
                self.nodes.append(replace(node, inputs=(self.laned[source],), outputs=(new,)))
                return
        self.nodes.append(replace(node, inputs=(self._as_row(source),)))
        self.row[output] = output

    def _same_rows(self, source: Type, axis: int, result: Type) -> int | None:
        """The axis of `result` along which its lanes are those of `source` along `axis`."""
        if result.shape[: axis + 1] == source.shape[: axis + 1]:
            return axis
        rows = math.prod(source.shape[: axis + 1])
        for place, extent in enumerate(result.shape):
            if math.prod(result.shape[: place + 1]) == rows and extent % LANES == 0:
                return place if source.shape[axis] % LANES == 0 else None
        return None

    def _scan(self, loop: BoundScan) -> None:
        op, node = loop.op, loop.node
        inside = {v: self.on_batch[o] for v, o in loop.constants if o in self.on_batch}
        matrices = (v for v in op.old_carries if v.type.rank > 1)
        inside |= {v: 0 for v in matrices if v.type.shape[0] == self.batch}
        for inner, outer in loop.scanned:
            axis = self.on_batch.get(outer, _batch_axis(outer.type, self.batch, self.times))
            if axis:
                inside[inner] = axis - 1
        body = _Assignment(op.body, self.width, inside, self.batch, self.times, node.where)
        new_body = body.run_body(op)
        inputs = tuple(
            self._as_lanes(v, inside[b] + (b in op.elements)) if b in inside else self._as_row(v)
            for v, b in zip(node.inputs, op.body.inputs, strict=True)
        )
        made = [(c.last, c.old, 0) for c in loop.carries]
        for value, like, deeper in made + [(y, v, 1) for v, y in loop.stacks]:
            if like in body.on_batch:
                self.on_batch[value] = body.on_batch[like] + deeper
                self.laned[value] = self._with_lanes(value)
            else:
                self.row[value] = value
        outputs = tuple(self.laned.get(v, v) for v in node.outputs)
        op = replace(op, body=new_body)
        self.nodes.append(replace(node, op=op, inputs=inputs, outputs=outputs))

    def _kernel(self, node: KernelNode) -> None:
        op = node.op
        self._return_to_lanes(node)
        on_batch = {
            b: self.on_batch[v]
            for v, b in zip(node.inputs, op.body.inputs, strict=True)
            if v in self.on_batch
        }
        carried = carries_batch(op.body, on_batch) if on_batch else self._made(op.body)
        if carried is None:
            inputs = [self._as_row(v) for v in node.inputs]
            outputs = list(node.outputs)
            self.row.update(zip(outputs, outputs, strict=True))
        else:
            gone = not any(v in carried for v in op.body.outputs)
            as_row = _row_operands(op.body) if gone else set()
            inputs = [
                self._as_lanes(v, on_batch[b])
                if b in on_batch and b not in as_row
                else self._as_row(v)
                for v, b in zip(node.inputs, op.body.inputs, strict=True)
            ]
            outputs = []
            for value, inner in zip(node.outputs, op.body.outputs, strict=True):
                if inner in carried:
                    self.on_batch[value] = carried[inner]
                    self.laned[value] = new = self._with_lanes(value)
                else:
                    self.row[value] = new = value
                outputs.append(new)
        body = with_types(op.body, inputs, outputs)
        self.nodes.append(
            replace(node, op=replace(op, body=body), inputs=tuple(inputs), outputs=tuple(outputs))
        )

    def _return_to_lanes(self, node: KernelNode) -> None:
        """Give the image of a convolution lanes again, where a kernel before has left them.

        Converting it, as behind `interpolate`, costs far less than a convolution without lanes.
        """
        if self.times:
            return
        body = node.op.body
        images = {n.inputs[0] for n in body.nodes if n.op.name == "conv2d"}
        for value, inner in zip(node.inputs, body.inputs, strict=True):
            made = value not in self.graph.state and value not in self.on_batch
            if made and inner in images and value.type.shape[0] == self.batch:
                self.on_batch[value] = 0

    def _made(self, body: Graph) -> dict[Value, int] | None:
        """Return the batch axes of values from nothing, such as zeros for first carries."""
        if not self.times or any(v.type.rank for v in body.inputs):
            return None
        axes = {v: _batch_axis(v.type, self.batch, self.times) for v in body.outputs}
        if any(n.op.contracts or n.op.reduced_axes is not None for n in body.nodes):
            return None
        return None if None in axes.values() else {v: a for v, a in axes.items() if a is not None}

    def _with_lanes(self, value: Value) -> Value:
        axis = self.on_batch[value]
        return replace(value, type=value.type.with_layout(Layout(axis, self.width)))

    def _as_row(self, value: Value) -> Value:
        if value not in self.row:
            self.row[value] = self._convert(self.laned[value], ROW_MAJOR, f"{value.name}.row")
        return self.row[value]

    def _as_lanes(self, value: Value, axis: int) -> Value:
        layout = Layout(axis, self.width)
        if value not in self.laned:
            self.laned[value] = self._convert(self.row[value], layout, f"{value.name}.lanes")
        if self.laned[value].type.layout == layout:
            return self.laned[value]
        return self._convert(self._as_row(value), layout, f"{value.name}.lanes{axis}")

    def _convert(self, value: Value, layout: Layout, name: str) -> Value:
        new = Value(self.names.fresh(name), value.type.with_layout(layout))
        origin = next((n.where for n in self.nodes if value in n.outputs), None)
        if origin is None:  # an input, whose readers know it without lanes
            readers = (n for n in self.graph.nodes if value.name in (v.name for v in n.inputs))
            origin = next((n.where for n in readers), self.where)
        self.nodes.append(Node(Relayout(layout), (value,), (new,), origin))
        return new


def _row_operands(body: Graph) -> set[Value]:
    """The activation of a dense layer's large weight gradient: b of a matmul summed over n."""
    for node in body.nodes:
        if node.op.contracts and node.output.type.rank == 2:
            large = node.output.type.size >= LARGE_WEIGHT
            wide = node.output.type.shape[0] >= WIDE_WEIGHT
            if (large or wide) and node.inputs[1] in body.inputs:
                return {node.inputs[1]}
    return set()


def with_types(body: Graph, inputs: Iterable[Value], outputs: Iterable[Value]) -> Graph:
    """The body with the layouts of these values on its inputs and outputs."""
    new: dict[Value, Value] = {}
    for inner, outer in zip((*body.inputs, *body.outputs), (*inputs, *outputs), strict=True):
        new[inner] = replace(inner, type=inner.type.with_layout(outer.type.layout))

    def renew(values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(new.get(v, v) for v in values)

    nodes = tuple(replace(n, inputs=renew(n.inputs), outputs=renew(n.outputs)) for n in body.nodes)
    return replace(body, inputs=renew(body.inputs), nodes=nodes, outputs=renew(body.outputs))
