"""Terms that are one thing or another, by conditions on indices."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from graphc.meaning.conditions import Condition, remainder_terms, simplified, threshold
from graphc.meaning.index import (
    VARIABLE,
    Atom,
    Index,
    combined,
    quotient,
    replaced,
    shifted,
    span,
    variables,
)
from graphc.meaning.rebuilding import BOUND, PARAMETER, Rebuilding
from graphc.meaning.table import Key, Term, children_of


class Pieces(Rebuilding):
    """Guards, cases and residues."""

    def guard(self, conditions: Iterable[Condition], term: Term, other: Term) -> Term:
        """`term` where all conditions hold, else `other`."""
        known: dict[tuple[Index, int], tuple[int, int]] = {}
        waiting = list(conditions)
        key = self.keys[term]
        if key[0] == "guard" and key[3] == other:
            waiting += key[1]
            term = key[2]
        for condition in waiting:
            index, low, high, n = simplified(condition)
            first, last = known.get((index, n), (low, high))
            low, high = max(low, first), min(high, last)
            if low >= high:
                return other
            if n > 1 or low > span(index)[0] or high <= span(index)[1]:
                known[index, n] = (low, high)
        left = [(i, low, high, m) for (i, m), (low, high) in known.items()]
        for index, _, _, n in left:
            single = remainder_terms(index, n) if n > 1 else ()
            if len(single) == 1 and single[0][0][0] == VARIABLE and single[0][1] in (1, n - 1):
                return self.by_residue(
                    single[0][0], n, lambda new: self._made_guard(left, term, other, new)
                )
        for index, low, high, n in left:
            term = self.within(term, index, low, high) if n == 1 else term
        if not known or term == other:
            return term
        key = self.keys[term]
        if key[0] == "residues":
            return self.residues(key[1], key[2], [self.guard(left, t, other) for t in key[3]])
        return self.term("guard", tuple(sorted(left)), term, other)

    def _made_guard(
        self, conditions: list[Condition], term: Term, other: Term, new: Mapping[Atom, Index]
    ) -> Term:
        moved = [(replaced(i, new), low, high, n) for i, low, high, n in conditions]
        return self.guard(moved, self.substituted(term, new), other)

    def implied(self, names: list[Atom], body: Term) -> list[Condition]:
        """Where a sum over `names` is not 0 for want of any value at which its guards pass."""
        key = self.keys[body]
        if key[0] != "guard" or not self.is_number(key[3], 0):
            return []
        found: list[Condition] = []
        for (offset, terms), low, high, n in key[1]:
            bound = tuple(t for t in terms if not variables((0, (t,))).isdisjoint(names))
            free = (offset, tuple(t for t in terms if t not in bound))
            first, last = span((0, bound))
            low, high = low - last, high - first
            if n == 1 and free[1] and not low <= span(free)[0] <= span(free)[1] < high:
                found.append((free, low, high, 1))
        return found

    def decides(self, body: Term, indices: Sequence[Index]) -> bool:
        """Return whether a condition in the body of a fold is known where it is read.

        It also looks at the bodies of folds that this one reads, but not further, which would be
        too many.
        """
        new = {(VARIABLE, PARAMETER + i, 0): index for i, index in enumerate(indices)}
        for index, low, high in self._conditions(body, True):
            first, last = span(replaced(index, new))
            if last < low or first >= high or (low <= first and last < high):
                return True
        return False

    def _conditions(self, body: Term, behind: bool) -> set[tuple[Index, int, int]]:
        """Return (i, low, high) for each condition low <= i < high in guards and cases of the body.

        i depends on a parameter. The folds `behind` it are included.
        """
        if (body, behind) not in self._asked:
            found: set[tuple[Index, int, int]] = set()
            seen, waiting = {body}, [body]
            while waiting:
                key = self.keys[waiting.pop()]
                if key[0] == "guard":
                    found.update((i, low, high) for i, low, high, n in key[1] if n == 1)
                elif key[0] == "cases":
                    stops = [stop for stop, _ in key[2][:-1]]
                    found.update((key[1], stop, sys.maxsize) for stop in stops)
                elif key[0] == "at" and behind:
                    found.update(self._read_conditions(key))
                if key[0] != "at":
                    new = [t for t in children_of(key) if t not in seen]
                    seen.update(new)
                    waiting += new
            free = {c for c in found if any(map(_is_parameter, variables(c[0])))}
            self._asked[body, behind] = free
        return self._asked[body, behind]

    def _read_conditions(self, key: Key) -> Iterable[tuple[Index, int, int]]:
        """The conditions of the fold that a term reads, by the indices at which it does."""
        fold = self.keys[key[1]]
        if fold[0] == "fold" and (asked := self._conditions(fold[4], False)):
            bound = {(VARIABLE, BOUND + i, n): self.fresh(n) for i, n in enumerate(fold[3])}
            read = {(VARIABLE, PARAMETER + i, 0): index for i, index in enumerate(key[2])}
            for index, low, high in asked:
                yield replaced(index, bound | read), low, high

    def residues(self, index: Index, n: int, parts: Sequence[Term]) -> Term:
        """The part whose number is the remainder of the index."""
        offset = index[0]
        terms = remainder_terms(index, n)
        parts = tuple(parts[(j + offset) % n] for j in range(n))
        if not terms or all(t == parts[0] for t in parts):
            return parts[0]
        plain = (0, terms)
        if index != plain and len(terms) == 1 and terms[0][0][0] == VARIABLE and terms[0][1] == 1:
            name = terms[0][0]
            if name[1] < PARAMETER or name[1] >= BOUND:
                return self.by_residue(
                    name, n, lambda new: self.substituted(parts[new[name][0] % n], new)
                )
        return self.term("residues", plain, n, parts)

    def by_residue(self, name: Atom, n: int, part: Callable[[Mapping[Atom, Index]], Term]) -> Term:
        """What `part` makes of a variable, split by its remainder by n."""
        parts: list[Term] = []
        for j in range(n):
            step = self.fresh(max(1, -(-(name[2] - j) // n)))
            term = part({name: combined([(step, n)], j)})
            whole = quotient((0, ((name, 1),)), n)
            parts.append(self.moved(term, (step,), (whole,)))
        return self.residues((0, ((name, 1),)), n, parts)

    def cases(self, index: Index, parts: Sequence[tuple[int, Term]]) -> Term:
        """The first of (stop, term) with index < stop; the last one if there is none."""
        low, high = span(index)
        left = [(stop, t) for stop, t in parts if stop > low]
        end = next((i for i, (stop, _) in enumerate(left) if stop > high), len(left) - 1)
        kept = left[: end + 1]
        if len(kept) == 1:
            return kept[0][1]
        bounds = [threshold(index, stop) for stop, _ in kept]
        plain = bounds[0][0]
        first, last = span(plain)
        starts = [first, *(stop for _, stop in bounds[:-1])]
        stops = [*starts[1:], last + 1]
        return self.known_cases(
            plain,
            [
                (stop, self.within(self._narrowed(t, plain, start, stop), plain, start, stop))
                for start, stop, (_, t) in zip(starts, stops, kept, strict=True)
            ],
        )

    def known_cases(self, index: Index, parts: Sequence[tuple[int, Term]]) -> Term:
        kept: list[tuple[int, Term]] = []
        for stop, term in parts:
            if kept and kept[-1][1] == term:
                kept.pop()
            kept.append((stop, term))
        if len(kept) == 1:
            return kept[0][1]
        return self.term("cases", index, (*kept[:-1], (0, kept[-1][1])))  # the last has no end

    def within(self, term: Term, index: Index, low: int, high: int) -> Term:
        """The term where low <= index < high."""
        if index not in self.tested[term]:
            return term
        key = self.keys[term]
        if key[0] == "op":
            return self.op(key[1], *(self.within(t, index, low, high) for t in key[2]))
        if key[0] == "guard":
            mine = {c: c for c in key[1] if c[0] == index and c[3] == 1}
            if any(c[1] >= high or c[2] <= low for c in mine):
                return self.within(key[3], index, low, high)
            left = [c for c in key[1] if c not in mine or c[1] > low or c[2] < high]
            inner = (self.within(t, index, low, high) for t in key[2:])
            return self.guard(left, *inner)
        if key[0] == "residues":
            inner = (self.within(t, index, low, high) for t in key[3])
            return self.residues(key[1], key[2], tuple(inner))
        assert key[0] == "cases", key[0]
        *parts, (_, last) = key[2]
        parts.append((high, last))
        if key[1] == index:
            end = next((i for i, (stop, _) in enumerate(parts) if stop >= high), len(parts) - 1)
            parts = [(stop, t) for stop, t in parts[: end + 1] if stop > low]
        return self.known_cases(key[1], [(s, self.within(t, index, low, high)) for s, t in parts])

    def _narrowed(self, term: Term, index: Index, low: int, high: int) -> Term:
        """The term, its quotients and remainders made simpler by low <= index < high."""
        name = index[1][0][0]
        if index != (0, ((name, 1),)) or name[0] != VARIABLE or name not in self.variables[term]:
            return term
        inner = (a for i in self.reads(term) for a, _ in i[1] if a[0] != VARIABLE)
        if not any(name in variables((0, ((a, 1),))) for a in inner):
            return term
        step = self.fresh(high - low)
        moved = self.substituted(term, {name: shifted(step, low)})
        return self.moved(moved, (step,), ((-low, ((name, 1),)),))


def _is_parameter(atom: Atom) -> bool:
    return bool(PARAMETER <= atom[1] < BOUND)
