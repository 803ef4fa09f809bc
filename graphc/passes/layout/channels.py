"""Put channels into the lanes, on the CPU where a batch is too small to fill them.

With `[n][c / W][h][w][W]` a register holds neighbouring channels of one pixel, so that images of
any size fill the vectors, and what is done channel by channel (batch norm, pooling, activations) is
done lane by lane. A weight is read with its output channels in lanes, so that a convolution costs a
conversion of its weight, and the borders to what keeps row-major values cost conversions too.

A kernel can have channels in the lanes if they fill the widest registers, whatever those of the
target, and it uses them as one axis of all its images. Kernels that share such a value form a
region, which gets lanes together if its convolutions are estimated to gain more by them than its
conversions cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphc.base.target import Target
from graphc.ir import ROW_MAJOR, Graph, Layout, Node, Type, Value, Where
from graphc.ir.rewrite import drop_dead, names_of
from graphc.ir.sections import sections_of_sums
from graphc.ir.sum_order import LANES
from graphc.ops.axes import SUMMED
from graphc.ops.base import Index, Op
from graphc.ops.cost import node_flops
from graphc.ops.fused import Fused, KernelNode
from graphc.ops.layout import Relayout
from graphc.ops.pointwise.widen import Widen
from graphc.ops.view import PermuteDims, Slice
from graphc.passes.fuse.channels import has_kernels
from graphc.passes.layout.layout import with_types
from graphc.passes.rewriting.naming import KernelNames

PEAK_SHARE = 0.75
"""Of the multiply-add peak that convolutions with channels in the lanes reach. Batch 8, a core of
2019: 0.63 to 0.80, for 3 x 3 and for 1 x 1."""

ROW_SHARE = 0.55
"""The same of row-major ones, whose lanes are neighbours in an image's row and full."""


def channel_lanes(graph: Graph, target: Target) -> Graph:
    """Give values layouts with channels in the lanes where that is estimated to pay."""
    if not target.has_lanes:
        return graph
    kernels = {id(n): k for n in graph.nodes if (k := _kernel(n)) is not None}
    if not any(k.gain for k in kernels.values()):
        return graph
    chosen = _Regions(graph, kernels, target).paying()
    return _Rewriting(graph, chosen, target.lanes).run() if chosen else graph


@dataclass(frozen=True)
class _Kernel:
    """A kernel that can have channels in the lanes.

    It has the inputs and outputs that would, and the share of its time at the multiply-add peak
    that it would save.
    """

    node: KernelNode
    laned: frozenset[Value]
    gain: float = 0.0
    weight: Value | None = None
    """What must be converted for it: the operand that is no image."""


