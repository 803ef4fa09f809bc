"""Minimum cuts of small networks, by paths of fewest edges (J. Edmonds, R. Karp, 1972).

A library for graphs takes longer to import than a small model to compile.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable

Edge = tuple[Hashable, Hashable, float]
"""From, to, and the capacity, which may be infinite."""


def minimum_cut(edges: Iterable[Edge], source: Hashable, sink: Hashable) -> set[Hashable]:
    """Return the nodes on the side of the source, as many as any minimum cut has there.

    Every path from the source to the sink must have an edge of finite capacity.
    """
    left: dict[Hashable, dict[Hashable, float]] = {source: {}, sink: {}}
    for start, end, capacity in edges:
        beside = left.setdefault(start, {})
        beside[end] = beside.get(end, 0.0) + capacity
        left.setdefault(end, {}).setdefault(start, 0.0)
    while True:
        behind = _towards(left, sink)
        if source not in behind:
            return {node for node in left if node not in behind}
        path = [source]
        while path[-1] != sink:
            path.append(behind[path[-1]])
        steps = list(itertools.pairwise(path))
        flow = min(left[a][b] for a, b in steps)
        for a, b in steps:
            left[a][b] -= flow
            left[b][a] += flow


def _towards(
    left: dict[Hashable, dict[Hashable, float]], sink: Hashable
) -> dict[Hashable, Hashable]:
    """Return the next node towards the sink for all that edges with capacity left lead there.

    Their paths have as few edges as there can be.
    """
    behind = {sink: sink}
    waiting = [sink]
    for node in waiting:
        for before in left[node]:  # each edge has its reverse
            if before not in behind and left[before][node] > 0:
                behind[before] = node
                waiting.append(before)
    return behind
