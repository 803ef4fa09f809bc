"""Reshape, permute, broadcast, concatenate and stack tensors."""

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
    """Return the elements in another shape, in row-major order.

    Args:
        x: The input.
        shape: The shape as integers in one sequence, or the first of them; one may be -1 and
            follows from the others.
        *more: The other integers.

    Raises:
        GraphError: The shape does not have as many elements as `x`.

    Example:
        >>> graphc.compile(lambda: graphc.reshape([1, 2, 3, 4], (2, -1)))()
        array([[1, 2],
               [3, 4]])
    """
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
    """Merge a range of axes into one: [n, c, h, w] becomes [n, c * h * w].

    Args:
        x: The input.
        start_axis: The first axis to merge; the default keeps the batch.
        end_axis: The last axis to merge, which is included.

    Raises:
        GraphError: `start_axis` comes after `end_axis`.

    Example:
        >>> graphc.trace(graphc.flatten, graphc.spec((8, 3, 4, 4))).outputs[0].type.shape
        (8, 48)
    """
    tensor = as_tensor(x)
    start, end = (axis_of("flatten", a, tensor) for a in (start_axis, end_axis))
    if start > end:
        raise error(f"flatten: start_axis {start_axis} lies behind end_axis {end_axis}")
    shape = tensor.shape
    merged = math.prod(shape[start : end + 1])
    return reshape(tensor, (*shape[:start], merged, *shape[end + 1 :]))


def permute_dims(x: TensorLike, axes: Sequence[int]) -> Tensor:
    """Permute axes: axis d of the result is axis axes[d] of `x`.

    Args:
        x: The input.
        axes: A permutation of the axes.

    Raises:
        GraphError: `axes` is not a permutation.

    Example:
        >>> graphc.compile(lambda: graphc.permute_dims(np.zeros((2, 3, 4)), (2, 0, 1)))().shape
        (4, 2, 3)
    """
    tensor = as_tensor(x)
    order = tuple(axis_of("permute_dims", a, tensor) for a in axes)
    if sorted(order) != list(range(tensor.ndim)):
        raise error(
            f"permute_dims: axes {tuple(axes)} are not a permutation of those of "
            f"{tensor.value.type}"
        )
    return emit(ops.PermuteDims(order), tensor)


def transpose(x: TensorLike, axes: Sequence[int] | None = None, *more: int) -> Tensor:
    """Permute axes, or reverse their order, as numpy.transpose.

    Args:
        x: The input.
        axes: A permutation of the axes in one tuple; None reverses them.
        *more: Always an error, for callers who mean `swapaxes`.

    Raises:
        GraphError: `axes` is not a permutation.

    Example:
        >>> graphc.compile(lambda: graphc.transpose([[1, 2], [3, 4]]))()
        array([[1, 3],
               [2, 4]])
    """
    tensor = as_tensor(x)
    if more or isinstance(axes, int):
        got = ", ".join(map(repr, (axes, *more)))
        raise error(
            f"transpose: expected all axes in one tuple, got {got}; "
            "graphc.swapaxes exchanges two axes"
        )
    return permute_dims(tensor, range(tensor.ndim)[::-1] if axes is None else axes)


def matrix_transpose(x: TensorLike) -> Tensor:
    """Exchange the last two axes.

    Raises:
        GraphError: `x` has fewer than two axes.
    """
    tensor = as_tensor(x)
    if tensor.ndim < 2:
        raise error(f"matrix_transpose: expected 2 axes or more, got {tensor.value.type}")
    *batch, rows, columns = range(tensor.ndim)
    return permute_dims(tensor, (*batch, columns, rows))


def expand_dims(x: TensorLike, axis: int = 0) -> Tensor:
    """Insert an axis of size 1.

    Args:
        x: The input.
        axis: The index of the new axis in the result.

    Example:
        >>> graphc.compile(lambda: graphc.expand_dims([1, 2], axis=1))()
        array([[1],
               [2]])
    """
    tensor = as_tensor(x)
    place = axis_of("expand_dims", axis, tensor, extra=1)
    return reshape(tensor, (*tensor.shape[:place], 1, *tensor.shape[place:]))


def squeeze(x: TensorLike, axis: Axes = None) -> Tensor:
    """Remove axes of size 1.

    Args:
        x: The input.
        axis: The axis or axes to remove; None removes all of size 1.

    Raises:
        GraphError: A given axis has another size.

    Example:
        >>> graphc.compile(lambda: graphc.squeeze([[[1], [2]]]))()
        array([1, 2])
    """
    tensor = as_tensor(x)
    if axis is None:
        return reshape(tensor, tuple(n for n in tensor.shape if n != 1))
    axes = axes_of("squeeze", axis, tensor)
    for a in axes:
        if tensor.shape[a] != 1:
            raise error(f"squeeze: axis {a} of {tensor.value.type} has extent {tensor.shape[a]}")
    return reshape(tensor, tuple(n for a, n in enumerate(tensor.shape) if a not in axes))


def broadcast_to(x: TensorLike, shape: Shape) -> Tensor:
    """Repeat a tensor along new leading axes and axes of size 1.

    Args:
        x: The input.
        shape: The shape of the result.

    Raises:
        GraphError: The shapes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.broadcast_to([1, 2], (2, 2)))()
        array([[1, 2],
               [1, 2]])
    """
    tensor = as_tensor(x)
    extents = shape_of("broadcast_to", shape)
    return tensor if extents == tensor.shape else emit(ops.BroadcastTo(extents), tensor)


def flip(x: TensorLike, axis: Axes = None) -> Tensor:
    """Reverse the order of elements along axes.

    Args:
        x: The input.
        axis: The axis or axes; None reverses all.

    Example:
        >>> graphc.compile(lambda: graphc.flip([1, 2, 3]))()
        array([3, 2, 1])
    """
    tensor = as_tensor(x)
    return emit(ops.Flip(axes_of("flip", axis, tensor)), tensor)


def concat(arrays: Sequence[TensorLike], axis: int | None = 0) -> Tensor:
    """Join tensors along an existing axis.

    Args:
        arrays: The tensors, of one shape but for `axis`.
        axis: The axis to join along; None joins the flattened tensors.

    Raises:
        GraphError: The shapes do not fit or there are no tensors.

    Example:
        >>> graphc.compile(lambda: graphc.concat([[1, 2], [3]]))()
        array([1, 2, 3])
    """
    tensors = promoted(*_several("concat", arrays))
    if axis is None:
        tensors, axis = [reshape(t, -1) for t in tensors], 0
    place = axis_of("concat", axis, tensors[0])
    return emit(ops.Concat(place), *tensors)


def stack(arrays: Sequence[TensorLike], axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis.

    Args:
        arrays: The tensors.
        axis: The index of the new axis in the result.

    Raises:
        GraphError: The shapes differ or there are no tensors.

    Example:
        >>> graphc.compile(lambda: graphc.stack([[1, 2], [3, 4]], axis=1))()
        array([[1, 3],
               [2, 4]])
    """
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
