"""Elements of values as terms, of which equal ones are one number.

A term is what one element of a value is, as a function of index variables:

    ("at", source, indices)         an element of a source: an input or state, or a closed term
    ("op", op, terms)               one expression of scalars; the terms of sums are sorted
    ("number", dtype, bytes)        a constant
    ("index", index, dtype)         the number that an index is
    ("guard", conditions, a, b)     a where all conditions hold, else b
    ("cases", index, parts)         the first of (stop, term) with index < stop
    ("residues", index, n, terms)   the term whose number is the remainder of the index by n

and closed terms, which have no variables but their own:

    ("fold", combine, dtype, extents, a)  the sum (product, ...) of `a` over variables
    ("opaque", ...), ("loop", ...)  functions of whole values: `walk.py`, `loops.py`

A closed term is made by `close`: each free part of an index becomes a parameter, numbered in the
order in which a walk meets them, and the arguments are what is read it at. So a product is the same
source, be it read in a loop at iteration t, or from a stack of all iterations at row t * n + i.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

import numpy as np

from graphc.ir import Type
from graphc.ir.op import Op
from graphc.meaning.conditions import remainder_terms
from graphc.meaning.index import (
    VARIABLE,
    Atom,
    Index,
    combined,
    digit_of,
    quotient,
    remainder,
    replaced,
    shifted,
    span,
    variables,
)
from graphc.meaning.pieces import Pieces
from graphc.meaning.rebuilding import BOUND, PARAMETER
from graphc.meaning.table import Key, Term, children_of
from graphc.ops.pointwise.arithmetic import Add, Multiply, Negative, Square, Subtract
from graphc.ops.pointwise.fused_multiply_add import FusedMultiplyAdd
from graphc.ops.pointwise.logic import Cast
from graphc.ops.pointwise.widen import Widen

ADD, MULTIPLY, SUBTRACT = Add(), Multiply(), Subtract()


class Terms(Pieces):
    """All terms of some graphs."""

    def at(self, source: Term, indices: Iterable[Index]) -> Term:
        """Return an element of a source.

        A fold that is read at a fixed index becomes one of fewer parameters, and one that is read
        where its conditions are known loses them; otherwise it would differ from the term of a
        graph that computes only this part.
        """
        key = ("at", source, tuple(indices))
        found = self._numbers.get(key)
        if found is not None:
            return found
        fold = self.keys[source]
        if fold[0] != "fold" or fold[1] == "prod":
            return self.term(*key)
        if all(i[1] for i in key[2]) and not self.decides(fold[4], key[2]):
            return self.term(*key)
        if key not in self._fixed:
            body, names = self._opened(key)
            bound = [(0, ((name, 1),)) for name in names]
            self._fixed[key] = self.fold(fold[1], bound, body, fold[2])
        return self._fixed[key]

    def op(self, op: Op, *terms: Term) -> Term:
        """Return a scalar expression in normal form.

        It uses the algebra that real numbers and the passes agree on: the order of summands and of
        two factors, neutral elements, and -(-x) = x.
        """
        if op.stops_gradient:
            return terms[0]
        if terms and all(self.keys[t][0] == "number" for t in terms):
            return self._folded(op, *terms)
        if isinstance(op, Add):
            return self._sum(terms)
        if isinstance(op, FusedMultiplyAdd):
            product, other = self.op(MULTIPLY, *terms[:2]), terms[2]
            if op.negate_product:
                return self.op(SUBTRACT, other, product)
            return self.op(SUBTRACT if op.negate_sum else ADD, product, other)
        if isinstance(op, Square):
            return self.op(MULTIPLY, *terms, *terms)
        if isinstance(op, Multiply):
            terms = tuple(sorted(terms, key=self.order))
        if isinstance(op, Widen | Cast):
            found = self._converted(op, terms[0])
            if found is not None:
                return found
        if isinstance(op, Negative):
            key = self.keys[terms[0]]
            if key[0] == "op" and isinstance(key[1], Negative):
                return int(key[2][0])
        element, places = op.neutral or (0.0, ())
        for place in places:
            if self.is_number(terms[place], element):
                return terms[1 - place]
        return self.term("op", op, tuple(terms))

    def _converted(self, op: Widen | Cast, term: Term) -> Term | None:
        """Move a conversion inward to where something is computed.

        A widened f16 or bf16 that is rounded is the original again.
        """
        key = self.keys[term]
        if key[0] == "number":
            return self._folded(op, term)
        if key[0] == "guard":
            return self.guard(key[1], self.op(op, key[2]), self.op(op, key[3]))
        if key[0] == "cases":
            return self.known_cases(key[1], [(stop, self.op(op, t)) for stop, t in key[2]])
        if key[0] == "residues":
            return self.residues(key[1], key[2], [self.op(op, t) for t in key[3]])
        if key[0] == "op" and isinstance(key[1], Widen) and isinstance(op, Cast):
            if op.dtype == self.dtype(key[2][0]):
                return int(key[2][0])
        return None

    def _folded(self, op: Op, *terms: Term) -> Term:
        """What an op makes of constants."""
        arrays = [a for t in terms if (a := self.value(t)) is not None]
        with np.errstate(all="ignore"):
            (result,) = op.evaluate(*arrays)
        (kind,) = op.infer(*(Type((), self.keys[t][1]) for t in terms))
        array = np.asarray(result, dtype=kind.numpy_dtype)
        return self.term("number", kind.dtype, array.tobytes())

    def fold(self, combine: str, bound: Iterable[Index], body: Term, dtype: str) -> Term:
        """`body` combined over the values of the variables that `bound` holds."""
        names = [index[1][0][0] for index in bound if index[1]]
        if any(extent == 0 for _, _, extent in names):
            return self.number({"sum": 0, "prod": 1}[combine], dtype)
        if combine == "sum":
            key = self.keys[body]
            if key[0] == "op" and isinstance(key[1], Add):
                return self._sum([self.fold(combine, bound, t, dtype) for t in key[2]])
            if self.is_number(body, 0):
                return body
            if key[0] == "residues" and not variables(key[1]).intersection(names):
                parts = [self.fold(combine, bound, t, dtype) for t in key[3]]
                return self.residues(key[1], key[2], parts)
            if key[0] == "guard" and self.is_number(key[3], 0):
                for (offset, terms), low, high, n in key[1]:
                    plain = offset == 0 and n == 1 and len(terms) == 1 and terms[0][1] == 1
                    if plain and terms[0][0] in names:
                        step = self.fresh(high - low)
                        body = self.substituted(body, {terms[0][0]: shifted(step, low)})
                        left = [(0, ((a, 1),)) for a in names if a != terms[0][0]]
                        return self.fold(combine, [*left, step], body, dtype)
                moved = [c for c in key[1] if not variables(c[0]).intersection(names)]
                if moved:
                    kept = [c for c in key[1] if c not in moved]
                    inner = self.guard(kept, key[2], key[3])
                    return self.guard(moved, self.fold(combine, bound, inner, dtype), key[3])
            divided = self._divided(body, names)
            if divided is not None:
                return self._fold_by_residue(names, body, dtype, *divided)
            if key[0] == "at" and self.keys[key[1]][:2] == ("fold", "sum"):
                body, more = self._opened(key)
                names += more
            still = [n for n in names if n in self.variables[body]]
            times = math.prod(n[2] for n in names if n not in still)
            names = still
            if times != 1:
                once = self.fold(combine, [(0, ((n, 1),)) for n in names], body, dtype)
                return self.op(MULTIPLY, once, self.number(times, dtype))
        if not names:
            return body
        for rewrite in (self._split, self._merged):
            names, body = rewrite(names, body)
        outside = self.implied(names, body) if combine == "sum" else []
        unused = sorted(n[2] for n in names if n not in self.variables[body])
        (body,), arguments, order = self.close((body,), names, True)
        extents = tuple(order[n] for n in sorted(order))
        if combine == "prod":  # what does not change along an axis is multiplied all the same
            extents = (*extents, *unused)
        found = self.at(self.term("fold", combine, dtype, extents, body), arguments)
        return self.guard(outside, found, self.number(0, dtype)) if outside else found

    def _divided(self, term: Term, names: list[Atom]) -> tuple[Index, int, Atom] | None:
        """Find an index of at most two variables that must be a multiple of a number.

        It returns the index, the number and the bound variable.
        """
        seen, waiting = {term}, [term]
        while waiting:
            key = self.keys[waiting.pop()]
            if key[0] == "guard":
                for index, _, _, n in key[1]:
                    left = remainder_terms(index, n) if n > 1 else ()
                    bound = [a for a, c in left if a in names and c in (1, n - 1)]
                    plain = all(a[0] == VARIABLE and c in (1, n - 1) for a, c in left)
                    if plain and len(left) <= 2 and len(bound) == 1:
                        return index, n, bound[0]
            if key[0] != "at" and self.tested[term]:
                new = [t for t in children_of(key) if t not in seen]
                seen.update(new)
                waiting += new
        return None

    def _fold_by_residue(
        self, names: list[Atom], body: Term, dtype: str, index: Index, n: int, bound: Atom
    ) -> Term:
        """Sum over the values of the bound variable for which `index` is a multiple of n.

        They are every n-th value, for each remainder of the other variable.
        """
        others = [n for n in names if n != bound]
        rest = [(a, c) for a, c in remainder_terms(index, n) if a != bound]
        factor = dict(index[1])[bound] % n

        def part(new: Mapping[Atom, Index]) -> Term:
            offset = remainder(replaced((index[0], tuple(rest)), new), n)[0]
            first = -offset * factor % n
            count = -(-(bound[2] - first) // n)
            if count < 1:
                return self.number(0, dtype)
            step = self.fresh(count)
            found = self.substituted(body, {**new, bound: combined([(step, n)], first)})
            left = [(0, ((a, 1),)) for a in others]
            return self.fold("sum", [*left, step], found, dtype)

        return self.by_residue(rest[0][0], n, part) if rest else part({})

    def _sum(self, terms: Iterable[Term]) -> Term:
        """Return the sum of terms in any order, without zeros.

        Pieces padded with zeros that tile an axis become cases.
        """
        flat: list[Term] = []
        for term in terms:
            key = self.keys[term]
            flat += key[2] if key[0] == "op" and isinstance(key[1], Add) else [term]
        kept = [t for t in flat if not self.is_number(t, 0)] or flat[:1]
        kept = self._joined(self._tiled(kept))
        if len(kept) == 1:
            return kept[0]
        return self.term("op", ADD, tuple(sorted(kept, key=self.order)))

    def _tiled(self, terms: list[Term]) -> list[Term]:
        """The terms, pieces that are zero elsewhere along one index in place of their sum."""
        pieces: dict[Index, list[tuple[Term, list[tuple[int, int, Term]]]]] = {}
        for term in terms:
            key = self.keys[term]
            if key[0] == "guard" and self.is_number(key[3], 0) and len(key[1]) == 1:
                index, low, high, n = key[1][0]
                if n == 1:
                    pieces.setdefault(index, []).append((term, [(low, high, key[2])]))
            elif key[0] == "cases" and any(self.is_number(t, 0) for _, t in key[2]):
                first, last = span(key[1])
                stops = [*(stop for stop, _ in key[2][:-1]), last + 1]
                starts = [first, *stops]
                each = zip(starts, stops, (t for _, t in key[2]), strict=False)
                found = [part for part in each if not self.is_number(part[2], 0)]
                pieces.setdefault(key[1], []).append((term, found))
        for index, sources in pieces.items():
            parts = sorted(part for _, found in sources for part in found)
            disjoint = all(a[1] <= b[0] for a, b in itertools.pairwise(parts))
            if len(sources) < 2 or not disjoint:
                continue
            left = [t for t in terms if t not in [source for source, _ in sources]]
            return self._tiled([*left, self._filled(index, parts)])
        return terms

    def _filled(self, index: Index, parts: list[tuple[int, int, Term]]) -> Term:
        """The parts (low, high, term) along an index, 0 between them."""
        zero = self.number(0, self.dtype(parts[0][2]) or "f32")
        place, end = span(index)
        found: list[tuple[int, Term]] = []
        for low, high, term in parts:
            if low > place:
                found.append((low, zero))
            found.append((high, term))
            place = high
        if place <= end:
            found.append((end + 1, zero))
        return self.cases(index, found)

    def _joined(self, terms: list[Term]) -> list[Term]:
        """The terms, those that depend on the remainder of one index added up for each."""
        found: dict[Key, list[Key]] = {}
        left = []
        for term in terms:
            key = self.keys[term]
            if key[0] == "residues":
                found.setdefault(key[1:3], []).append(key[3])
            else:
                left.append(term)
        for (index, n), parts in found.items():
            total = [self._sum(of_one) for of_one in zip(*parts, strict=True)]
            left.append(self.residues(index, n, total))
        return left

    def _split(self, names: list[Atom], body: Term) -> tuple[list[Atom], Term]:
        """A bound variable that is read but by its digits as a variable for each of them."""
        used = self._atoms(body)
        for name in names:
            mine = [a for a in used if name in variables((0, ((a, 1),)))]
            if name in mine or not mine:
                continue
            found = [digit_of(a, name) for a in mine]
            if None in found:
                continue
            steps = sorted({1, name[2]}.union(*(p for p in found if p)))
            pairs = list(itertools.pairwise(steps))
            if len(pairs) < 2 or any(b % a for a, b in pairs):
                continue
            digits = [self.fresh(b // a) for a, b in pairs]
            weights = (a for a, _ in pairs)
            whole = combined(zip(digits, weights, strict=True))
            body = self.substituted(body, {name: whole})
            names = [n for n in names if n != name] + [d[1][0][0] for d in digits]
        return names, body

    def _merged(self, names: list[Atom], body: Term) -> tuple[list[Atom], Term]:
        """Two bound variables that are read but as the digits of one number as one."""
        while True:
            found = self._digits(names, body)
            if found is None:
                return names, body
            high, low = found
            whole = self.fresh(high[2] * low[2])
            digits = {high: quotient(whole, low[2]), low: remainder(whole, low[2])}
            body = self.substituted(body, digits)
            names = [n for n in names if n not in (high, low)] + [whole[1][0][0]]

    def _digits(self, names: list[Atom], body: Term) -> tuple[Atom, Atom] | None:
        indices = self.reads(body)
        inner = {a for i in indices for a, _ in i[1] if a[0] != VARIABLE}
        nested = {v for a in inner for v in variables((0, ((a, 1),)))}
        plain = [n for n in names if n not in nested]
        factors = {n: [dict(i[1]).get(n, 0) for i in indices] for n in plain}
        for high in plain:
            for low in plain:
                pairs = zip(factors[high], factors[low], strict=True)
                if high != low and any(factors[low]) and all(a == b * low[2] for a, b in pairs):
                    return high, low
        return None

    def _opened(self, key: Key) -> tuple[Term, list[Atom]]:
        """The body of a fold that is read, with fresh bound variables."""
        *_, extents, body = self.keys[key[1]]
        bound = [self.fresh(n) for n in extents]
        new = {
            (VARIABLE, BOUND + i, n): b for i, (n, b) in enumerate(zip(extents, bound, strict=True))
        }
        new |= {(VARIABLE, PARAMETER + i, 0): index for i, index in enumerate(key[2])}
        return self.substituted(body, new), [b[1][0][0] for b in bound]

    def _atoms(self, term: Term) -> set[Atom]:
        return {a for index in self.reads(term) for a in _outer(index)}


def _outer(index: Index) -> Iterable[Atom]:
    return (a for a, _ in index[1])
