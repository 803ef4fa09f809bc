"""Fourier transforms along an axis."""

from __future__ import annotations

import numpy as np

from graphc.base.source_lines import error
from graphc.fft.factors import (
    LARGEST_PRIME,
    divisor,
    finished,
    inverse_matrix,
    real_matrix,
    rotated,
    transform,
)
from graphc.functions import (
    astype,
    concat,
    flip,
    matmul,
    moveaxis,
    pad,
    reshape,
    stack,
    swapaxes,
    where,
    zeros_like,
)
from graphc.functions.array.tensors import axis_of, floating, is_integer, promoted
from graphc.ir import DTYPES, TensorLike
from graphc.trace import Tensor

SCALES = {"backward": (0.0, 1.0), "ortho": (0.5, 0.5), "forward": (1.0, 0.0)}
"""For each norm, the powers of 1 / n in a transform and in its inverse."""


def fft(
    real: TensorLike,
    imag: TensorLike | None = None,
    n: int | None = None,
    axis: int = -1,
    norm: str = "backward",
) -> tuple[Tensor, Tensor]:
    """Return the Fourier transform of complex numbers, as numpy.fft.fft.

    It is y[k] = sum over j of x[j] exp(-2 pi i j k / n). All sizes are fast that have no prime
    factor above 400.

    Args:
        real: The real parts, of a float dtype; those of two bytes are transformed in f32.
        imag: The imaginary parts, of the same shape; None for zeros.
        n: The size of the transform: elements beyond it are left out, missing ones are zeros; by
            default the size of the axis.
        axis: The axis to transform.
        norm: Where to multiply by a power of 1 / n: "backward", in the inverse alone; "ortho", by
            its square root in both; "forward", in the transform alone.

    Returns:
        The real and the imaginary parts.

    Raises:
        GraphError: The parts differ in shape, there is no such axis, `norm` is unknown or `n` is no
            positive integer.

    Example:
        >>> graphc.compile(lambda: graphc.fft.fft([0.0, 1.0, 0.0, 0.0]))()
        (array([ 1.,  0., -1.,  0.], dtype=float32), array([ 0., -1.,  0.,  1.], dtype=float32))
    """
    return _complex("fft", real, imag, n, axis, norm, -1)


def ifft(
    real: TensorLike,
    imag: TensorLike | None = None,
    n: int | None = None,
    axis: int = -1,
    norm: str = "backward",
) -> tuple[Tensor, Tensor]:
    """Return the inverse Fourier transform of complex numbers, as numpy.fft.ifft.

    Arguments, results and errors are those of `fft`.

    Example:
        >>> graphc.compile(lambda: graphc.fft.ifft([4.0, 0.0, 0.0, 0.0]))()
        (array([1., 1., 1., 1.], dtype=float32), array([0., 0., 0., 0.], dtype=float32))
    """
    return _complex("ifft", real, imag, n, axis, norm, 1)


