"""Order kernels by their turns (`Where.turn`), which the passes before may have mixed up.

In a pipeline's program the forward and the backward pass of each micro-batch have a turn. A kernel
has the first turn of its nodes, but not one before those of what it reads: a kernel of the forward
pass that also computes what the backward pass reads is early, and none waits for a message before
its turn. A kernel without a turn is placed where the first one that needs it begins, and behind all
others if none does.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import Graph, Value
from graphc.ir.rewrite import topological


def order_turns(graph: Graph, target: Target) -> Graph:
    """Return `graph` with its turns one after the other."""
    if not any(node.where.turn for node in graph.nodes):
        return graph
    turns: dict[Value, int] = {}
    inside, others = [], []
    for node in graph.nodes:
        turn = max((turns.get(v, 0) for v in node.inputs), default=0)
        if node.where.turn:
            turn = max(turn, node.where.turn)
            inside.append((turn, node))
        else:
            others.append(node)
        turns.update(dict.fromkeys(node.outputs, turn))
    inside.sort(key=lambda pair: pair[0])
    return replace(graph, nodes=topological([*(node for _, node in inside), *others]))
