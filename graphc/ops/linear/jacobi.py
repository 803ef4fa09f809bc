"""Singular values by rotations in NumPy, in the order of kernels/spectra.h."""

from __future__ import annotations

import numpy as np

from graphc.ops.base import Array
from graphc.ops.linear.reflections import tridiagonal
from graphc.ops.linear.tridiagonal import diagonal

MOST_SWEEPS = 30
"""Sweeps over all pairs; two or three are usual."""
LANES = 16
"""Of a sum along a row: element i is added in lane i % 16, lanes by halves."""


def singular_columns(columns: Array) -> tuple[Array, Array, Array]:
    """Return U s (its columns as rows), s and V^T of matrices given as columns [count, n, m].

    The eigenvectors of their products make columns orthogonal but for rounding. Then pairs of
    columns are turned until all are orthogonal (the one-sided Jacobi method), in rounds of pairs
    without a column in common.
    """
    count, n = columns.shape[:2]
    columns, v = _aligned(columns)
    rounds = [_pairs(n, number) for number in range(n + n % 2 - 1)]
    for _ in range(MOST_SWEEPS):
        turned = False
        for first, second in rounds:
            turned |= _turn(columns, v, first, second)
        if not turned:
            break
    s = np.sqrt(_dot(columns, columns))
    for number in range(count):
        _sort(columns[number], s[number], v[number])
    return columns, s, v


def _aligned(columns: Array) -> tuple[Array, Array]:
    """V^T times the columns, and V^T, whose rows are the eigenvectors of the products."""
    n = columns.shape[1]
    products = np.zeros((len(columns), n, n), columns.dtype)
    for i in range(n):
        products[:, i] = _dot(columns[:, i, None], columns)
    values, beside, v = tridiagonal(products)
    for number in range(len(columns)):
        diagonal(values[number], beside[number], v[number])
    v = v[:, ::-1].copy()
    found = np.zeros_like(columns)
    for k in range(n):
        found += v[:, :, k, None] * columns[:, None, k]
    return found, v


def _pairs(n: int, number: int) -> tuple[Array, Array]:
    """The pairs of a round, in which each of n columns has at most one."""
    players = n + n % 2
    h = np.arange(1, players // 2)
    a = np.concatenate([[number], (number + players - 1 - h) % (players - 1)])
    b = np.concatenate([[players - 1], (number + h) % (players - 1)])
    first, second = np.minimum(a, b), np.maximum(a, b)
    return first[second < n], second[second < n]


def _dot(x: Array, y: Array) -> Array:
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


def _turn(columns: Array, v: Array, first: Array, second: Array) -> bool:
    x, y = columns[:, first], columns[:, second]
    a, b, c = _dot(x, x), _dot(y, y), _dot(x, y)
    kind = columns.dtype.type
    limit = np.finfo(columns.dtype).eps * np.sqrt(kind(columns.shape[-1]))
    turns = np.abs(c) > limit * (np.sqrt(a) * np.sqrt(b))
    zeta = (b - a) / (2 * c)
    size = 1 / (np.abs(zeta) + np.sqrt(1 + zeta * zeta))
    tangent = np.where(zeta < 0, -size, size)
    cosine = 1 / np.sqrt(1 + tangent * tangent)
    sine = cosine * tangent
    cosine, sine = (part[..., None] for part in (cosine, sine))
    for rows in (columns, v):
        x, y = rows[:, first], rows[:, second]
        rows[:, first] = np.where(turns[..., None], cosine * x - sine * y, x)
        rows[:, second] = np.where(turns[..., None], sine * x + cosine * y, y)
    return bool(turns.any())


def _sort(columns: Array, s: Array, v: Array) -> None:
    for j in range(len(s)):
        place = j
        for k in range(j + 1, len(s)):
            if s[k] > s[place]:
                place = k
        if place != j:
            for rows in (columns, s, v):
                rows[[j, place]] = rows[[place, j]]