def rfft(
    x: TensorLike, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> tuple[Tensor, Tensor]:
    """Return the first half of the Fourier transform of reals, as numpy.fft.rfft.

    Args:
        x: The numbers, of a float dtype; those of two bytes are transformed in f32.
        n: The size of the transform: elements beyond it are left out, missing ones are zeros; by
            default the size of the axis.
        axis: The axis to transform.
        norm: "backward", "ortho" or "forward", as in `fft`.

    Returns:
        The real and the imaginary parts of the first n // 2 + 1 numbers; the others are the complex
        conjugates of these in reverse.

    Raises:
        GraphError: There is no such axis, `norm` is unknown or `n` is no positive integer.

    Example:
        >>> graphc.compile(lambda: graphc.fft.rfft([0.0, 1.0, 0.0, 0.0]))()
        (array([ 1.,  0., -1.], dtype=float32), array([ 0., -1.,  0.], dtype=float32))
    """
    tensor = floating(x)
    place = axis_of("rfft", axis, tensor)
    size = _size("rfft", tensor.shape[place] if n is None else n)
    scale = _scale("rfft", norm, size, False)
    wide = _at_size(moveaxis(_widened(tensor), place, -1), size)
    first, half = divisor(size), size // 2 + 1
    if first == 1 and size > LARGEST_PRIME:
        y = _whole(wide, zeros_like(wide), -1)[..., :half]
    elif first == 1:
        flat = matmul(wide, real_matrix(size, half, wide.dtype).T)
        y = reshape(flat, (*wide.shape[:-1], 2, half))
    else:
        y = _half_spectrum(wide, first)[..., :half]
    return _parts(y * scale, place, tensor.dtype)


def irfft(
    real: TensorLike,
    imag: TensorLike,
    n: int | None = None,
    axis: int = -1,
    norm: str = "backward",
) -> Tensor:
    """Return the reals with a given first half of a Fourier transform, as numpy.fft.irfft.

    Args:
        real: The real parts, of a float dtype; those of two bytes are transformed in f32.
        imag: The imaginary parts, of the same shape. That of the first number does not count, nor
            that of number n / 2.
        n: The size of the result; by default 2 * (m - 1), where m is the size of the axis. Of a
            transform n // 2 + 1 numbers are read; missing ones are zeros.
        axis: The axis to transform.
        norm: "backward", "ortho" or "forward", as in `fft`.

    Raises:
        GraphError: The parts differ in shape, there is no such axis, `norm` is unknown or `n` is no
            positive integer.

    Example:
        >>> graphc.compile(lambda: graphc.fft.irfft([1.0, 0.0, -1.0], [0.0, -1.0, 0.0]))()
        array([0., 1., 0., 0.], dtype=float32)
    """
    a, b, place, dtype = _both("irfft", real, imag, axis)
    size = _size("irfft", 2 * (a.shape[-1] - 1) if n is None else n)
    scale = _scale("irfft", norm, size, True)
    half = size // 2 + 1
    a, b = _at_size(a, half), _at_size(b, half)
    first = divisor(size)
    if first == 1 and size <= LARGEST_PRIME:
        y = matmul(concat([a, b], axis=-1), inverse_matrix(size, a.dtype).T)
    else:
        places = np.arange(half)
        single = (places == 0) | (2 * places == size)
        b = where(single, 0, b)
        whole = _mirrored(stack([a, b], axis=-2), size)
        if first == 1:
            y = transform(whole[..., None], 1)[..., 0, :, 0]
        else:
            y = _from_half_spectrum(whole, first)
    return moveaxis(astype(y * scale, dtype), -1, place)


def _complex(
    name: str,
    real: TensorLike,
    imag: TensorLike | None,
    n: int | None,
    axis: int,
    norm: str,
    sign: int,
) -> tuple[Tensor, Tensor]:
    a, b, place, dtype = _both(name, real, imag, axis)
    size = _size(name, a.shape[-1] if n is None else n)
    scale = _scale(name, norm, size, sign > 0)
    return _parts(_whole(_at_size(a, size), _at_size(b, size), sign) * scale, place, dtype)


def _both(
    name: str, real: TensorLike, imag: TensorLike | None, axis: int
) -> tuple[Tensor, Tensor, int, str]:
    """The parts with the axis as the last, in a dtype to transform in; the axis; their dtype."""
    a = floating(real)
    if imag is not None:
        a, b = promoted(a, floating(imag))
    else:
        b = zeros_like(a)
    if a.shape != b.shape:
        raise error(
            f"{name}: real and imaginary parts expected to have one shape, "
            f"got {a.value.type} and {b.value.type}"
        )
    place = axis_of(name, axis, a)
    wide, high = (moveaxis(_widened(x), place, -1) for x in (a, b))
    return wide, high, place, a.dtype


def _widened(x: Tensor) -> Tensor:
    return astype(x, "f32") if x.dtype in ("f16", "bf16") else x


def _size(name: str, n: object) -> int:
    if not is_integer(n) or n < 1:
        raise error(f"{name}: expected a size n of 1 or more, got {n!r}")
    return int(n)


def _scale(name: str, norm: str, size: int, inverse: bool) -> float:
    if norm not in SCALES:
        known = ", ".join(map(repr, SCALES))
        raise error(f"{name}: expected norm to be one of {known}, got {norm!r}")
    return float(size ** -SCALES[norm][inverse])


def _at_size(x: Tensor, size: int) -> Tensor:
    """x with `size` elements along the last axis."""
    given = x.shape[-1]
    if given >= size:
        return x[..., :size] if given > size else x
    return pad(x, [*((0, 0),) * (x.ndim - 1), (0, size - given)])


def _parts(y: Tensor, place: int, dtype: str) -> tuple[Tensor, Tensor]:
    """The parts of y [..., 2, n] with the last axis as axis `place`."""
    real, imag = (moveaxis(astype(y[..., part, :], dtype), -1, place) for part in (0, 1))
    return real, imag


def _whole(a: Tensor, b: Tensor, sign: int) -> Tensor:
    """The transform [..., 2, n] of complex numbers."""
    return transform(stack([a, b], axis=-2)[..., None], sign)[..., 0]


def _half_spectrum(x: Tensor, first: int) -> Tensor:
    """The transform [..., 2, n] of reals: of the first transforms half is computed."""
    *leading, n = x.shape
    rest, half = n // first, first // 2 + 1
    weights = real_matrix(first, half, x.dtype)
    y = matmul(weights, reshape(x, (*leading, first, rest)))
    y = finished(reshape(y, (*leading, 2, half, rest, 1)), n, -1)
    y = reshape(y, (*leading, 2, rest, half))
    # Number n - k is the conjugate of number k.
    others = flip(y[..., 1 : first - half + 1], axis=(-2, -1))
    return reshape(concat([y, _conjugate(others, 2)], axis=-1), (*leading, 2, n))


def _mirrored(y: Tensor, n: int) -> Tensor:
    """The spectrum [..., 2, n] of reals from its first half."""
    others = flip(y[..., 1 : n - y.shape[-1] + 1], axis=-1)
    return concat([y, _conjugate(others, 1)], axis=-1)


def _from_half_spectrum(y: Tensor, first: int) -> Tensor:
    """n reals, times n, from their spectrum [..., 2, n]: of the last transforms half is read."""
    *leading, _, n = y.shape
    rest, half = n // first, first // 2 + 1
    halves = reshape(y, (*leading, 2, rest, first))[..., :half]
    z = rotated(transform(halves, 1), np.outer(np.arange(rest), np.arange(half)), n, 1)
    columns = reshape(swapaxes(z, -2, -1), (*leading, 2 * half, rest))
    return reshape(matmul(inverse_matrix(first, y.dtype), columns), (*leading, n))


def _conjugate(z: Tensor, rank: int) -> Tensor:
    signs = np.array([1, -1], DTYPES[z.dtype]).reshape(2, *(1,) * rank)
    return z * signs
