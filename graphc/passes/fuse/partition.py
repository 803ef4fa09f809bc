"""Partition a graph's nodes into groups without cycles.

Each group carries the sets of groups that depend on it and that it depends on, as bits of integers,
so that asking whether a merge would close a cycle takes one look at each group that follows, and
merging one at each group that comes before, or behind, one of the two alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from graphc.base.bits import bits
from graphc.base.errors import PlanError
from graphc.ir import Graph, Node, Value


class Partition:
    """At first every node is a group of its own. A group is named by one of its nodes' numbers.

    A node for which `transparent` holds is computed by whoever reads it: its readers depend on
    what it reads, and nobody on itself. `name` is that of the pass, for its errors.
    """

    def __init__(
        self,
        graph: Graph,
        transparent: Callable[[Node], bool] = lambda _: False,
        name: str = "partition",
    ) -> None:
        self.name, self.nodes = name, graph.nodes
        self.number = {id(n): i for i, n in enumerate(graph.nodes)}
        sources: dict[Value, tuple[int, ...]] = {}
        self.group = list(range(len(graph.nodes)))
        self.members: dict[int, list[int]] = {i: [i] for i in self.group}
        self._batch = {i: n.where.batch for i, n in enumerate(graph.nodes)}
        """The micro-batch that a group belongs to; 0 for none."""
        self._live = (1 << len(graph.nodes)) - 1
        """The groups that there are, as bits."""
        self._next: dict[int, set[int]] = {i: set() for i in self.group}
        self._previous: dict[int, set[int]] = {i: set() for i in self.group}
        for i, node in enumerate(graph.nodes):
            read = {j for value in node.inputs for j in sources.get(value, ())}
            through = transparent(node)
            sources.update(dict.fromkeys(node.outputs, tuple(read) if through else (i,)))
            for j in () if through else read:
                self._next[j].add(i)
                self._previous[i].add(j)
        self._after = _reached(reversed(self.group), self._next)
        self._before = _reached(self.group, self._previous)

    def of(self, node: Node) -> int:
        """Return the group of a node."""
        return self.group[self.number[id(node)]]

    def nodes_of(self, group: int) -> list[Node]:
        """Return a group's nodes in the graph's order."""
        return [self.nodes[i] for i in sorted(self.members[group])]

    def can_merge(self, a: int, b: int) -> bool:
        """Return whether two groups may be one.

        No path leads from one through others to the other, and they are not of two micro-batches.
        """
        if 0 != self._batch[a] != self._batch[b] != 0:
            return False
        return a != b and not self._detour(a, b) and not self._detour(b, a)

    def independent(self, a: int, b: int) -> bool:
        """Return whether no path leads from one group to the other, and they are of one batch."""
        if 0 != self._batch[a] != self._batch[b] != 0:
            return False
        return a != b and not (self._after[a] >> b | self._after[b] >> a) & 1

    def _detour(self, a: int, b: int) -> bool:
        return any(c != b and self._after[c] >> b & 1 for c in self._next[a])

    def merge(self, a: int, b: int) -> int:
        """Merge two groups into one and return its name.

        Each merge lowers the number of groups, so fusion terminates; it raises PlanError otherwise.
        """
        if a == b or not {a, b} <= self.members.keys():
            raise PlanError(f"{self.name}: a merge of groups {a} and {b} leaves as many groups")
        self._live ^= 1 << b
        self._batch[a] = self._batch[a] or self._batch.pop(b)
        self._next[a] = self._joined(self._next, self._previous, a, b)
        self._previous[a] = self._joined(self._previous, self._next, a, b)
        moved = self.members.pop(b)
        self.members[a] += moved
        for i in moved:
            self.group[i] = a
        both = 1 << a | 1 << b
        before, after = self._before, self._after
        sooner, later = before[a] ^ before[b], after[a] ^ after[b]
        before[a] = (before[a] | before.pop(b)) & ~both
        after[a] = (after[a] | after.pop(b)) & ~both
        # Who came before both knows all of it. The bit of `b` names nothing any more.
        others = self._live & ~both
        for groups, reached in ((sooner & others, after), (later & others, before)):
            more = reached[a] | both
            for group in bits(groups):
                reached[group] |= more
        return a

    @staticmethod
    def _joined(
        edges: dict[int, set[int]], reverse: dict[int, set[int]], a: int, b: int
    ) -> set[int]:
        """The ends of both groups' edges, whose reverse then names `a` alone."""
        mine = edges.pop(b)
        for end in mine - {a}:
            reverse[end].discard(b)
            reverse[end].add(a)
        return (edges[a] | mine) - {a, b}


def _reached(order: Iterable[int], edges: Mapping[int, set[int]]) -> dict[int, int]:
    """The groups that edges lead to from each group, as bits; the ends come first in `order`."""
    found: dict[int, int] = {}
    for i in order:
        mask = 0
        for j in edges[i]:
            mask |= found[j] | 1 << j
        found[i] = mask
    return found
