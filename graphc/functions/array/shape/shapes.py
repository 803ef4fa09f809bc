"""Other shapes and orders of the same elements, and elements put together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc import ops
from graphc.functions.array.tensors import (
    Axes,
    Shape,
    as_tensor,
    axes_of,
    axis_of,
    error,
    promoted,
    shape_of,
)
from graphc.ir import TensorLike
from graphc.trace import Tensor, emit


def reshape(x: TensorLike, shape: Shape, *more: int) -> Tensor:
    """The same elements in row-major order, in another shape, given as a tuple or one by one; one
    extent may be -1 and follows from the others."""
    tensor = as_tensor(x)
    wanted = [*(shape if isinstance(shape, Sequence) else (shape,)), *more]
    if wanted.count(-1) == 1:
        rest = math.prod(n for n in wanted if n != -1)
        if rest == 0 or tensor.size % rest:
            raise error(
                f"reshape: {tensor.value.type} has {tensor.size} elements, "
                f"which shape {wanted} does not divide"
            )
        wanted[wanted.index(-1)] = tensor.size // rest
    extents = shape_of("reshape", wanted)
    return tensor if extents == tensor.shape else emit(ops.Reshape(extents), tensor)


def flatten(x: TensorLike, start_axis: int = 1, end_axis: int = -1) -> Tensor:
    """The axes from `start_axis` to `end_axis`, both included, as one: [n, c, h, w] becomes
    [n, c * h * w]."""
    tensor = as_tensor(x)
    start, end = (axis_of("flatten", a, tensor) for a in (start_axis, end_axis))
    if start > end:
        raise error(f"flatten: start_axis {start_axis} lies behind end_axis {end_axis}")
    shape = tensor.shape
    merged = math.prod(shape[start : end + 1])
    return reshape(tensor, (*shape[:start], merged, *shape[end + 1 :]))


def permute_dims(x: TensorLike, axes: Sequence[int]) -> Tensor:
    """Output axis d is input axis axes[d]."""
    tensor = as_tensor(x)
    order = tuple(axis_of("permute_dims", a, tensor) for a in axes)
    if sorted(order) != list(range(tensor.ndim)):
        raise error(
            f"permute_dims: axes {tuple(axes)} are not a permutation of those of "
            f"{tensor.value.type}"
        )
    return emit(ops.PermuteDims(order), tensor)


def transpose(x: TensorLike, axes: Sequence[int] | None = None, *more: int) -> Tensor:
    """The axes in the order `axes`, reversed for None, as in NumPy."""
    tensor = as_tensor(x)
    if more or isinstance(axes, int):
        got = ", ".join(map(repr, (axes, *more)))
        raise error(
            f"transpose: expected all axes in one tuple, got {got}; "
            "graphc.swapaxes exchanges two axes"
        )
    return permute_dims(tensor, range(tensor.ndim)[::-1] if axes is None else axes)


def matrix_transpose(x: TensorLike) -> Tensor:
    """The last two axes exchanged."""
    tensor = as_tensor(x)
    if tensor.ndim < 2:
        raise error(f"matrix_transpose: expected 2 axes or more, got {tensor.value.type}")
    *batch, rows, columns = range(tensor.ndim)
    return permute_dims(tensor, (*batch, columns, rows))


def expand_dims(x: TensorLike, axis: int = 0) -> Tensor:
    """A new axis of extent 1, number `axis` of the result."""
    tensor = as_tensor(x)
    place = axis_of("expand_dims", axis, tensor, extra=1)
    return reshape(tensor, (*tensor.shape[:place], 1, *tensor.shape[place:]))


def squeeze(x: TensorLike, axis: Axes = None) -> Tensor:
    """Without the axes `axis`, whose extents must be 1; None removes all of extent 1."""
    tensor = as_tensor(x)
    if axis is None:
        return reshape(tensor, tuple(n for n in tensor.shape if n != 1))
    axes = axes_of("squeeze", axis, tensor)
    for a in axes:
        if tensor.shape[a] != 1:
            raise error(f"squeeze: axis {a} of {tensor.value.type} has extent {tensor.shape[a]}")
    return reshape(tensor, tuple(n for a, n in enumerate(tensor.shape) if a not in axes))


def broadcast_to(x: TensorLike, shape: Shape) -> Tensor:
    """x repeated along new leading axes and axes of extent 1."""
    tensor = as_tensor(x)
    extents = shape_of("broadcast_to", shape)
    return tensor if extents == tensor.shape else emit(ops.BroadcastTo(extents), tensor)


def flip(x: TensorLike, axis: Axes = None) -> Tensor:
    """The elements in reverse order along `axis` (one, several, or all for None)."""
    tensor = as_tensor(x)
    return emit(ops.Flip(axes_of("flip", axis, tensor)), tensor)


def concat(arrays: Sequence[TensorLike], axis: int | None = 0) -> Tensor:
    """The arrays one behind the other along `axis`; flattened before for None."""
    tensors = promoted(*_several("concat", arrays))
    if axis is None:
        tensors, axis = [reshape(t, -1) for t in tensors], 0
    place = axis_of("concat", axis, tensors[0])
    return emit(ops.Concat(place), *tensors)


def stack(arrays: Sequence[TensorLike], axis: int = 0) -> Tensor:
    """The arrays, of one shape, along a new axis, number `axis` of the result."""
    tensors = promoted(*_several("stack", arrays))
    for t in tensors:
        if t.shape != tensors[0].shape:
            raise error(f"stack: {tensors[0].value.type} and {t.value.type} differ in shape")
    place = axis_of("stack", axis, tensors[0], extra=1)
    return concat([expand_dims(t, place) for t in tensors], place)


def _several(name: str, arrays: Sequence[TensorLike]) -> Sequence[TensorLike]:
    if isinstance(arrays, Tensor) or not isinstance(arrays, Sequence) or not arrays:
        raise error(f"{name}: expected a list or tuple of at least one tensor")
    return arrays