def _kernel(node: Node) -> _Kernel | None:
    """Return a node with channels in the lanes; None if it cannot or has lanes already."""
    if not isinstance(node, KernelNode):
        return None
    body = node.body
    if any(v.type.layout != ROW_MAJOR for v in (*body.inputs, *body.outputs)):
        return None
    images = {v for v in body.inputs if _is_image(v.type)}
    product = next((n for n in body.nodes if n.op.contracts), None)
    weight, gain = None, 0.0
    if product is not None:
        if not _can_be_laned(body, product):
            return None
        gradient = product.op.called == "wgrad"
        weight = None if gradient else _source(body, product.inputs[1])
        images -= {weight}
        pixels = (product.inputs[1] if gradient else product.output).type.shape[3]
        filled = pixels / (LANES * -(-pixels // LANES))
        gain = 1 / (ROW_SHARE * filled) - 1 / PEAK_SHARE
    laned = _followed(body, images, product)
    if not laned:
        return None
    outer = dict(zip((*body.inputs, *body.outputs), (*node.inputs, *node.outputs), strict=True))
    return _Kernel(
        node, frozenset(outer[v] for v in laned), gain, None if weight is None else outer[weight]
    )


def _is_image(type: Type) -> bool:
    """Return whether a value of several pixels has channels that fill whole registers."""
    if type.rank != 4 or not type.size:
        return False
    return type.shape[1] % LANES == 0 and type.shape[2] * type.shape[3] > 1


def _can_be_laned(body: Graph, product: Node) -> bool:
    """Return whether the contraction has kernels with channels in the lanes."""
    if product.output.type.dtype != "f32" or not has_kernels(product):
        return False
    if sections_of_sums(body) is not None:
        return False
    a, b = (_stored(body, v) for v in product.inputs)
    if a not in body.inputs:
        return False
    if product.op.called == "wgrad":
        return b in body.inputs and a.type.dtype == b.type.dtype and body.outputs == product.outputs
    weight = _source(body, b)
    if weight is None or a == weight or a.type.dtype != weight.type.dtype:
        return False
    return all(_is_walked(n.op) for n in body.nodes if n is not product)


def _stored(body: Graph, value: Value) -> Value:
    """Return the stored value of one that is converted where it is read."""
    node = body.producers.get(value)
    return node.inputs[0] if node is not None and node.op.converts_reads else value


def _source(body: Graph, weight: Value) -> Value | None:
    """Return the input that `weight` is some taps of, if nothing else reads it; else None."""
    while weight not in body.inputs:
        node = body.producers[weight]
        if not isinstance(node.op, Slice | Widen) or len(body.consumers.get(weight, [])) != 1:
            return None
        if node.output.type.shape[:2] != node.inputs[0].type.shape[:2]:
            return None
        (weight,) = node.inputs
    alone = len(body.consumers.get(weight, [])) == 1 and weight not in body.outputs
    return weight if alone else None


def _followed(body: Graph, images: set[Value], product: Node | None) -> frozenset[Value] | None:
    """Return which inputs and outputs of `body` have lanes if `images` have; None if impossible."""
    if product is not None and product.op.called != "wgrad":
        images = images | {product.output}
    axes = dict.fromkeys(images, 1)
    reduced: set[Value] = set()
    for node in body.nodes:
        if node is product or not any(v in axes for v in node.inputs):
            continue
        axis = _axis(node, axes)
        if axis is None:
            return None
        if node.op.reduced_axes is not None or any(v in reduced for v in node.inputs):
            reduced.update(node.outputs)
        elif axis != 1 or any(v.type.rank != 4 for v in node.outputs):
            return None
        axes.update(dict.fromkeys(node.outputs, axis))
    for node in body.nodes:
        if node.op.reduced_axes is not None and axes.get(node.inputs[0]) != 1:
            return None
    laned = {v for v in (*body.inputs, *body.outputs) if v in axes}
    return frozenset(v for v in laned if axes[v] == 1 and _is_image(v.type))


def _axis(node: Node, axes: dict[Value, int]) -> int | None:
    """Return the axis of the outputs that is the channels'.

    It is None if there is none, or if the op's kernels cannot choose their lanes.
    """
    op = node.op
    if op.own_template or op.contracts or isinstance(op, Index):
        return None
    maps = op.axis_map(*(v.type for v in node.inputs))[0]
    places = {to[axes[v]] for v, to in zip(node.inputs, maps, strict=True) if v in axes}
    (place, *others) = places
    if others or place is None or place == SUMMED:
        return None
    if not op.pointwise and not all(v in axes for v in node.inputs):
        return None
    return place


class _Regions:
    """Kernels that can have lanes, by the values that they share."""

    def __init__(self, graph: Graph, kernels: dict[int, _Kernel], target: Target) -> None:
        self.graph, self.kernels, self.rates = graph, kernels, target.kind.rates
        self.parents: dict[Value, Value] = {}
        for kernel in kernels.values():
            first, *others = kernel.laned
            for value in others:
                self.parents[self._region(value)] = self._region(first)

    def paying(self) -> dict[int, _Kernel]:
        """Return the kernels of regions that gain more microseconds than they cost."""
        sums: dict[Value, float] = {}
        forms: set[tuple[Value, str]] = set()
        for kernel in self.kernels.values():
            region = self._region(next(iter(kernel.laned)))
            gain = kernel.gain * node_flops(kernel.node) / self.rates.flops
            sums[region] = sums.get(region, 0.0) + gain
            if kernel.weight is not None:
                form = kernel.weight, _product(kernel.node).op.name
                sums[region] -= 0.0 if form in forms else self._conversion(kernel.weight)
                forms.add(form)
        for value in self._converted():
            sums[self._region(value)] -= self._conversion(value)
        paying = {region for region, sum in sums.items() if sum > 0}
        return {
            key: kernel
            for key, kernel in self.kernels.items()
            if self._region(next(iter(kernel.laned))) in paying
        }

    def _converted(self) -> Iterator[Value]:
        """Return the values that some kernels would read with lanes and others without."""
        with_lanes = {v for k in self.kernels.values() for v in k.laned}
        without = set(self.graph.results)
        made = {*self.graph.inputs, *self.graph.state}
        for node in self.graph.nodes:
            kernel = self.kernels.get(id(node))
            laned = kernel.laned if kernel else frozenset()
            without.update(v for v in node.inputs if v not in laned)
            made.update(v for v in node.outputs if v not in laned)
        return (v for v in with_lanes if v in without or v in made)

    def _conversion(self, value: Value) -> float:
        return 2 * value.type.nbytes / self.rates.bytes

    def _region(self, value: Value) -> Value:
        while (parent := self.parents.get(value, value)) != value:
            value = parent
        return value


class _Rewriting:
    """Gives the chosen kernels their lanes, with conversions at the borders."""

    def __init__(self, graph: Graph, chosen: dict[int, _Kernel], width: int) -> None:
        self.graph, self.chosen = graph, chosen
        self.names, self.kernels = names_of(graph), KernelNames(graph)
        self.channels, self.first = Layout(1, width), Layout(0, width)
        self.row: dict[Value, Value] = {v: v for v in (*graph.inputs, *graph.state)}
        self.laned: dict[Value, Value] = {}
        self.weights: dict[Value, Value] = {}
        self.turned: dict[Value, Value] = {}
        self.nodes: list[Node] = []

    def run(self) -> Graph:
        for node in self.graph.nodes:
            kernel = self.chosen.get(id(node))
            if kernel is None:
                inputs = tuple(self._as_row(v, node.where) for v in node.inputs)
                self.nodes.append(replace(node, inputs=inputs))
                self.row.update(zip(node.outputs, node.outputs, strict=True))
            else:
                self._kernel(kernel)
        wheres = {v: n.where for n in self.graph.nodes for v in n.outputs}

        def result(value: Value) -> Value:
            return self._as_row(value, wheres.get(value, Where()))

        outputs = tuple(map(result, self.graph.outputs))
        updates = tuple((old, result(v)) for old, v in self.graph.updates)
        graph = replace(self.graph, nodes=tuple(self.nodes), outputs=outputs, updates=updates)
        return drop_dead(graph)

    def _kernel(self, kernel: _Kernel) -> None:
        node = kernel.node
        if kernel.weight is not None and _product(node).op.called == "dgrad":
            node = self._with_transposed(node, kernel.weight)
        inputs, outputs = [], []
        for value in node.inputs:
            if value in kernel.laned:
                inputs.append(self._as_laned(value, node.where))
            elif value == kernel.weight:
                inputs.append(self._with_lanes(value, node.where))
            elif value in self.turned.values():
                inputs.append(value)
            else:
                inputs.append(self._as_row(value, node.where))
        for value in node.outputs:
            laned = value in kernel.laned
            new = replace(value, type=value.type.with_layout(self.channels)) if laned else value
            (self.laned if laned else self.row)[value] = new
            outputs.append(new)
        body = with_types(node.body, inputs, outputs)
        op = replace(node.op, body=body)
        self.nodes.append(replace(node, op=op, inputs=tuple(inputs), outputs=tuple(outputs)))

    def _with_transposed(self, node: KernelNode, weight: Value) -> KernelNode:
        """Return a data gradient that reads `weight` with its first two axes exchanged."""
        if weight not in self.turned:
            self.turned[weight] = self._transposed(self._as_row(weight, node.where), node.where)
        turned, body = self.turned[weight], node.body
        old = body.inputs[node.inputs.index(weight)]
        back = Node(PermuteDims((1, 0, 2, 3)), (turned,), (old,), node.where)
        body = replace(
            body,
            inputs=tuple(turned if v == old else v for v in body.inputs),
            nodes=(back, *body.nodes),
        )
        inputs = tuple(turned if v == weight else v for v in node.inputs)
        return replace(node, op=replace(node.op, body=body), inputs=inputs)

    def _transposed(self, weight: Value, where: Where) -> Value:
        """Return [k, c, r, s] as [c, k, r, s] with lanes of c, from a kernel of its own."""
        op = PermuteDims((1, 0, 2, 3))
        (type,) = op.infer(weight.type)
        name = self.names.fresh(f"{weight.name}.turned")
        output = Value(name, type.with_layout(self.first))
        turn = Node(op, (weight,), (output,), where)
        kernel = self.kernels.name([turn], {})
        body = Graph(kernel, (weight,), (), (turn,), (output,))
        self.nodes.append(KernelNode(Fused(kernel, body), (weight,), (output,), where))
        return output

    def _with_lanes(self, weight: Value, where: Where) -> Value:
        """Return [k, c, r, s] with lanes of k."""
        if weight not in self.weights:
            row = self._as_row(weight, where)
            self.weights[weight] = self._convert(row, self.first, f"{weight.name}.lanes", where)
        return self.weights[weight]

    def _as_row(self, value: Value, where: Where) -> Value:
        if value not in self.row:
            laned = self.laned[value]
            self.row[value] = self._convert(laned, ROW_MAJOR, f"{value.name}.row", where)
        return self.row[value]

    def _as_laned(self, value: Value, where: Where) -> Value:
        if value not in self.laned:
            row = self.row[value]
            self.laned[value] = self._convert(row, self.channels, f"{value.name}.lanes", where)
        return self.laned[value]

    def _convert(self, value: Value, layout: Layout, name: str, where: Where) -> Value:
        new = Value(self.names.fresh(name), value.type.with_layout(layout))
        self.nodes.append(Node(Relayout(layout), (value,), (new,), where))
        return new


def _product(node: KernelNode) -> Node:
    return next(n for n in node.body.nodes if n.op.contracts)


def _is_walked(op: Op) -> bool:
    """Return whether a value of the op is computed where it is read."""
    return op.pointwise or op.moves or op.is_source
