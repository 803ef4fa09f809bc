"""Singular values of bidiagonal matrices in NumPy, in the order of kernels/conquer.h.

Divide and conquer (Gu and Eisenstat, A divide-and-conquer algorithm for the bidiagonal SVD, 1995):
a row without its neighbours leaves two problems of half the size; with their singular vectors, the
matrix is one row and a diagonal, whose singular values are the roots of a secular equation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.ops.base import Array
from graphc.ops.linear.secular import loewner, roots

FLUSHED = {4: 2.0**-50, 8: 2.0**-450}
"""By bytes of an element: smaller ones count as 0, so that squares are normal numbers."""


@dataclass
class Bidiagonal:
    """An upper bidiagonal matrix, scaled to elements up to 1, and what is known of its parts.

    A part of rows [low, high) has columns [low, high], or one less at the end of the matrix. Its
    right singular vectors are rows of vt, the last one that of 0; its left ones rows of ut.
    """

    d: Array
    e: Array
    s: Array
    ut: Array
    vt: Array

    @property
    def tolerance(self) -> Any:
        """Up to so much is 0."""
        return self.d.dtype.type(4 * np.finfo(self.d.dtype).eps)

    @property
    def smallest(self) -> Any:
        """The least of what is solved for: below the precision, so that 0 stays about 0."""
        return self.d.dtype.type(np.finfo(self.d.dtype).eps / 16)


def singular(d: Array, e: Array) -> tuple[Array, Array, Array]:
    """Return singular values, ascending, U^T and V^T.

    Args:
        d: The diagonal [n].
        e: What is right of it; of [n] elements the last does not count.
    """
    n, kind = len(d), d.dtype.type
    scale = kind(np.max(np.abs(np.append(d, e[: n - 1])), initial=0))
    one = np.eye(n, dtype=d.dtype)
    if not 0 < scale < np.inf:
        return np.full_like(d, scale - scale), one, one.copy()
    d, e = (
        np.where(np.abs(x) < kind(FLUSHED[d.itemsize]), kind(0), x) for x in (d / scale, e / scale)
    )
    m = Bidiagonal(d, e, np.zeros_like(d), one, one.copy())
    parts = 1
    while 2 * parts <= n + 1:
        parts *= 2
    for part in range(parts):
        _leaf(m, part * (n + 1) // parts, (part + 1) * (n + 1) // parts - 1)
    while parts > 1:
        for part in range(0, parts, 2):
            low, middle, high = ((part + i) * (n + 1) // parts for i in range(3))
            _merge(m, low, middle - 1, high - 1)
        parts //= 2
    return m.s * scale, m.ut, m.vt


def eigenvalues(d: Array, e: Array) -> tuple[Array, Array]:
    """Return eigenvalues of a symmetric tridiagonal matrix, ascending, and eigenvectors as rows.

    With so much added to its diagonal that it is positive definite, the matrix is B^T B, and the
    singular values of the bidiagonal B are square roots.

    Args:
        d: The diagonal [n].
        e: What is beside it; of [n] elements the last does not count.
    """
    n, kind = len(d), d.dtype.type
    sizes = np.abs(np.append(e[: n - 1], kind(0))) if n else d
    beside = np.append(kind(0), sizes[: n - 1])[:n] + sizes
    scale = kind(np.max(beside + np.abs(d), initial=0))
    if not 0 < scale < np.inf:
        return np.full_like(d, scale - scale), np.eye(n, dtype=d.dtype)
    added = np.max(beside / scale - d / scale) + 16 * np.finfo(d.dtype).eps
    diagonal, right = np.zeros_like(d), np.zeros_like(d)
    square = kind(0)
    for i in range(n):
        diagonal[i] = np.sqrt((d[i] / scale + added) - square)
        right[i] = e[i] / scale / diagonal[i]
        square = right[i] * right[i]
    s, _, vt = singular(diagonal, right)
    return (s * s - added) * scale, vt


def _leaf(m: Bidiagonal, low: int, high: int) -> None:
    """The part of at most one row."""
    if low == high:
        return
    d, e = m.d[low], m.e[low] if high < len(m.d) else m.d.dtype.type(0)
    size = np.sqrt(d * d + e * e)
    m.s[low] = size
    if size == 0:
        return
    c, s = d / size, e / size
    m.vt[low, low] = c
    if high < len(m.d):
        m.vt[low, high], m.vt[high, low], m.vt[high, high] = s, -s, c


def _merge(m: Bidiagonal, low: int, middle: int, high: int) -> None:
    n, smallest = len(m.d), m.smallest
    z = np.zeros_like(m.d)
    z[low:middle] = m.d[middle] * m.vt[low:middle, middle]
    z[middle] = m.d[middle] * m.vt[middle, middle]
    beyond = m.d.dtype.type(0)
    if middle + 1 < n:
        z[middle + 1 : high] = m.e[middle] * m.vt[middle + 1 : high, middle + 1]
        if high < n:
            beyond = m.e[middle] * m.vt[high, middle + 1]
    size = np.sqrt(z[middle] * z[middle] + beyond * beyond)
    if size > smallest:
        c, s = z[middle] / size, beyond / size
        first, last = m.vt[middle].copy(), m.vt[high].copy() if high < n else np.zeros_like(m.d)
        m.vt[middle] = c * first + s * last
        if high < n:
            m.vt[high] = c * last - s * first
        z[middle] = size
    else:
        z[middle] = smallest
    kept, others = _deflate(m, z, low, middle, high)
    d = m.s[kept]
    origin, offset = roots(d, z[kept])
    z_hat = loewner(d, z[kept], origin, offset)
    base = d[origin]
    nearest = np.where(offset > 0, offset, -offset) * ((base + base) + offset)
    right = np.zeros((len(d), len(d)), d.dtype)
    lengths = np.zeros((2, len(d)), d.dtype)
    left = right.copy()
    for j in range(len(d)):
        gap = ((d[j] - base) - offset) * ((d[j] + base) + offset)
        right[j] = z_hat[j] * (nearest / gap)
        left[j] = d[j] * (z_hat[j] / gap) if j else -1
        lengths[0] += right[j] * right[j]
        lengths[1] += left[j] * left[j]
    lengths = np.sqrt(lengths)
    right, left = right / lengths[0], left / lengths[1]
    values = [*(base + offset), *m.s[others]]
    places = np.argsort(values, kind="stable")
    new = []
    for t, factors in ((m.ut, left), (m.vt, right)):
        found = np.zeros((len(d), n), d.dtype)
        for j, row in enumerate(kept):
            found += factors[j][:, None] * t[row]
        new.append(np.concatenate([found, t[others]])[places])
    m.s[low:high] = np.array(values, d.dtype)[places]
    m.ut[low:high], m.vt[low:high] = new


def _deflate(
    m: Bidiagonal, z: Array, low: int, middle: int, high: int
) -> tuple[list[int], list[int]]:
    """The rows that the secular equation is of, by their values, and the others, sorted."""
    rows = [*range(low, middle), *range(middle + 1, high)]
    rows.sort(key=lambda row: m.s[row])
    kept, others, tolerance = [middle], [], m.tolerance
    m.s[middle] = 0
    for row in rows:
        before = kept[-1]
        if abs(z[row]) <= tolerance:
            others.append(row)
        elif m.s[row] <= m.smallest:
            # Two rows of zeros: turning columns alone makes z 0 here.
            size = np.sqrt(z[middle] * z[middle] + z[row] * z[row])
            c, s = z[middle] / size, z[row] / size
            z[middle] = size
            x, y = m.vt[middle].copy(), m.vt[row].copy()
            m.vt[middle], m.vt[row] = c * x + s * y, c * y - s * x
            others.append(row)
        elif before != middle and m.s[row] - m.s[before] <= tolerance:
            size = np.sqrt(z[before] * z[before] + z[row] * z[row])
            c, s = z[row] / size, z[before] / size
            z[row] = size
            for t in (m.ut, m.vt):
                x, y = t[before].copy(), t[row].copy()
                t[before], t[row] = c * x - s * y, s * x + c * y
            others.append(before)
            kept[-1] = row
        else:
            kept.append(row)
    others.sort(key=lambda row: m.s[row])
    return kept, others
