"""Reflections of vectors in NumPy, in the order of kernels/reflections.h.

I - scale v v^T takes a vector to (..., value, 0, ...) from some place on; v is 0 before the place,
1 there, and then what follows, divided by one number. BLOCK reflections change a matrix together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphc.ops.base import Array

BLOCK = 4
"""Reflections whose products with a matrix are taken from the same matrix."""
LANES = 16
"""Of a sum along a row: element i is added in lane i % 16, lanes by halves."""
Reflection = tuple[Array, Array]
"""Scales [count] and vectors [count, n]."""


def dot(x: Array, y: Array) -> Array:
    """Sums of products along the last axis."""
    products = x * y
    behind = -x.shape[-1] % LANES
    padded = np.pad(products, [*((0, 0),) * (x.ndim - 1), (0, behind)])
    sums = np.zeros((*x.shape[:-1], LANES), x.dtype)
    for block in range(0, padded.shape[-1], LANES):
        sums = sums + padded[..., block : block + LANES]
    half = LANES // 2
    while half:
        sums = sums[..., :half] + sums[..., half : 2 * half]
        half //= 2
    return np.asarray(sums[..., 0])


def reflection(x: Array, place: int) -> tuple[Array, Array, Array]:
    """Return value, scale and v of the reflections of vectors x [count, n] from a place on."""
    head, one = x[:, place], x.dtype.type(1)
    rest = x.copy()
    rest[:, : place + 1] = 0
    tail = dot(rest, rest)
    norm = np.sqrt(head * head + tail)
    value = np.where(tail == 0, head, np.where(head < 0, norm, -norm))
    scale = np.where(tail == 0, 0 * one, (value - head) / value)
    v = rest / np.where(tail == 0, one, head - value)[:, None]
    v[:, place] = 1
    return value, scale, v


def reflect(a: Array, block: Sequence[Reflection], first: int) -> None:
    """Apply reflections, the first one first, to the columns of matrices a [count, m, n].

    Rows before `first` do not take part.
    """
    sums: list[Array] = []
    for number, (scale, v) in enumerate(block):
        total = np.zeros((len(a), a.shape[2]), a.dtype)
        for i in range(first, a.shape[1]):
            total += v[:, i, None] * a[:, i]
        for (_, other), earlier in zip(block[:number], sums, strict=True):
            total -= dot(v, other)[:, None] * earlier
        sums.append(total * scale[:, None])
    for (_, v), total in zip(block, sums, strict=True):
        a[:, first:] -= v[:, first:, None] * total[:, None]


def unfold(a: Array, found: Sequence[Reflection], place: int = 0) -> None:
    """Apply reflections, the last one first, to matrices [count, m, n].

    Number j is from row place + j on.
    """
    for j in range((len(found) - 1) // BLOCK * BLOCK, -1, -BLOCK):
        reflect(a, found[j : j + BLOCK][::-1], place + j)


def factored(a: Array) -> tuple[Array, Array]:
    """Return Q [count, m, n] and R [count, n, n] of matrices, which change."""
    _, m, n = a.shape
    found: list[Reflection] = []
    for first in range(0, n, BLOCK):
        last = min(first + BLOCK, n)
        for j in range(first, last):
            value, scale, v = reflection(a[:, :, j], j)
            reflect(a[:, :, j + 1 : last], [(scale, v)], j)
            a[:, j, j] = value
            found.append((scale, v))
        reflect(a[:, :, last:], found[first:], first)
    r = np.triu(a[:, :n])
    q = np.tile(np.eye(m, n, dtype=a.dtype), (len(a), 1, 1))
    unfold(q, found)
    return q, r


def tridiagonal(a: Array) -> tuple[Array, Array, list[Reflection]]:
    """Return the diagonal of Q^T a Q, what is beside it, and the reflections of Q, from row 1 on.

    a [count, n, n], symmetric, changes.
    """
    n = a.shape[-1]
    beside, found = np.zeros(a.shape[:2], a.dtype), []
    for j in range(n - 2):
        value, scale, v = reflection(a[:, j], j + 1)
        beside[:, j] = value
        sums = np.zeros_like(v)
        for i in range(j + 1, n):
            sums += v[:, i, None] * a[:, i]
        sums *= scale[:, None]
        sums[:, : j + 1] = 0
        half = scale * dot(sums, v) / 2
        sums -= half[:, None] * v
        rest = slice(j + 1, n)
        a[:, rest] -= v[:, rest, None] * sums[:, None] + sums[:, rest, None] * v[:, None]
        found.append((scale, v))
    if n > 1:
        beside[:, n - 2] = a[:, n - 2, n - 1]
    places = np.arange(n)
    return a[:, places, places], beside, found


def bidiagonal(a: Array) -> tuple[Array, Array, list[Reflection], list[Reflection]]:
    """Return the diagonal of B = P^T a Q, what is right of it, and the reflections of P and Q.

    Those of Q are from row 1 on. a [count, m, n], with m >= n, changes.
    """
    count, m, n = a.shape
    d, e = (np.zeros((count, n), a.dtype) for _ in range(2))
    left: list[Reflection] = []
    right: list[Reflection] = []
    for j in range(n):
        d[:, j], scale, u = reflection(a[:, :, j], j)
        left.append((scale, u))
        sums = np.zeros((count, n), a.dtype)
        for i in range(j, m):
            sums += u[:, i, None] * a[:, i]
        sums *= scale[:, None]
        sums[:, : j + 1] = 0
        before = a[:, j + 1 :].copy()
        a[:, j:] -= u[:, j:, None] * sums[:, None]
        if j < n - 2:
            e[:, j], scale, v = reflection(a[:, j], j + 1)
            right.append((scale, v))
            products = dot(before, v[:, None]) - u[:, j + 1 :] * dot(sums, v)[:, None]
            products *= scale[:, None]
            a[:, j + 1 :] -= products[:, :, None] * v[:, None]
    if n > 1:
        e[:, n - 2] = a[:, n - 2, n - 1]
    return d, e, left, right
