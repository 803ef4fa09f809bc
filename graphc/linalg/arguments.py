"""Check and convert the matrices that functions get."""

from __future__ import annotations

import numpy as np

from graphc.base.source_lines import error
from graphc.functions import abs as abs_of
from graphc.functions import (
    astype,
    broadcast_to,
    logical_and,
    logical_or,
    matrix_transpose,
    stop_gradient,
    where,
)
from graphc.functions import max as max_of
from graphc.functions.array.tensors import floating
from graphc.ir import TensorLike
from graphc.trace import Tensor

RANGES = {"f32": (1e-9, 1e9), "f64": (1e-100, 1e100)}
"""Between which magnitudes squares neither overflow nor vanish, with room for sums."""


def matrices(name: str, x: TensorLike, square: bool = False) -> Tensor:
    """Return matrices of f32 or f64, or raise GraphError.

    Those of other dtypes become f32.
    """
    given = floating(x)
    if given.ndim < 2:
        raise error(f"{name}: expected matrices [..., m, n], got {given.value.type}")
    if square and given.shape[-1] != given.shape[-2]:
        raise error(f"{name}: expected square matrices [..., n, n], got {given.value.type}")
    return given if given.dtype in RANGES else astype(given, "f32")


def dtype_of(x: TensorLike) -> str:
    """Return the dtype of results from x."""
    return floating(x).dtype


def symmetric(x: Tensor) -> Tensor:
    """Return the mean of matrices and their transposes, which is what they are if symmetric."""
    return (x + matrix_transpose(x)) / 2


def with_leading(name: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return matrices with leading axes broadcast to each other, or raise GraphError."""
    try:
        leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise error(
            f"{name}: leading axes of {a.value.type} and {b.value.type} do not broadcast"
        ) from None
    wide = (broadcast_to(x, (*leading, *x.shape[-2:])) for x in (a, b))
    first, second = wide
    return first, second


def scale_of(x: Tensor) -> Tensor | None:
    """Return [..., 1, 1] by which to divide matrices so that squares stay within range.

    It is 1 where they do; no gradient flows. None for matrices without elements.
    """
    if 0 in x.shape[-2:]:
        return None
    low, high = RANGES[x.dtype]
    largest = stop_gradient(max_of(abs_of(x), axis=(-2, -1), keepdims=True))
    outside = logical_or(largest > high, logical_and(largest > 0, largest < low))
    return where(outside, largest, 1)
