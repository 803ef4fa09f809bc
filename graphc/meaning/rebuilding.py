"""Terms with other indices, and closed terms, which have parameters in place of variables."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from graphc.ir.op import Op
from graphc.meaning.conditions import Condition
from graphc.meaning.index import VARIABLE, Atom, Index, Indices, replaced, shifted, span, variables
from graphc.meaning.table import Key, Table, Term

PARAMETER, BOUND = 10_000, 20_000
"""Numbers of variables: parameters and bound ones of closed terms."""


class Rebuilding(Table):
    """What makes terms again, with the ways to make each kind."""

    @abstractmethod
    def at(self, source: Term, indices: Iterable[Index]) -> Term:
        """An element of a source."""

    @abstractmethod
    def op(self, op: Op, *terms: Term) -> Term:
        """A scalar expression."""

    @abstractmethod
    def guard(self, conditions: Iterable[Condition], term: Term, other: Term) -> Term:
        """`term` where all conditions hold, else `other`."""

    @abstractmethod
    def cases(self, index: Index, parts: Sequence[tuple[int, Term]]) -> Term:
        """The first of (stop, term) with index < stop; the last one if there is none."""

    @abstractmethod
    def residues(self, index: Index, n: int, parts: Sequence[Term]) -> Term:
        """The part whose number is the remainder of the index."""

    def close(
        self, bodies: Sequence[Term], bound: Iterable[Atom], renames: bool = False
    ) -> tuple[tuple[Term, ...], Indices, dict[int, int]]:
        """Replace the free parts of indices in bodies by parameters.

        It returns the bodies, the parameters, and with `renames` the sizes of bound variables by
        their new numbers.
        """
        own = frozenset(bound)
        parameters: dict[tuple[tuple[Atom, int], ...], tuple[int, int]] = {}
        """The number of each, and what the first index that is met adds to it."""
        new: dict[Atom, Atom] = {} if renames else {a: a for a in own}

        def fresh_atom(atom: Atom) -> Atom:
            kind, inner, n = atom
            if kind != VARIABLE:
                return (kind, fresh_index(inner), n)
            if atom not in new:
                new[atom] = (VARIABLE, BOUND + len(new), n)
            return new[atom]

        def fresh_index(index: Index) -> Index:
            free = [(a, c) for a, c in index[1] if not variables((0, ((a, 1),))) & own]
            parts = [(fresh_atom(a), c) for a, c in index[1] if (a, c) not in free]
            if free:
                factor = math.gcd(*(c for _, c in free))
                key = tuple((a, c // factor) for a, c in free)
                less = tuple((a, -c) for a, c in key)
                if less in parameters:  # the sign is that of what was met first, whatever the names
                    key, factor = less, -factor
                first = (len(parameters), index[0] // factor)
                number, shift = parameters.setdefault(key, first)
                parts.append(((VARIABLE, PARAMETER + number, 0), factor))
                return index[0] - factor * shift, tuple(sorted(parts))
            return index[0], tuple(sorted(parts))

        def place(condition: Condition) -> list[tuple[int, int]]:
            """What of a condition has a number already: an order that no name decides."""
            return sorted((new[a][1], c) for a, c in condition[0][1] if a in new)

        closed = self._rebuilt(bodies, fresh_index, self._raw, order=place)
        extents = {number: n for _, number, n in new.values()}
        return closed, tuple((shift, key) for key, (_, shift) in parameters.items()), extents

    def substituted(self, term: Term, new: Mapping[Atom, Index]) -> Term:
        """The term with other indices in place of variables."""
        (found,) = self._rebuilt([term], lambda i: replaced(i, new), self._made, frozenset(new))
        return found

    def moved(self, term: Term, own: Indices, indices: Indices) -> Term:
        """The term, which is an element at variables of its own, elsewhere."""
        new = {i[1][0][0]: j for i, j in zip(own, indices, strict=True) if i[1] and i != j}
        return self.substituted(term, new) if new else term

    def _rebuilt(
        self,
        roots: Sequence[Term],
        rename: Callable[[Index], Index],
        make: Callable[[Key], Term],
        only: frozenset[Atom] | None = None,
        order: Callable[[Condition], Any] = lambda _: 0,
    ) -> tuple[Term, ...]:
        """Rebuild terms with all indices renamed, outer ones before inner ones, in order.

        The terms of a guard's conditions come last, by `order`.
        """
        done: dict[Term, Term] = {}
        names: dict[Index, Index] = {}

        def renamed(index: Index) -> Index:
            if index not in names:
                names[index] = rename(index)
            return names[index]

        def visit(term: Term) -> Term:
            if term in done:
                return done[term]
            key, own = self.keys[term], self.variables[term]
            if not own if only is None else not own & only:
                done[term] = term
                return term
            if key[0] == "at":
                done[term] = make(("at", key[1], tuple(renamed(i) for i in key[2])))
            elif key[0] == "op":
                done[term] = make(("op", key[1], tuple(visit(t) for t in key[2])))
            elif key[0] == "index":
                done[term] = make(("index", renamed(key[1]), key[2]))
            elif key[0] == "guard":
                inner = (visit(key[2]), visit(key[3]))
                conditions = [
                    (renamed(shifted(i, -low)), 0, high - low, n)
                    if n == 1
                    else (renamed(i), low, high, n)
                    for i, low, high, n in sorted(key[1], key=order)
                ]
                done[term] = make(("guard", tuple(conditions), *inner))
            elif key[0] == "residues":
                parts = tuple(visit(t) for t in key[3])
                done[term] = make(("residues", renamed(key[1]), key[2], parts))
            else:
                assert key[0] == "cases", key[0]
                first = key[2][0][0]
                places = tuple((stop - first, visit(t)) for stop, t in key[2])
                done[term] = make(("cases", renamed(shifted(key[1], -first)), places))
            return done[term]

        return tuple(visit(t) for t in roots)

    def _raw(self, key: Key) -> Term:
        """The term of a key whose indices have but other names and offsets."""
        if key[0] == "guard":
            moved = ((i, low, high, n) for i, low, high, n in key[1])
            conditions = (
                (shifted(i, -i[0]), a - i[0], b - i[0], n) if n == 1 else (i, a, b, n)
                for i, a, b, n in moved
            )
            return self.term("guard", tuple(sorted(conditions)), *key[2:])
        if key[0] == "residues":
            return self.residues(*key[1:])
        if key[0] == "cases":
            index, parts = key[1:]
            *stops, last = ((stop - index[0], t) for stop, t in parts)
            return self.term("cases", shifted(index, -index[0]), (*stops, (0, last[1])))
        return self.term(*key)

    def _made(self, key: Key) -> Term:
        """The term of a key whose indices have changed."""
        if key[0] == "op":
            return self.op(key[1], *key[2])
        if key[0] == "guard":
            return self.guard(*key[1:])
        if key[0] == "cases":
            *parts, (_, last) = key[2]
            return self.cases(key[1], [*parts, (span(key[1])[1] + 1, last)])
        if key[0] == "residues":
            return self.residues(*key[1:])
        if key[0] == "at":
            return self.at(*key[1:])
        return self.term(*key)
