"""Loops as terms: what carries are in iteration t, and what is left behind the last one.

Carries that depend on each other are one closed term: their first values and what an iteration
makes of them, with the old ones named by their place. So a loop is the same whatever else is
carried, stacked or computed beside, and whether a value is computed in it or read from a stack.
A carry that only adds up is the sum over all iterations, as is a contraction behind the loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from graphc.ir import Graph, Node, Value
from graphc.meaning.index import Index, Indices, axes, constant, variable
from graphc.meaning.table import Term
from graphc.meaning.terms import ADD, Terms
from graphc.ops.fused import Fused
from graphc.ops.loops.scan import Carry, Scan

Read = Callable[[Indices], Term]
Element = Callable[[Value, Indices], Term]
TIME = 30_000
"""The number of the outermost loop's iteration."""


class Loop:
    """A scan in terms: `read` gives its inputs, `inside` the elements of its body's values."""

    def __init__(
        self,
        terms: Terms,
        node: Node,
        read: Element,
        inside: Callable[[Graph, Mapping[Value, Read]], Element],
        depth: int,
    ) -> None:
        self.terms, self.read, self.inside, self.depth = terms, read, inside, depth
        self.loop = Scan.bind(node)
        self.op = self.loop.op
        self.time = variable(TIME + depth, self.op.length)
        self._known: dict[Value, Callable[[Index], Read]] = {}
        """Old carry -> what it is in an iteration."""
        self._last: dict[Value, Read] = {}
        if self.op.length:
            for carries in self._groups():
                self._solve(carries)
            self._any = terms.fresh(self.op.length)
            """An iteration, of which stacks are the elements."""
            solved = {v: k(self._any) for v, k in self._known.items()}
            self._stacked = self._within(self._any, solved)

    def element(self, number: int, indices: Indices) -> Term:
        """An element of one of the outputs."""
        if number >= len(self.loop.carries):
            inner, _ = self.loop.stacks[number - len(self.loop.carries)]
            term = self._stacked(inner, indices[1:])
            return self.terms.moved(term, (self._any,), indices[:1])
        carry = self.loop.carries[number]
        if not self.op.length:
            return self.read(carry.initial, indices)
        return self._last[carry.old](indices)

    def _within(self, time: Index, carries: Mapping[Value, Read]) -> Element:
        reads: dict[Value, Read] = {}
        for inner, outer in self.loop.constants:
            reads[inner] = functools.partial(self.read, outer)
        for inner, outer in self.loop.scanned:
            reads[inner] = functools.partial(self._scanned, outer, time)
        return self.inside(self.op.body, {**reads, **carries})

    def _scanned(self, outer: Value, time: Index, indices: Indices) -> Term:
        return self.read(outer, (time, *indices))

    def _groups(self) -> list[list[Carry]]:
        """The carries that depend on each other, those that others depend on first."""
        body = self.op.body
        producers = body.producers
        old = {c.old for c in self.loop.carries}
        needs: dict[Value, set[Value]] = {}
        for carry in self.loop.carries:
            seen, waiting = {carry.new}, [carry.new]
            while waiting:
                value = waiting.pop()
                node = producers.get(value)
                fresh = [v for v in _operands(node, value) if v not in seen] if node else []
                seen.update(fresh)
                waiting += fresh
            needs[carry.old] = seen & old
        while True:
            more = {v: n.union(*(needs[w] for w in n)) for v, n in needs.items()}
            if more == needs:
                break
            needs = more
        groups: list[list[Carry]] = []
        left = list(self.loop.carries)
        while left:
            first = min(left, key=lambda c: len(needs[c.old]))
            mine = [
                c
                for c in left
                if c is first or (c.old in needs[first.old] and first.old in needs[c.old])
            ]
            groups.append(mine)
            left = [c for c in left if c not in mine]
        return groups

    def _solve(self, carries: list[Carry]) -> None:
        """Solve for carries that depend on each other, in each iteration and after the last."""
        terms = self.terms
        names = {
            c.old: terms.term("carry", self.depth, c.old.type.dtype, number)
            for number, c in enumerate(carries)
        }
        known = {v: k(self.time) for v, k in self._known.items()}
        known |= {v: functools.partial(terms.at, name) for v, name in names.items()}
        body = self._within(self.time, known)
        shapes = tuple(c.old.type.shape for c in carries)
        places = [axes(shape) for shape in shapes]
        steps = [body(c.new, own) for c, own in zip(carries, places, strict=True)]
        begin = [self.read(c.initial, own) for c, own in zip(carries, places, strict=True)]
        first = carries[0]
        itself = terms.at(names[first.old], places[0])
        if len(carries) == 1 and steps[0] == itself:
            self._known[first.old] = lambda _: lambda i: self.read(first.initial, i)
            self._last[first.old] = lambda i: self.read(first.initial, i)
            return
        bound = [i[1][0][0] for own in (*places, (self.time,)) for i in own if i[1]]
        closed, arguments, _ = terms.close((*begin, *steps), bound)
        settings = (self.op.length, self.op.reverse, shapes)
        end = constant(-1 if self.op.reverse else self.op.length)
        for number, carry in enumerate(carries):
            source = terms.term("loop", self.depth, carry.old.type.dtype, number, *settings, closed)
            at = _reading(terms, source, arguments)
            self._known[carry.old] = at
            self._last[carry.old] = at(end)
        if len(carries) == 1:
            self._add_up(first, itself, steps[0], begin[0], places[0])

    def _add_up(self, carry: Carry, old: Term, step: Term, begin: Term, own: Indices) -> None:
        key = self.terms.keys[step]
        if key[0] != "op" or key[1] != ADD or key[2].count(old) != 1:
            return
        rest = [t for t in key[2] if t != old]
        mine = self.terms.keys[self.terms.keys[old][1]]
        if any(mine in self.terms.held[t] for t in rest):
            return
        term = rest[0] if len(rest) == 1 else self.terms.op(ADD, *rest)
        total = self.terms.fold("sum", [self.time], term, carry.old.type.dtype)
        whole = self.terms.op(ADD, begin, total)
        self._last[carry.old] = lambda i: self.terms.moved(whole, own, i)


def _reading(terms: Terms, source: Term, arguments: Indices) -> Callable[[Index], Read]:
    return lambda time: lambda indices: terms.at(source, (time, *indices, *arguments))


def _operands(node: Node, value: Value) -> Sequence[Value]:
    """What of its inputs a node makes this output of."""
    if not isinstance(node.op, Fused):
        return node.inputs
    body = node.op.body
    producers = body.producers
    seen = {body.outputs[node.outputs.index(value)]}
    waiting = list(seen)
    while waiting:
        inner = producers.get(waiting.pop())
        fresh = [v for v in inner.inputs if v not in seen] if inner else []
        seen.update(fresh)
        waiting += fresh
    return [outer for outer, own in zip(node.inputs, body.inputs, strict=True) if own in seen]
