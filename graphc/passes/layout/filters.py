"""Store filters channels-last in the state itself, so that no launch converts them.

A convolution reads its filters [k, c, r, s] with the channels last, as it does images. Those that
the program changes would be converted in each call; so they stay as they are read, between calls
as well, and with them what their update goes through beside them: the gradient, which a block's
sums leave as runs of channels, and moments. The host's arrays stay row-major (`DeviceCopy`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from graphc.ir import Graph, Type, Value
from graphc.ops.fused import KernelNode, kernels_in


def lasting(
    graph: Graph,
    filters: Iterable[Value],
    possible: Callable[[KernelNode], Iterable[Value]],
    whole: Callable[[Type], bool],
) -> frozenset[Value]:
    """Return the filters, and other values of their shapes, that are channels-last.

    `filters` are state or made by kernels. Types must be `whole`, every kernel must have the value
    among its `possible` ones, and state and its new contents must have the same layout.
    """
    updates = dict(graph.updates)
    nodes = kernels_in(graph)
    known = set(map(id, nodes))
    allowed = set(updates) | {v for n in nodes for v in n.outputs}
    allowed -= {*graph.outputs, *(v for n in graph.nodes if id(n) not in known for v in n.inputs)}
    for node in nodes:
        allowed -= {*node.inputs, *node.outputs}.difference(possible(node))
    allowed = {v for v in allowed if whole(v.type)}
    chosen = grown(allowed.intersection(filters), allowed, nodes, lambda a, b: a.shape == b.shape)
    while apart := set(_inconsistent_updates(updates.items(), chosen)):
        chosen -= apart
    return frozenset(chosen)


def grown(
    seeds: Collection[Value],
    allowed: Collection[Value],
    nodes: Iterable[KernelNode],
    alike: Callable[[Type, Type], bool] = lambda a, b: True,
) -> set[Value]:
    """Add to `seeds` the `allowed` values that kernels read or make beside them, transitively.

    Their types must be `alike`.
    """
    touching: dict[Value, list[KernelNode]] = {}
    for node in nodes:
        for value in dict.fromkeys((*node.inputs, *node.outputs)):
            touching.setdefault(value, []).append(node)
    chosen, waiting = set(seeds), [*seeds]
    while waiting:
        value = waiting.pop()
        beside = {v for node in touching.get(value, ()) for v in (*node.inputs, *node.outputs)}
        new = {v for v in beside if v in allowed and alike(v.type, value.type)} - chosen
        chosen |= new
        waiting += new
    return chosen


def _inconsistent_updates(
    updates: Iterable[tuple[Value, Value]], chosen: Collection[Value]
) -> Iterator[Value]:
    """Of state and its new contents that one is chosen of, that one."""
    for old, new in updates:
        if (old in chosen) != (new in chosen):
            yield old if old in chosen else new
