"""Place constants: one too large to print into a kernel becomes state that nothing updates."""

from __future__ import annotations

from dataclasses import replace

from graphc.ir import Graph, Value
from graphc.ops.constant import Constant
from graphc.passes.groups import INLINE_ELEMENTS
from graphc.passes.rewrite import substitute
from graphc.target import Target

PREFIX = "constant."


def place_constants(graph: Graph, target: Target) -> Graph:
    """`graph` with large constants as state values named by their digest."""
    placed: dict[Value, Value] = {}
    for node in graph.nodes:
        if isinstance(node.op, Constant) and node.output.type.size > INLINE_ELEMENTS:
            placed[node.output] = Value(PREFIX + node.op.value.digest, node.output.type)
    nodes = [n for n in graph.nodes if n.outputs[0] not in placed]
    state = (*graph.state, *dict.fromkeys(placed.values()))
    return substitute(replace(graph, state=state), nodes, placed)
