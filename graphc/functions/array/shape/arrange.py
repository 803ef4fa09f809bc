"""Split, stack, flip and rotate tensors, by the names of torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from graphc.functions.array.shape.rearrange import split, swapaxes
from graphc.functions.array.shape.shapes import broadcast_to, concat, expand_dims, flip, reshape
from graphc.functions.array.tensors import as_tensor, astype, axis_of, error, part
from graphc.ir import DTypeLike, TensorLike
from graphc.trace import Tensor


def chunk(x: TensorLike, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """Split a tensor into at most `chunks` parts of equal size, of which the last may be smaller.

    Args:
        x: The input.
        chunks: The number of parts.
        axis: The axis to split.

    Raises:
        GraphError: `chunks` is not a positive integer.

    Example:
        >>> graphc.compile(lambda: graphc.chunk([1, 2, 3, 4, 5], 2))()
        (array([1, 2, 3]), array([4, 5]))
    """
    tensor = as_tensor(x)
    if not isinstance(chunks, int) or chunks < 1:
        raise error(f"chunk: chunks expected a positive integer, got {chunks!r}")
    extent = tensor.shape[axis_of("chunk", axis, tensor)]
    return split(tensor, max(-(-extent // chunks), 1), axis)


def tensor_split(
    x: TensorLike, indices_or_sections: int | Sequence[int], axis: int = 0
) -> tuple[Tensor, ...]:
    """Split a tensor into parts of almost equal size, or at indices.

    Args:
        x: The input.
        indices_or_sections: The number of parts, of which the first ones are larger by one where
            the size is no multiple; or the indices at which to split.
        axis: The axis to split.

    Raises:
        GraphError: The number of parts is below 1.

    Example:
        >>> graphc.compile(lambda: graphc.tensor_split([1, 2, 3, 4, 5], [1, 3]))()
        (array([1]), array([2, 3]), array([4, 5]))
    """
    tensor = as_tensor(x)
    place = axis_of("tensor_split", axis, tensor)
    extent = tensor.shape[place]
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1:
            raise error(f"tensor_split: expected 1 part or more, got {indices_or_sections}")
        each, longer = divmod(extent, indices_or_sections)
        sizes = [each + (i < longer) for i in range(indices_or_sections)]
        cuts = np.cumsum([0, *sizes]).tolist()
    else:
        cuts = [0, *indices_or_sections, extent]
    return tuple(part(tensor, place, a, b) for a, b in itertools.pairwise(cuts))


def hsplit(x: TensorLike, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Split a tensor along axis 1, or a vector along axis 0, as `tensor_split`.

    Example:
        >>> graphc.compile(lambda: graphc.hsplit([[1, 2], [3, 4]], 2))()
        (array([[1],
               [3]]), array([[2],
               [4]]))
    """
    tensor = as_tensor(x)
    return tensor_split(tensor, indices_or_sections, 1 if tensor.ndim > 1 else 0)


