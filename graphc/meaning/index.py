"""Indices as symbolic whole numbers: sums of variables, quotients and remainders.

An index is (offset, ((atom, coefficient), ...)), its atoms sorted; an atom is a variable (VARIABLE,
number, extent), which runs from 0 to extent - 1, a quotient (QUOTIENT, index, n), rounded down, or
a remainder (REMAINDER, index, n). Equal tuples are equal numbers; what is built here is simplified
so that the ways in which passes write one index give one tuple: row-major numbers that are taken
apart and put together again give what they were made of.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Atom = tuple[Any, ...]
Index = tuple[int, tuple[tuple[Atom, int], ...]]
Indices = tuple[Index, ...]

VARIABLE, QUOTIENT, REMAINDER = 0, 1, 2
ZERO: Index = (0, ())


def constant(number: int) -> Index:
    return (number, ())


def variable(number: int, extent: int) -> Index:
    """The variable of this number; 0 if it has but one value."""
    return ZERO if extent == 1 else (0, (((VARIABLE, number, extent), 1),))


def axes(shape: Sequence[int], first: int = 0) -> Indices:
    """A variable for each axis, numbered from `first`."""
    return tuple(variable(first + d, n) for d, n in enumerate(shape))


def combined(parts: Iterable[tuple[Index, int]], offset: int = 0) -> Index:
    """The sum of the indices, each times a number."""
    terms: dict[Atom, int] = {}
    for (own, atoms), factor in parts:
        offset += own * factor
        for atom, coefficient in atoms:
            terms[atom] = terms.get(atom, 0) + coefficient * factor
    if any(atom[0] == REMAINDER for atom in terms):
        return _joined(terms, offset)
    return offset, tuple(sorted((a, c) for a, c in terms.items() if c))


def shifted(index: Index, offset: int) -> Index:
    return index[0] + offset, index[1]


def row_major(indices: Sequence[Index], shape: Sequence[int]) -> Index:
    """The number of an element in row-major order."""
    weights = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    return combined(zip(indices, weights, strict=True))


def unraveled(number: Index, shape: Sequence[int]) -> Indices:
    """The indices of the element of this row-major number."""
    wide = [d for d, n in enumerate(shape) if n != 1]
    found = []
    for d, n in enumerate(shape):
        part = quotient(number, math.prod(shape[d + 1 :])) if n != 1 else ZERO
        found.append(part if n == 1 or d == wide[0] else remainder(part, n))
    return tuple(found)


@functools.lru_cache(1 << 14)
def quotient(index: Index, n: int) -> Index:
    """index / n, rounded down."""
    if n == 1 or not index[1]:
        return index if n == 1 else constant(index[0] // n)
    whole, rest = _multiples(index, n)
    low, high = span(rest)
    if low // n == high // n:
        return shifted(whole, low // n)
    if rest[0] == 0 and len(rest[1]) == 1 and rest[1][0][1] == 1:
        kind, inner, m = rest[1][0][0]
        if kind == QUOTIENT:
            return combined([(whole, 1), (quotient(inner, m * n), 1)])
        if kind == REMAINDER and m % n == 0:
            return combined([(whole, 1), (remainder(quotient(inner, n), m // n), 1)])
    for g in _common(rest, n):
        large, small = _multiples(rest, g)
        low, high = span(small)
        if low >= 0 and high < g:
            return combined([(whole, 1), (quotient(large, n // g), 1)])
    return combined([(whole, 1), ((0, (((QUOTIENT, rest, n), 1),)), 1)])


@functools.lru_cache(1 << 14)
def remainder(index: Index, n: int) -> Index:
    """index - n * (index / n)."""
    _, rest = _multiples(index, n)
    low, high = span(rest)
    if low // n == high // n:
        return shifted(rest, -n * (low // n))
    if rest[0] == 0 and len(rest[1]) == 1 and rest[1][0][1] == 1:
        kind, inner, m = rest[1][0][0]
        if kind == REMAINDER and m % n == 0:
            return remainder(inner, n)
    for g in _common(rest, n):
        large, small = _multiples(rest, g)
        low, high = span(small)
        if low >= 0 and high < g:
            return combined([(remainder(large, n // g), g), (small, 1)])
    return 0, (((REMAINDER, rest, n), 1),)


def multiple(index: Index, n: int) -> Index | None:
    """What n times the index is that this one is less than n above; None if it may be more."""
    whole, rest = _multiples(index, n)
    low, high = span(rest)
    return whole if whole[1] and low >= 0 and high < n else None


@functools.lru_cache(1 << 14)
def span(index: Index) -> tuple[int, int]:
    """The smallest and the largest number that it may be."""
    low = high = index[0]
    for atom, coefficient in index[1]:
        first, last = _atom_span(atom)
        ends = (first * coefficient, last * coefficient)
        low, high = low + min(ends), high + max(ends)
    return low, high


def replaced(index: Index, new: Mapping[Atom, Index]) -> Index:
    """The index with other indices in place of variables."""
    if not index[1]:
        return index
    return combined(((_replaced(a, new), c) for a, c in index[1]), index[0])


def variables(index: Index) -> frozenset[Atom]:
    """The variables in it."""
    return frozenset().union(*(_variables(a) for a, _ in index[1]))


def atoms(index: Index) -> Iterable[Atom]:
    """Its atoms, and those within them."""
    for atom, _ in index[1]:
        yield atom
        if atom[0] != VARIABLE:
            yield from atoms(atom[1])


def digit_of(atom: Atom, name: Atom) -> set[int] | None:
    """Return the weights of the digits of a variable that an atom consists of, or None."""
    if atom[0] == VARIABLE:
        return None if atom == name else set()
    _, inner, n = atom
    own = quotient_of(inner, name)
    if own is not None:
        return {own, own * n}
    found = [digit_of(a, name) for a, _ in inner[1]]
    return None if None in found else set().union(*(p for p in found if p))


def quotient_of(index: Index, name: Atom) -> int | None:
    """n where the index is the variable over n, rounded down; None if it is anything else."""
    if index == (0, ((name, 1),)):
        return 1
    if index[0] == 0 and len(index[1]) == 1 and index[1][0][1] == 1:
        kind, inner, n = index[1][0][0]
        if kind == QUOTIENT and inner == (0, ((name, 1),)):
            return int(n)
    return None


def _replaced(atom: Atom, new: Mapping[Atom, Index]) -> Index:
    kind, inner, n = atom
    if kind == VARIABLE:
        return new.get(atom, (0, ((atom, 1),)))
    return (quotient if kind == QUOTIENT else remainder)(replaced(inner, new), n)


@functools.lru_cache(1 << 14)
def _variables(atom: Atom) -> frozenset[Atom]:
    return frozenset([atom]) if atom[0] == VARIABLE else variables(atom[1])


def _atom_span(atom: Atom) -> tuple[int, int]:
    kind, inner, n = atom
    if kind == VARIABLE:
        return 0, n - 1
    low, high = span(inner)
    return (low // n, high // n) if kind == QUOTIENT else (0, n - 1)


def _multiples(index: Index, n: int) -> tuple[Index, Index]:
    """(a, b) with index = n * a + b, all multiples of n in a."""
    offset, terms = index
    whole = tuple((a, c // n) for a, c in terms if c % n == 0)
    return (offset // n, whole), (offset % n, tuple((a, c) for a, c in terms if c % n))


def _common(index: Index, n: int) -> list[int]:
    """Divisors of n, the largest first, that may divide all but some small terms."""
    found = {math.gcd(abs(c), n) for _, c in index[1]}
    return sorted((g for g in found if 1 < g < n), reverse=True)


def _joined(terms: dict[Atom, int], offset: int) -> Index:
    """The sum with n * (x / n) + x % n as x."""
    for atom, coefficient in terms.items():
        if atom[0] != REMAINDER or not coefficient:
            continue
        _, inner, n = atom
        own, parts = quotient(inner, n)
        if len(parts) == 1 and parts[0][1] == 1 and terms.get(parts[0][0]) == coefficient * n:
            left = {a: c for a, c in terms.items() if a not in (atom, parts[0][0])}
            rest = (offset, tuple(left.items()))
            return combined([(rest, 1), (inner, coefficient), (constant(own), -coefficient * n)])
    return offset, tuple(sorted((a, c) for a, c in terms.items() if c))
