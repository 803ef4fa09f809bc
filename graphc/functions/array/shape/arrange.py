"""Axes cut, joined and turned, by the names that torch has for it."""

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
    """At most `chunks` parts along `axis`, of one extent but for the last."""
    tensor = as_tensor(x)
    if not isinstance(chunks, int) or chunks < 1:
        raise error(f"chunk: chunks expected a positive integer, got {chunks!r}")
    extent = tensor.shape[axis_of("chunk", axis, tensor)]
    return split(tensor, max(-(-extent // chunks), 1), axis)


def tensor_split(
    x: TensorLike, indices_or_sections: int | Sequence[int], axis: int = 0
) -> tuple[Tensor, ...]:
    """Parts along `axis`: as many as the number, the first ones longer by one where the extent is
    no multiple; or those between the places that the list names."""
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
    """`tensor_split` along axis 1, or axis 0 of a vector."""
    tensor = as_tensor(x)
    return tensor_split(tensor, indices_or_sections, 1 if tensor.ndim > 1 else 0)


def vsplit(x: TensorLike, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` along axis 0."""
    return tensor_split(x, indices_or_sections, 0)


def dsplit(x: TensorLike, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` along axis 2."""
    return tensor_split(x, indices_or_sections, 2)


def narrow(x: TensorLike, axis: int, start: int, length: int) -> Tensor:
    """`length` elements along `axis` from place `start` on."""
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
    """The elements at place `index` of `axis`, without that axis."""
    tensor = as_tensor(x)
    return tensor[(*(slice(None),) * axis_of("select", axis, tensor), index)]


def rot90(x: TensorLike, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """Turned k times by a quarter, from the first of `axes` towards the second."""
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
    """The elements in reverse order along axis 1."""
    return flip(x, 1)


def flipud(x: TensorLike) -> Tensor:
    """The elements in reverse order along axis 0."""
    return flip(x, 0)


def atleast_1d(x: TensorLike) -> Tensor:
    """x with at least 1 axis."""
    tensor = as_tensor(x)
    return tensor if tensor.ndim else reshape(tensor, (1,))


def atleast_2d(x: TensorLike) -> Tensor:
    """x with at least 2 axes; a vector is a row."""
    tensor = atleast_1d(x)
    return tensor if tensor.ndim > 1 else expand_dims(tensor, 0)


def atleast_3d(x: TensorLike) -> Tensor:
    """x with at least 3 axes; a matrix is a column of axis 2."""
    tensor = atleast_2d(x)
    return tensor if tensor.ndim > 2 else expand_dims(tensor, 2)


def vstack(arrays: Sequence[TensorLike]) -> Tensor:
    """The arrays one below the other; vectors are rows."""
    return concat([atleast_2d(a) for a in arrays], 0)


def hstack(arrays: Sequence[TensorLike]) -> Tensor:
    """The arrays side by side, along axis 1; vectors one behind the other."""
    tensors = [atleast_1d(a) for a in arrays]
    return concat(tensors, 0 if tensors[0].ndim == 1 else 1)


def dstack(arrays: Sequence[TensorLike]) -> Tensor:
    """The arrays one behind the other along axis 2."""
    return concat([atleast_3d(a) for a in arrays], 2)


def column_stack(arrays: Sequence[TensorLike]) -> Tensor:
    """The arrays side by side; vectors are columns."""
    tensors = map(as_tensor, arrays)
    return concat([t if t.ndim > 1 else reshape(t, (t.size, 1)) for t in tensors], 1)


def broadcast_arrays(*arrays: TensorLike) -> tuple[Tensor, ...]:
    """The arrays in the shape that they broadcast to."""
    tensors = [as_tensor(a) for a in arrays]
    try:
        shape = np.broadcast_shapes(*(t.shape for t in tensors))
    except ValueError:
        kinds = " and ".join(str(t.value.type) for t in tensors)
        raise error(f"broadcast_arrays: shapes do not broadcast: {kinds}") from None
    return tuple(broadcast_to(t, shape) for t in tensors)


def ravel(x: TensorLike) -> Tensor:
    """The elements in row-major order, along one axis."""
    tensor = as_tensor(x)
    return reshape(tensor, (math.prod(tensor.shape),))


def logspace(
    start: float, stop: float, num: int, base: float = 10.0, dtype: DTypeLike = "f32"
) -> Tensor:
    """[num] powers of `base`, from base^start to base^stop, at equal ratios."""
    return astype(as_tensor(np.logspace(start, stop, num, base=base)), dtype)
