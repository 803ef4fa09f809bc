"""The first of the largest elements, and where it stands: what max pooling gives beside values."""

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
    """The first of the largest floats along `axis` (or of NaN), which gets the whole gradient, its
    place (i64), and the elements of each of `numbered` there; all keep the axis with extent 1. Only
    places count at which `inside` holds, which broadcasts with x."""
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
    """The number of the pixel h * width + w, i64, from its place r * S + s in the window of output
    pixel (p, q), for places [n, c, p, q]."""
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
    """x less its largest element along `axis`, so that no exponential overflows. The shift cancels
    in what follows, so no gradient flows through it."""
    tensor = floating(x)
    axes_of(name, axis, tensor)
    if not tensor.size:
        return tensor
    return subtract(tensor, stop_gradient(max(tensor, axis, keepdims=True)))
