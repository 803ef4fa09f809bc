"""Give images channels-last layouts, for kernels that copy 16 bytes at once.

As `[n][h][w][c]` an image's channels lie side by side at every pixel, so that convolutions copy
whole runs of them, whatever the padding and the filter; row-major, what neighbours in a row hold
begins at any address. The layout is `Layout(1, width)` with one block: `width` is the number of
channels, rounded up to whole copies, and what lies behind the channels is never read. Weights
[k, c, r, s] lie so too, those that the program changes between its calls as well (`filters.py`);
what is given otherwise, or is no whole copies, is converted in one launch.

Every kernel reads and writes every such layout, so that nothing but the speed depends on the
choice: a value has its channels last if a convolution reads or writes it, or a kernel that has to
do with such values, and if kernels make it and read it. What else a convolution reads is converted
where that is estimated to cost less than the convolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from graphc.base.target import Target
from graphc.ir import ROW_MAJOR, Graph, Layout, Node, Type, Value
from graphc.ir.rewrite import drop_dead, names_of
from graphc.ir.sections import sections_of_sums
from graphc.ops.cost import node_flops
from graphc.ops.fused import Fused, KernelNode, kernels_in
from graphc.ops.layout import Relayout
from graphc.passes.layout.filters import grown, lasting
from graphc.passes.layout.layout import with_types
from graphc.passes.rewriting.naming import KernelNames

TEMPLATES = ("contract", "pointwise", "reduce")
"""Of kernels that find every element by its layout."""

LEAST_CHANNELS = 3
"""Channels of an image that is converted for a convolution: with fewer, padding is most of it."""


def channels_last(graph: Graph, target: Target) -> Graph:
    """Give images channels-last layouts where kernels copy several elements at once."""
    if target.kind.copied_bytes == 1:
        return graph
    convolutions = [c for n in kernels_in(graph) if (c := _convolution(n)) is not None]
    if not convolutions:
        return graph
    images = _grown(graph, {v for c in convolutions for v in c.images})
    converted = _Converted(graph, images, target)
    for convolution in convolutions:
        converted.count(convolution)
    filters = [c.weight for c in convolutions if c.weight is not None]
    kept = lasting(graph, filters, _possible, _has_whole_copies)
    return _Rewriting(graph, images | kept, converted).run()


def _possible(node: KernelNode) -> set[Value]:
    """Return the values of a kernel that may have any layout."""
    if node.op.template not in TEMPLATES:
        return set()
    return {*node.inputs, *node.outputs}.difference(_row_major(node))


def _has_whole_copies(type: Type) -> bool:
    """Return whether a value has channels that are whole copies."""
    return _is_image(type) and last(type).layout.width == type.shape[1]


@dataclass(frozen=True)
class _Convolution:
    """A kernel with an ungrouped convolution, the images that it reads or makes, and its weight."""

    node: KernelNode
    images: tuple[Value, ...]
    weight: Value | None
    operands: tuple[Value, ...]


def _convolution(node: KernelNode) -> _Convolution | None:
    """Return `node` as a convolution; None if it would not gain from channels-last."""
    body = node.body
    product = next((n for n in body.nodes if n.op.contracts), None)
    if product is None or sections_of_sums(body) is not None:
        return None
    if not product.op.images or getattr(product.op, "groups", 1) != 1:
        return None
    outer = dict(zip((*body.inputs, *body.outputs), (*node.inputs, *node.outputs), strict=True))
    first, second = (outer[_source(body, v)] for v in product.inputs)
    if product.op.images == 2:  # the gradient of a weight
        return _Convolution(node, (first, second), None, (first, second))
    made = _like(body.outputs, node.outputs, product.output.type)
    return _Convolution(node, (first, *made), second, (first,))


def _source(body: Graph, value: Value) -> Value:
    """Return the input of the body that `value` is a view or conversion of."""
    while value not in body.inputs:
        (value,) = body.producers[value].inputs
    return value


def _like(inner: Sequence[Value], outer: Sequence[Value], type: Type) -> tuple[Value, ...]:
    pairs = zip(inner, outer, strict=True)
    return tuple(o for i, o in pairs if i.type.shape == type.shape)


def _grown(graph: Graph, seeds: set[Value]) -> frozenset[Value]:
    """Return images that may be channels-last: of `seeds`, and those that share their kernels."""
    kernels = [n for n in kernels_in(graph) if n.op.template in TEMPLATES]
    possible = {v for n in kernels for v in n.outputs if _is_image(v.type)} - set(graph.results)
    known = set(map(id, kernels))
    possible -= {v for n in graph.nodes if id(n) not in known for v in n.inputs}
    possible -= {v for n in kernels for v in _never(n)}
    return frozenset(grown(seeds & possible, possible, kernels))


def _is_image(type: Type) -> bool:
    """Return whether a value has channels and pixels."""
    if type.rank != 4 or type.layout != ROW_MAJOR or not type.size:
        return False
    return type.shape[1] > 1 and type.shape[2] * type.shape[3] > 1


def _never(node: KernelNode) -> Iterator[Value]:
    """Return values that are no images, such as weights and their gradients."""
    body = node.body
    outer = dict(zip(body.inputs, node.inputs, strict=True))
    for inner in body.nodes:
        if inner.op.contracts and inner.op.images == 1:
            yield outer[_source(body, inner.inputs[1])]
        elif inner.op.contracts:
            yield from node.outputs
    yield from _row_major(node)


def _row_major(node: KernelNode) -> Iterator[Value]:
    """Return values that must be row-major: those cut into sections or read in another shape."""
    body = node.body
    outer = dict(zip(body.inputs, node.inputs, strict=True))
    for inner in body.nodes:
        if inner.op.contracts and sections_of_sums(body) is not None:
            yield from (*node.inputs, *node.outputs)
        if inner.op.moves and inner.op.index(inner.inputs[0].type) is None:
            yield from (outer[v] for v in _moved(body, inner.inputs[0]))


def _moved(body: Graph, value: Value) -> list[Value]:
    """Return the input of the body that `value` is a moved copy of, if any."""
    while value not in body.inputs:
        node = body.producers[value]
        if not node.op.moves:
            return []
        (value,) = node.inputs
    return [value]


@dataclass
class _Converted:
    """Row-major operands to convert, where their convolutions take longer than that."""

    graph: Graph
    images: frozenset[Value]
    target: Target
    time: dict[Value, float] = field(default_factory=dict)
    """Microseconds of the convolutions that read an operand."""

    def count(self, convolution: _Convolution) -> None:
        """Count a convolution as a reader of its operands."""
        time = node_flops(convolution.node) / self.target.kind.rates.flops
        weight = convolution.weight
        few = any(v.type.shape[1] < LEAST_CHANNELS for v in convolution.operands)
        for value in convolution.operands:
            if value not in self.images and not few:
                self.time[value] = self.time.get(value, 0.0) + time
        if weight is not None and not few:
            self.time[weight] = self.time.get(weight, 0.0) + time

    def pays(self, value: Value) -> bool:
        """Return whether converting a kernel's input pays.

        State that the program does not change is converted once, before its calls; the whole copy
        is shared with programs that do change it.
        """
        if value not in self.time or not _is_image(value.type):
            return False
        updated = (old for old, _ in self.graph.updates)
        if _has_whole_copies(value.type) and value in self.graph.state and value not in updated:
            return True
        rates = self.target.kind.rates
        return self.time[value] > 2 * value.type.nbytes / rates.bytes


class _Rewriting:
    """Gives images their layout, and converts other operands of convolutions."""

    def __init__(self, graph: Graph, images: frozenset[Value], converted: _Converted) -> None:
        self.graph, self.images, self.converted = graph, images, converted
        self.names, self.kernels = names_of(graph), KernelNames(graph)
        self.new: dict[Value, Value] = {}
        """Old value -> the one that convolutions read, or all kernels if it is an image."""

    def run(self) -> Graph:
        nodes: list[Node] = []
        for value in self.images:
            self.new[value] = replace(value, type=last(value.type))
        wanted = self._to_convert()
        updated = {old for old, _ in self.graph.updates}
        given = [v for v in wanted if v in self.graph.state or v in self.graph.inputs]
        packed = [v for v in given if v in self.graph.state and v not in updated]
        nodes += [self._conversion(v, wanted[v]) for v in packed]
        nodes += self._joined([(v, wanted[v]) for v in given if v not in packed])
        kernels = {id(n): n for n in kernels_in(self.graph)}
        for node in self.graph.nodes:
            kernel = kernels.get(id(node))
            nodes.append(node if kernel is None else self._kernel(kernel))
            made = [v for v in node.outputs if v in wanted]
            nodes += self._joined([(v, wanted[v]) for v in made])
        state = tuple(map(self._with_layout, self.graph.state))
        updates = tuple((self._with_layout(a), self._with_layout(b)) for a, b in self.graph.updates)
        return drop_dead(replace(self.graph, nodes=tuple(nodes), state=state, updates=updates))

    def _with_layout(self, value: Value) -> Value:
        """Return the value under the layout that all kernels use."""
        return self.new[value] if value in self.images else value

    def _to_convert(self) -> dict[Value, Node]:
        """Return the operands to convert, with the first kernel that reads each."""
        found: dict[Value, Node] = {}
        for node in kernels_in(self.graph):
            if (convolution := _convolution(node)) is not None:
                for value in self._operands(convolution):
                    if value not in self.images and self.converted.pays(value):
                        found.setdefault(value, node)
        return found

    @staticmethod
    def _operands(convolution: _Convolution) -> tuple[Value, ...]:
        weight = convolution.weight
        return (*convolution.operands, *(() if weight is None else (weight,)))

    def _joined(self, wanted: Sequence[tuple[Value, Node]]) -> list[Node]:
        """Return one kernel that converts all of them."""
        if not wanted:
            return []
        parts = tuple(self._conversion(value, reader) for value, reader in wanted)
        inputs = tuple(v for n in parts for v in n.inputs)
        outputs = tuple(n.output for n in parts)
        kernel = self.kernels.fresh(f"{inputs[0].name}_last")
        body = Graph(kernel, inputs, (), parts, outputs)
        return [KernelNode(Fused(kernel, body), inputs, outputs, wanted[0][1].where)]

    def _conversion(self, value: Value, reader: Node) -> Node:
        new = replace(value, name=self.names.fresh(f"{value.name}.last"), type=last(value.type))
        self.new[value] = new
        return Node(Relayout(new.type.layout), (value,), (new,), reader.where)

    def _kernel(self, node: KernelNode) -> Node:
        convolution = _convolution(node)
        operands = () if convolution is None else self._operands(convolution)

        def new(value: Value) -> Value:
            known = value in self.images or value in operands
            return self.new.get(value, value) if known else value

        inputs, outputs = tuple(map(new, node.inputs)), tuple(map(new, node.outputs))
        body = with_types(node.body, inputs, outputs)
        return replace(node, op=replace(node.op, body=body), inputs=inputs, outputs=outputs)


def last(type: Type) -> Type:
    """Return an image or a weight under a channels-last layout of whole copies."""
    whole = 8 if type.numpy_dtype.itemsize <= 2 else 4
    return type.with_layout(Layout(1, -(-type.shape[1] // whole) * whole))
