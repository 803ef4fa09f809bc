"""Find the first of the largest elements and its index, as max pooling does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphc import ops
from graphc.functions.array.elementwise.elementwise import (
    add,
    equal,
    floor_divide,
    isnan,
    logical_and,
    logical_or,
    multiply,
    remainder,
    stop_gradient,
    subtract,
    where,
)
from graphc.functions.array.reductions import max, min
from graphc.functions.array.tensors import as_tensor, axes_of, cast, floating
from graphc.ir import TensorLike
from graphc.trace import Tensor, emit


def first_largest(
    x: Tensor, axis: int, inside: np.ndarray | None = None, *numbered: Tensor
) -> tuple[Tensor, ...]:
    """Return the first of the largest floats (or NaNs) along `axis`, and its i64 index.

    It also returns the elements of each of `numbered` at that index. All results keep the axis with
    size 1. Only elements where `inside` holds count; `inside` broadcasts with x. The element found
    gets the whole gradient.
    """
    extent = x.shape[axis]
    ramp = emit(ops.Iota(tuple(extent if a == axis else 1 for a in range(x.ndim)), axis, "i64"))
    found = logical_or(equal(x, max(x, axis, keepdims=True)), isnan(x))
    if inside is not None:
        found = logical_and(found, as_tensor(inside))
    place = min(where(found, ramp, extent), axis, keepdims=True)
    chosen = equal(ramp, place)
    parts = (emit(ops.Sum((axis,), True), where(chosen, t, 0)) for t in (x, *numbered))
    value, *others = parts
    return value, place, *others


def pixel_of(
    place: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    width: int,
) -> Tensor:
    """Return the i64 pixel numbers h * width + w of indices r * S + s in windows.

    `place` [n, c, p, q] holds the index in the window of output pixel (p, q).
    """
    columns = kernel[1]
    numbers = cast(place, "i64")
    row, column = (
        add(
            multiply(tap, dilation[i]),
            emit(ops.Iota(_only(place.shape, 2 + i), 2 + i, "i64")) * stride[i] - padding[i],
        )
        for i, tap in enumerate((floor_divide(numbers, columns), remainder(numbers, columns)))
    )
    return add(multiply(row, width), column)


def _only(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(n if a == axis else 1 for a, n in enumerate(shape))


def shifted(name: str, x: TensorLike, axis: int) -> Tensor:
    """Subtract the largest element along `axis`, so that exponentials cannot overflow.

    The shift cancels in what follows, so no gradient flows through it.
    """
    tensor = floating(x)
    axes_of(name, axis, tensor)
    if not tensor.size:
        return tensor
    return subtract(tensor, stop_gradient(max(tensor, axis, keepdims=True)))
