"""Eigenvalues of a tridiagonal matrix in NumPy, in the order of kernels/spectra.h."""

from __future__ import annotations

import numpy as np

from graphc.ops.base import Array

MOST_STEPS = 50
"""Steps for one eigenvalue; two or three are usual."""


def diagonal(d: Array, e: Array, v: Array) -> None:
    """Make d [n], with e [n] beside it, eigenvalues in ascending order, and rows of v eigenvectors.

    v, [n, n], has been Q^T. These are QL steps with implicit shifts; all three change.
    """
    n, kind = len(d), d.dtype.type
    epsilon = np.finfo(d.dtype).eps
    for first in range(n):
        for _ in range(MOST_STEPS):
            last = first
            while last < n - 1 and abs(e[last]) > epsilon * (abs(d[last]) + abs(d[last + 1])):
                last += 1
            if last == first:
                break
            _step(d, e, v, first, last, kind)
    for i in range(n):
        place = i
        for k in range(i + 1, n):
            if d[k] < d[place]:
                place = k
        if place != i:
            d[[i, place]] = d[[place, i]]
            v[[i, place]] = v[[place, i]]


def _step(d: Array, e: Array, v: Array, first: int, last: int, kind: type[np.floating]) -> None:
    one, two = kind(1), kind(2)
    g = (d[first + 1] - d[first]) / (two * e[first])
    r = np.sqrt(g * g + one)
    g = d[last] - d[first] + e[first] / (g + (-r if g < 0 else r))
    s, c, p = one, one, kind(0)
    new_d, new_e = d.copy(), e.copy()
    i = last - 1
    while i >= first:
        f, b = s * e[i], c * e[i]
        r = np.sqrt(f * f + g * g)
        new_e[i + 1] = r
        if r == 0:
            break
        s, c = f / r, g / r
        g = d[i + 1] - p
        r = (d[i] - g) * s + two * c * b
        p = s * r
        new_d[i + 1] = g + p
        g = c * r - b
        x, y = v[i].copy(), v[i + 1].copy()
        v[i + 1] = s * x + c * y
        v[i] = c * x - s * y
        i -= 1
    new_d[i + 1] = d[i + 1] - p
    if i < first:
        new_e[first] = g
    new_e[last] = 0
    d[:], e[:] = new_d, new_e
