"""Transforms along the last axis but one, as products with constant matrices.

The real and the imaginary part lie one behind the other, z[..., 2, n, columns], so that a transform
of n numbers is a product with a real matrix [2n, 2n]. Where n = a * b, it is b transforms of a
numbers, a factor for each number and a transforms of b numbers (Cooley and Tukey, 1965). Where n is
a large prime, it is a convolution, by transforms of a size with small factors (Bluestein, 1970).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from graphc.functions import as_tensor, matmul, moveaxis, pad, reshape, stack
from graphc.ir import DTYPES
from graphc.ops.base import Array
from graphc.trace import Tensor

LARGEST = 64
"""The largest size that is not divided: a product with a matrix of 128 rows is fast."""
LARGEST_PRIME = 400
"""The largest prime whose transform is a product; that of a larger one costs more than a
convolution."""


def transform(z: Tensor, sign: int) -> Tensor:
    """Return y[k] = sum over j of z[j] exp(sign * 2 pi i j k / n) for z [..., 2, n, columns]."""
    *leading, _, n, columns = z.shape
    first = divisor(n)
    if first == 1 and n > LARGEST_PRIME:
        return _convolved(z, sign)
    if first == 1:
        weights = as_tensor(_complex_matrix(n, sign), z.dtype)
        flat = reshape(z, (*leading, 2 * n, columns))
        return reshape(matmul(weights, flat), (*leading, 2, n, columns))
    rest = n // first
    y = transform(reshape(z, (*leading, 2, first, rest * columns)), sign)
    whole = finished(reshape(y, (*leading, 2, first, rest, columns)), n, sign)
    return reshape(whole, (*leading, 2, n, columns))


def finished(y: Tensor, n: int, sign: int) -> Tensor:
    """Return the transform of n numbers from those of each b-th of them.

    y[..., 2, a', b, columns] holds the first a' of a = n / b numbers of each; the result is
    [..., 2, b, a' * columns], whose element [k2, k1] is that of k1 + a * k2.
    """
    *leading, _, first, rest, columns = y.shape
    steps = np.outer(np.arange(first), np.arange(rest)) % n
    turned = rotated(y, steps[:, :, None], n, sign)
    return transform(reshape(moveaxis(turned, -3, -2), (*leading, 2, rest, first * columns)), sign)


def rotated(z: Tensor, steps: Array, n: int, sign: int) -> Tensor:
    """Return z times exp(sign * 2 pi i steps / n), for z [..., 2, *steps.shape or broadcast]."""
    rank = steps.ndim
    cosine, sine = _circle(steps, n)
    return times(z, as_tensor(cosine, z.dtype), as_tensor(sign * sine, z.dtype), rank)


def times(z: Tensor, real: Tensor, imag: Tensor, rank: int) -> Tensor:
    """Return the complex product of z, whose parts are on the axis before the last `rank`."""
    places = (slice(None),) * rank
    a, b = z[(..., 0, *places)], z[(..., 1, *places)]
    return stack([a * real - b * imag, a * imag + b * real], axis=-1 - rank)


def real_matrix(n: int, count: int, dtype: str) -> Array:
    """Return the matrix [2 * count, n] of the first `count` numbers of a transform of reals."""
    cosine, sine = _circle(np.outer(np.arange(count), np.arange(n)), n)
    return np.concatenate([cosine, 0 - sine]).astype(DTYPES[dtype])


def inverse_matrix(n: int, dtype: str) -> Array:
    """Return the matrix [n, 2 * (n // 2 + 1)] from half a spectrum to n reals, times n."""
    count = n // 2 + 1
    cosine, sine = _circle(np.outer(np.arange(n), np.arange(count)), n)
    twice = np.where((2 * np.arange(count)) % n == 0, 1.0, 2.0)
    sines = np.where(twice == 1, 0.0, -twice * sine)
    return np.concatenate([twice * cosine, sines], 1).astype(DTYPES[dtype])


@functools.cache
def divisor(n: int) -> int:
    """Return the size of the first transforms of n numbers, or 1 if n is not divided.

    It divides n and is at most `LARGEST`; the sizes of all are about equal.
    """
    if n <= LARGEST:
        return 1
    steps = math.ceil(math.log(n) / math.log(LARGEST))
    found = [d for d in range(2, LARGEST + 1) if n % d == 0]
    return min(found, key=lambda d: abs(math.log(d) - math.log(n) / steps), default=1)


def _circle(steps: Array, n: int) -> tuple[Array, Array]:
    """Cosine and sine of 2 pi steps / n, with zeros where they are exact."""
    places = steps % n
    angles = (2 * math.pi / n) * places
    halves, quarters = 2 * places % n == 0, 4 * places % n == 0
    cosine = np.where(quarters & ~halves, 0.0, np.cos(angles))
    return cosine, np.where(halves, 0.0, np.sin(angles))


def _complex_matrix(n: int, sign: int) -> Array:
    """The real matrix [2n, 2n] of a transform of n complex numbers."""
    cosine, sine = _circle(np.outer(np.arange(n), np.arange(n)), n)
    sine = sign * sine
    return np.block([[cosine, -sine], [sine, cosine]])


def _convolved(z: Tensor, sign: int) -> Tensor:
    """The transform by a convolution, since j k = (j^2 + k^2 - (k - j)^2) / 2."""
    n = z.shape[-2]
    size = _smooth(2 * n - 1)
    places = np.arange(n)
    squares = (places * places) % (2 * n)
    chirp = np.exp(sign * 1j * math.pi / n * squares)
    kernel = np.zeros(size, np.complex128)
    kernel[:n] = chirp.conj()
    kernel[size - n + 1 :] = chirp.conj()[:0:-1]
    spectrum = np.fft.fft(kernel) / size
    turned = rotated(z, squares[:, None], 2 * n, sign)
    zeros = [(0, 0)] * (z.ndim - 2)
    padded = pad(turned, [*zeros, (0, size - n), (0, 0)])
    real, imag = (as_tensor(w[:, None], z.dtype) for w in (spectrum.real, spectrum.imag))
    y = transform(times(transform(padded, -1), real, imag, 2), 1)
    return rotated(y[..., :n, :], squares[:, None], 2 * n, sign)


def _smooth(least: int) -> int:
    """The smallest size from `least` on without prime factors above 5."""
    while True:
        rest = least
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return least
        least += 1
