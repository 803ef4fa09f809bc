"""Roots of secular equations in NumPy, in the order of kernels/secular.h.

The equation is 1 + sum over j of z_j^2 / (d_j^2 - x^2) = 0, with 0 = d_0 < d_1 < ... Root i is
between d_i and d_(i + 1); the last one is beyond all d.
"""

from __future__ import annotations

import numpy as np

from graphc.ops.base import Array

MOST_STEPS = 80
"""Steps for a root; three to six are usual."""
QUICK_STEPS = 9
"""After so many, every other step halves the interval."""


def roots(d: Array, z: Array) -> tuple[Array, Array]:
    """Return the roots as (origin, offset): root i is d[origin[i]] + offset[i].

    The origin is the nearer of the two neighbours, so that differences from all d are precise. A
    step replaces the sum by two poles, the neighbours, with its value and slope (R.-C. Li, Solving
    secular equations stably and efficiently, 1993): either the origin has its own weight, or each
    neighbour stands for the poles on its side. A step that gains little changes the method; one
    that leaves the interval halves it.
    """
    k, kind, epsilon = len(d), d.dtype.type, np.finfo(d.dtype).eps
    total = kind(0)
    for x in z:
        total = total + x * x
    last = total / (d[-1] + np.sqrt(d[-1] * d[-1] + total))
    if k == 1:
        return np.zeros(1, int), np.full_like(d, last)
    half = np.append((d[1:] - d[:-1]) / 2, last)
    value = np.ones_like(d)
    for j in range(k):
        value = value + z[j] * (z[j] / (((d[j] - d) - half) * ((d[j] + d) + half)))
    at_end = value < 0
    at_end[-1] = False
    own_number = np.arange(k)
    origin = own_number + at_end
    other = np.where(at_end, origin - 1, origin + 1)
    other[-1] = k - 2
    base, beside = d[origin], d[other]
    whole = (beside - base) * (beside + base)
    offset = np.where(at_end, -half, half)
    low, high = np.where(at_end, -half, 0), np.where(at_end, 0, half)
    own = (0 - offset) * ((base + base) + offset)
    rest = ((beside - base) - offset) * ((beside + base) + offset)
    weight, slope = z[origin] * z[origin], z[other] * z[other]
    high[-1] = last + last
    done, split, before = np.zeros(k, bool), np.zeros(k, bool), np.zeros_like(d)
    for number in range(MOST_STEPS):
        c = (value - weight / own) - slope / rest
        # c r^2 - both r + first = 0 for r, the distance from the origin by that of the other pole.
        first, both = weight / whole, c + (weight + slope) / whole
        c, both, first = (np.where(at_end, -x, x) for x in (c, both, first))
        root = np.sqrt(np.abs(both * both - 4 * (c * first)))
        step = whole * np.where(both < 0, (both - root) / (2 * c), 2 * first / (both + root))
        new = step / (base + np.sqrt(base * base + step))
        halved = _between(low, high)
        if number >= QUICK_STEPS and number % 2:
            new = halved
        new = np.where((new > low) & (new < high), new, halved)
        done |= ~((new > low) & (new < high))
        offset = np.where(done, offset, new)
        if done.all():
            break
        own = (0 - offset) * ((base + base) + offset)
        rest = ((beside - base) - offset) * ((beside + base) + offset)
        value, sizes = np.ones_like(d), np.ones_like(d)
        below, above = np.zeros_like(d), np.zeros_like(d)
        for j in range(k):
            t = z[j] / (((d[j] - base) - offset) * ((d[j] + base) + offset))
            value, sizes = value + z[j] * t, sizes + np.abs(z[j] * t)
            square = (t * rest) * (t * rest)
            below = np.where((j <= own_number) & (j != origin), below + square, below)
            above = np.where((j > own_number) & (j != origin), above + square, above)
        near, far = np.where(origin > other, (above, below), (below, above))
        done |= np.abs(value) <= 8 * epsilon * sizes
        low, high = np.where(value < 0, offset, low), np.where(value < 0, high, offset)
        split ^= (value * before > 0) & (10 * np.abs(value) > np.abs(before))
        before = value
        ratio = own / rest
        weight = z[origin] * z[origin] + np.where(split, near * (ratio * ratio), 0)
        slope = far + np.where(split, 0, near)
    return origin, offset


def _between(low: Array, high: Array) -> Array:
    """Places within intervals, about halves of them or of their logarithms."""
    least, most = np.where(high > 0, low, -high), np.where(high > 0, high, -low)
    found = np.where(least * 4 < most, np.sqrt(least) * np.sqrt(most), (least + most) / 2)
    found = np.where(least == 0, most / 1024, found)
    return np.where(high > 0, found, -found)


def loewner(d: Array, z: Array, origin: Array, offset: Array) -> Array:
    """Return the z of which the given roots are those to the last bit (Gu and Eisenstat, 1994)."""
    k = len(d)
    product, places = np.ones_like(d), np.arange(k)
    for i in range(k):
        base = d[origin[i]]
        x = ((base - d) + offset[i]) * ((base + d) + offset[i])
        if i < k - 1:
            pole = np.where(i < places, d[i], d[i + 1])
            x = x / ((pole - d) * (pole + d))
        product = product * x
    return np.copysign(np.sqrt(np.abs(product)), z)
