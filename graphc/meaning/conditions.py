"""Conditions that guards look at."""

from __future__ import annotations

import math

from graphc.meaning.index import (
    QUOTIENT,
    ZERO,
    Atom,
    Index,
    multiple,
    remainder,
    span,
)

Condition = tuple[Index, int, int, int]
"""(i, low, high, n): low <= i < high, and n divides i."""


def simplified(condition: Condition) -> Condition:
    """The condition of an index without offset or common factor, and not of a quotient."""
    index, low, high, n = condition
    if n > 1:
        offset, terms = remainder(index, n)
        if not terms:
            return (ZERO, 0, 0, 1) if offset else simplified((index, low, high, 1))
        first, last = span(index)
        return index, max(low, first), min(high, last + 1), n
    offset, terms = index
    low, high = low - offset, high - offset
    if terms and terms[0][1] < 0:
        terms = tuple((a, -c) for a, c in terms)
        low, high = 1 - high, 1 - low
    factor = math.gcd(*(c for _, c in terms)) or 1
    index = (0, tuple((a, c // factor) for a, c in terms))
    low, high = -(-low // factor), -(-high // factor)
    if len(terms) == 1 and terms[0][0][0] == QUOTIENT:
        _, inner, divisor = terms[0][0]
        return simplified((inner, low * divisor, high * divisor, 1))
    for g in sorted({abs(c) for _, c in terms if abs(c) > 1}, reverse=True):
        if low % g == 0 and high % g == 0 and (large := multiple(index, g)):
            return simplified((large, low // g, high // g, 1))
    first, last = span(index)
    return index, max(low, first), min(high, last + 1), 1


def threshold(index: Index, stop: int) -> tuple[Index, int]:
    """What `index` < `stop` says of an index without offset or factor, and not of a quotient."""
    offset, terms = index
    if not terms or terms[0][1] < 0:
        return index, stop
    factor = math.gcd(*(c for _, c in terms))
    index, stop = (0, tuple((a, c // factor) for a, c in terms)), -(-(stop - offset) // factor)
    if len(terms) == 1 and terms[0][0][0] == QUOTIENT:
        _, inner, n = terms[0][0]
        return threshold(inner, stop * n)
    for g in sorted({abs(c) for _, c in terms if abs(c) > 1}, reverse=True):
        if stop % g == 0 and (large := multiple(index, g)):
            return threshold(large, stop // g)
    return index, stop


def remainder_terms(index: Index, n: int) -> tuple[tuple[Atom, int], ...]:
    """The terms of an index that its remainder by n depends on."""
    return tuple((a, c % n) for a, c in index[1] if c % n)