def vsplit(x: TensorLike, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Split a tensor along axis 0, as `tensor_split`.

    Example:
        >>> graphc.compile(lambda: graphc.vsplit([[1, 2], [3, 4]], 2))()
        (array([[1, 2]]), array([[3, 4]]))
    """
    return tensor_split(x, indices_or_sections, 0)


def dsplit(x: TensorLike, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Split a tensor along axis 2, as `tensor_split`.

    Example:
        >>> graphc.compile(lambda: graphc.dsplit([[[1, 2], [3, 4]]], 2))()
        (array([[[1],
                [3]]]), array([[[2],
                [4]]]))
    """
    return tensor_split(x, indices_or_sections, 2)


def narrow(x: TensorLike, axis: int, start: int, length: int) -> Tensor:
    """Return `length` elements along an axis, from index `start` on.

    Args:
        x: The input.
        axis: The axis to slice.
        start: The first index; a negative one counts from the end.
        length: The number of elements.

    Raises:
        GraphError: The elements do not exist.

    Example:
        >>> graphc.compile(lambda: graphc.narrow([1, 2, 3, 4], 0, 1, 2))()
        array([2, 3])
    """
    tensor = as_tensor(x)
    place = axis_of("narrow", axis, tensor)
    extent = tensor.shape[place]
    first = start + extent if start < 0 else start
    if not 0 <= first <= first + length <= extent:
        raise error(
            f"narrow: {length} elements from {start} on are not in axis {place} of "
            f"{tensor.value.type}"
        )
    return part(tensor, place, first, first + length)


def select(x: TensorLike, axis: int, index: int) -> Tensor:
    """Return one slice along an axis, without that axis.

    Args:
        x: The input.
        axis: The axis to index.
        index: The index; a negative one counts from the end.

    Example:
        >>> graphc.compile(lambda: graphc.select([[1, 2], [3, 4]], 1, 0))()
        array([1, 3])
    """
    tensor = as_tensor(x)
    return tensor[(*(slice(None),) * axis_of("select", axis, tensor), index)]


def rot90(x: TensorLike, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """Rotate by 90 degrees in the plane of two axes.

    Args:
        x: The input.
        k: How many times to rotate, from the first of `axes` towards the second.
        axes: The two axes.

    Raises:
        GraphError: `axes` are not two different axes.

    Example:
        >>> graphc.compile(lambda: graphc.rot90([[1, 2], [3, 4]]))()
        array([[2, 4],
               [1, 3]])
    """
    tensor = as_tensor(x)
    if len(axes) != 2:
        raise error(f"rot90: expected 2 axes, got {tuple(axes)}")
    first, second = (axis_of("rot90", a, tensor) for a in axes)
    if first == second:
        raise error(f"rot90: expected 2 different axes, got {tuple(axes)}")
    if k % 4 == 2:
        return flip(tensor, (first, second))
    if k % 4 == 1:
        return swapaxes(flip(tensor, second), first, second)
    return flip(swapaxes(tensor, first, second), second) if k % 4 else tensor


def fliplr(x: TensorLike) -> Tensor:
    """Reverse the order of elements along axis 1."""
    return flip(x, 1)


def flipud(x: TensorLike) -> Tensor:
    """Reverse the order of elements along axis 0."""
    return flip(x, 0)


def atleast_1d(x: TensorLike) -> Tensor:
    """Return `x` with at least 1 axis."""
    tensor = as_tensor(x)
    return tensor if tensor.ndim else reshape(tensor, (1,))


def atleast_2d(x: TensorLike) -> Tensor:
    """Return `x` with at least 2 axes; a vector becomes a row."""
    tensor = atleast_1d(x)
    return tensor if tensor.ndim > 1 else expand_dims(tensor, 0)


def atleast_3d(x: TensorLike) -> Tensor:
    """Return `x` with at least 3 axes; a matrix gets a last axis of size 1."""
    tensor = atleast_2d(x)
    return tensor if tensor.ndim > 2 else expand_dims(tensor, 2)


def vstack(arrays: Sequence[TensorLike]) -> Tensor:
    """Stack tensors along axis 0; vectors are rows.

    Example:
        >>> graphc.compile(lambda: graphc.vstack([[1, 2], [3, 4]]))()
        array([[1, 2],
               [3, 4]])
    """
    return concat([atleast_2d(a) for a in arrays], 0)


def hstack(arrays: Sequence[TensorLike]) -> Tensor:
    """Stack tensors along axis 1, or vectors along axis 0.

    Example:
        >>> graphc.compile(lambda: graphc.hstack([[1, 2], [3, 4]]))()
        array([1, 2, 3, 4])
    """
    tensors = [atleast_1d(a) for a in arrays]
    return concat(tensors, 0 if tensors[0].ndim == 1 else 1)


def dstack(arrays: Sequence[TensorLike]) -> Tensor:
    """Stack tensors along axis 2.

    Example:
        >>> graphc.compile(lambda: graphc.dstack([[1, 2], [3, 4]]))()
        array([[[1, 3],
                [2, 4]]])
    """
    return concat([atleast_3d(a) for a in arrays], 2)


def column_stack(arrays: Sequence[TensorLike]) -> Tensor:
    """Stack tensors along axis 1; vectors are columns.

    Example:
        >>> graphc.compile(lambda: graphc.column_stack([[1, 2], [3, 4]]))()
        array([[1, 3],
               [2, 4]])
    """
    tensors = map(as_tensor, arrays)
    return concat([t if t.ndim > 1 else reshape(t, (t.size, 1)) for t in tensors], 1)


def broadcast_arrays(*arrays: TensorLike) -> tuple[Tensor, ...]:
    """Broadcast tensors to their common shape.

    Raises:
        GraphError: The shapes do not broadcast.

    Example:
        >>> graphc.compile(lambda: graphc.broadcast_arrays([1, 2], 3))()
        (array([1, 2]), array([3, 3]))
    """
    tensors = [as_tensor(a) for a in arrays]
    try:
        shape = np.broadcast_shapes(*(t.shape for t in tensors))
    except ValueError:
        kinds = " and ".join(str(t.value.type) for t in tensors)
        raise error(f"broadcast_arrays: shapes do not broadcast: {kinds}") from None
    return tuple(broadcast_to(t, shape) for t in tensors)


def ravel(x: TensorLike) -> Tensor:
    """Flatten a tensor to a vector, in row-major order."""
    tensor = as_tensor(x)
    return reshape(tensor, (math.prod(tensor.shape),))


def logspace(
    start: float, stop: float, num: int, base: float = 10.0, dtype: DTypeLike = "f32"
) -> Tensor:
    """Return numbers at equal ratios, from base^start to base^stop.

    Args:
        start: The exponent of the first number.
        stop: The exponent of the last number.
        num: The number of elements.
        base: The base of the powers.
        dtype: The dtype of the result.

    Example:
        >>> graphc.compile(lambda: graphc.logspace(0, 2, 3))()
        array([  1.,  10., 100.], dtype=float32)
    """
    return astype(as_tensor(np.logspace(start, stop, num, base=base)), dtype)
