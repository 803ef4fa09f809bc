"""Which values may be written over others, and the order of nodes that follows from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from graphc.ir import Node, Value


class Overwriting:
    """`nodes` and what they read, by roots: for each value the one whose bytes it is. `producer`
    has the number of the node that makes a value."""

    def __init__(
        self, nodes: Sequence[Node], roots: Mapping[Value, Value], producer: Mapping[Value, int]
    ) -> None:
        self.nodes, self.roots, self.producer = nodes, roots, producer
        self.readers: dict[Value, set[int]] = {}
        self.successors: list[set[int]] = [set() for _ in nodes]
        for i, node in enumerate(nodes):
            for root in {roots[v] for v in node.inputs}:
                self.readers.setdefault(root, set()).add(i)
                if root in producer:
                    self.successors[producer[root]].add(i)

    def allow(self, old: Value, new: Value, pairs: Collection[tuple[int, int]]) -> bool:
        """Whether the producer of `new` may write it over `old`, and if so, take it as decided.

        Safe if the producer reads the old contents only element by element as `pairs` allow, or
        not at all, and every other reader of them can come before the producer.
        """
        writer = self.producer[new]
        node = self.nodes[writer]
        reads = [i for i, v in enumerate(node.inputs) if self.roots[v] == old]
        target = node.outputs.index(new)
        if len(reads) > 1 or any((i, target) not in pairs for i in reads):
            return False
        others = self.readers.get(old, set()) - {writer}
        if others & _reachable(writer, self.successors):
            return False
        for reader in others:
            self.successors[reader].add(writer)
        return True


def _reachable(start: int, successors: list[set[int]]) -> set[int]:
    seen: set[int] = set()
    stack = [start]
    while stack:
        for j in successors[stack.pop()] - seen:
            seen.add(j)
            stack.append(j)
    return seen
