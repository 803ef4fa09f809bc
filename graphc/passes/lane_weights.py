"""Lane weights: a loop's large weights lie so that its kernels read whole cache lines.

The gradient of a recurrent product reads its weight f32[k,n] along k, for a few columns at a time:
of each line that arrives, a tile uses some columns and drops the others. With k in the lanes a tile
reads `width` steps of a column as one line. That is one conversion, outside the loop, and pays
where the weight does not stay in the second-level cache from one iteration to the next. One core,
2 vectors of batch, 4096 x 1024: 139 GFLOP/s row-major, 227 so.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.ir import ROW_MAJOR, Graph, Layout, Node, Value
from graphc.ops.fused import Fused
from graphc.ops.layout import Relayout
from graphc.ops.scan import Scan
from graphc.passes.layout import with_types
from graphc.passes.rewrite import Names
from graphc.target import Target

LEAST_BYTES = 2 * 1024 * 1024
"""Of a weight that is worth it."""


def lane_weights(graph: Graph, target: Target) -> Graph:
    """`graph` with such weights converted before their loops."""
    if target.device != "cpu" or target.lanes == 1:
        return graph
    names, nodes = Names(graph), list[Node]()
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            for number in range(node.op.constants):
                node = _converted(node, number, Layout(0, target.lanes), names, nodes)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _converted(node: Node, number: int, layout: Layout, names: Names, nodes: list[Node]) -> Node:
    """The scan with a constant in `layout`, made by a node that is added to `nodes`, if all its
    readers gain by that."""
    op, value = node.op, node.inputs[number]
    assert isinstance(op, Scan)
    inner, body = op.body.inputs[number], op.body
    readers = body.consumers.get(inner, [])
    large = value.type.nbytes >= LEAST_BYTES and value.type.layout == ROW_MAJOR
    if not large or not readers or inner in body.outputs:
        return node
    if value.type.shape[0] % layout.width or not all(_reads_along_rows(n, inner) for n in readers):
        return node
    laned = Value(names.fresh(f"{value.name}.lanes"), value.type.with_layout(layout))
    nodes.append(Node(Relayout(layout), (value,), (laned,), node.where))
    new = replace(inner, type=laned.type)
    body = replace(
        body,
        inputs=tuple(new if v == inner else v for v in body.inputs),
        nodes=tuple(_with_input(n, inner, new) if n in readers else n for n in body.nodes),
    )
    inputs = (*node.inputs[:number], laned, *node.inputs[number + 1 :])
    return replace(node, op=replace(op, body=body), inputs=inputs)


def _reads_along_rows(node: Node, weight: Value) -> bool:
    """Whether the node is a product of a batch in the lanes and `weight`, summed over the rows of
    the weight."""
    if not isinstance(node.op, Fused) or node.inputs.count(weight) != 1:
        return False
    place = node.op.body.inputs[node.inputs.index(weight)]
    readers = node.op.body.consumers.get(place, [])
    return (
        place.type.rank == 2
        and [n.op.name for n in readers] == ["matmul"]
        and readers[0].inputs[1] == place
        and readers[0].inputs[0].type.layout.axis == 0
    )


def _with_input(node: Node, old: Value, new: Value) -> Node:
    assert isinstance(node.op, Fused)
    inputs = tuple(new if v == old else v for v in node.inputs)
    body = with_types(node.op.body, inputs, node.outputs)
    return replace(node, op=replace(node.op, body=body), inputs=inputs)
