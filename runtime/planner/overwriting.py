"""Decide which values other values may overwrite, and the order of nodes that this requires."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from graphc.ir import Node, Value


class Overwriting:
    """The reads of `nodes`.

    `roots` has for each value the one whose bytes it is; `producer` has the number of the node that
    computes a value.
    """

    def __init__(
        self, nodes: Sequence[Node], roots: Mapping[Value, Value], producer: Mapping[Value, int]
    ) -> None:
        self.producer = producer
        self.output = {v: place for node in nodes for place, v in enumerate(node.outputs)}
        self.reads: list[dict[Value, list[int]]] = []
        """For each node the positions of its inputs, by their roots."""
        self.readers: dict[Value, set[int]] = {}
        self.successors: list[set[int]] = [set() for _ in nodes]
        for i, node in enumerate(nodes):
            reads: dict[Value, list[int]] = {}
            for place, value in enumerate(node.inputs):
                reads.setdefault(roots[value], []).append(place)
            self.reads.append(reads)
            for root in reads:
                self.readers.setdefault(root, set()).add(i)
                if root in producer:
                    self.successors[producer[root]].add(i)

    def allows(self, old: Value, new: Value, pairs: Collection[tuple[int, int]]) -> bool:
        """Whether the producer of `new` may write it over `old`.

        Safe if the producer reads the old contents only element by element as `pairs` allow, or
        not at all, and every other reader of them can come before the producer.
        """
        writer = self.producer[new]
        reads = self.reads[writer].get(old, [])
        if len(reads) > 1 or any((i, self.output[new]) not in pairs for i in reads):
            return False
        others = self.readers.get(old, set()) - {writer}
        return not others & _reachable(writer, self.successors)

    def decide(self, old: Value, new: Value) -> None:
        """Let the producer of `new` write it over `old`: all other readers of `old` run first."""
        writer = self.producer[new]
        for reader in self.readers.get(old, set()) - {writer}:
            self.successors[reader].add(writer)

    def follow_first(self, values: Collection[Value]) -> None:
        """Let the first of the nodes that make `values` run before the others: they write one
        buffer, which it takes."""
        writers = sorted({self.producer[v] for v in values if v in self.producer})
        for other in writers[1:]:
            self.successors[writers[0]].add(other)


def _reachable(start: int, successors: list[set[int]]) -> set[int]:
    """All nodes that follow `start`."""
    seen: set[int] = set()
    stack = [start]
    while stack:
        for j in successors[stack.pop()] - seen:
            seen.add(j)
            stack.append(j)
    return seen
