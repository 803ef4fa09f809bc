"""Reflections of vectors in NumPy, in the order of kernels/factorizations.h.

I - scale v v^T takes a vector to (value, 0, ...); v is 1 and then the others divided by `divisor`.
"""

from __future__ import annotations

import numpy as np

from graphc.ops.base import Array


def reflection(x: Array) -> tuple[Array, Array, Array]:
    """Return value, scale and v of the reflections of vectors x [count, n]."""
    head, one = x[:, 0], x.dtype.type(1)
    tail = np.zeros_like(head)
    for place in range(1, x.shape[1]):
        tail = tail + x[:, place] * x[:, place]
    norm = np.sqrt(head * head + tail)
    value = np.where(tail == 0, head, np.where(head < 0, norm, -norm))
    scale = np.where(tail == 0, 0 * one, (value - head) / value)
    v = x / np.where(tail == 0, one, head - value)[:, None]
    v[:, 0] = 1
    return value, scale, v


def reflect(a: Array, v: Array, scale: Array) -> None:
    """Apply reflections to the columns of matrices a [count, m, n], in place."""
    sums = a[:, 0].copy()
    for i in range(1, a.shape[1]):
        sums += v[:, i, None] * a[:, i]
    sums *= scale[:, None]
    a -= v[:, :, None] * sums[:, None]


def factored(a: Array) -> tuple[Array, Array]:
    """Return Q [count, m, n] and R [count, n, n] of matrices, which change."""
    n = a.shape[-1]
    found = []
    for j in range(n):
        value, scale, v = reflection(a[:, j:, j])
        a[:, j, j] = value
        a[:, j + 1 :, j] = 0
        reflect(a[:, j:, j + 1 :], v, scale)
        found.append((scale, v))
    r = np.triu(a[:, :n])
    q = np.zeros_like(a)
    for j in range(n - 1, -1, -1):
        scale, v = found[j]
        part = q[:, j:, j + 1 :]
        reflect(part, v, scale)
        q[:, j:, j] = -(v * scale[:, None])
        q[:, j, j] = 1 - scale
    return q, r


def tridiagonal(a: Array) -> tuple[Array, Array, Array]:
    """Return the diagonal of Q^T a Q, what is beside it, and Q^T, of symmetric a [count, n, n].

    a changes.
    """
    count, n, _ = a.shape
    beside, found = np.zeros(a.shape[:2], a.dtype), []
    for j in range(n - 2):
        value, scale, v = reflection(a[:, j, j + 1 :])
        beside[:, j] = value
        rest = a[:, j + 1 :, j + 1 :]
        sums = np.zeros_like(v)
        for i in range(v.shape[1]):
            sums += v[:, i, None] * rest[:, i]
        sums *= scale[:, None]
        product = np.zeros_like(scale)
        for k in range(v.shape[1]):
            product = product + sums[:, k] * v[:, k]
        sums -= (scale * product / 2)[:, None] * v
        rest -= v[:, :, None] * sums[:, None] + sums[:, :, None] * v[:, None]
        found.append((scale, v))
    if n > 1:
        beside[:, n - 2] = a[:, n - 2, n - 1]
    q = np.tile(np.eye(n, dtype=a.dtype), (count, 1, 1))
    for j in range(n - 3, -1, -1):
        scale, v = found[j]
        part, sums = q[:, j + 1 :, j + 1 :], np.zeros_like(v)
        for i in range(v.shape[1]):
            sums += v[:, i, None] * part[:, i]
        sums *= scale[:, None]
        part -= v[:, :, None] * sums[:, None]
    places = np.arange(n)
    return a[:, places, places], beside, np.swapaxes(q, 1, 2).copy()
