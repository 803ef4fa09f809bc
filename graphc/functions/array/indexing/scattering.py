"""Write slices to the indices along an axis, and replace parts of a tensor."""

from __future__ import annotations

from graphc import ops
from graphc.functions.array import reductions
from graphc.functions.array.creation import zeros
from graphc.functions.array.elementwise.elementwise import (
    add,
    equal,
    greater,
    multiply,
    subtract,
    where,
)
from graphc.functions.array.indexing.indices import checked_indices
from graphc.functions.array.linear.matrix_construction import diag_embed
from graphc.functions.array.reductions import any
from graphc.functions.array.shape.padding import pad
from graphc.functions.array.shape.rearrange import moveaxis
from graphc.functions.array.shape.shapes import broadcast_to, expand_dims, reshape
from graphc.functions.array.tensors import as_tensor, axis_of, error, promoted
from graphc.ir import TensorLike
from graphc.trace import Tensor, emit


def index_add(
    x: TensorLike, axis: int, index: TensorLike, source: TensorLike, alpha: float = 1
) -> Tensor:
    """Add slices of `source` to `x`: y[..., index[i], ...] += alpha * source[..., i, ...].

    Slices are added in ascending order of i, so that the result is deterministic. An index out of
    range adds nothing.

    Args:
        x: The input.
        axis: The axis that is indexed.
        index: A vector of indices into `axis`.
        source: The slices, of the shape of `x` but for `axis`.
        alpha: The factor of the slices.

    Raises:
        GraphError: The shapes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.index_add([0, 0], 0, [1, 1], [2, 3]))()
        array([0, 5])
    """
    tensor, added, places, place = _sliced("index_add", x, axis, index, source)
    added = added if alpha == 1 else multiply(added, alpha)
    return add(tensor, emit(ops.TakeGrad(place, tensor.shape[place]), places, added))


def index_copy(x: TensorLike, axis: int, index: TensorLike, source: TensorLike) -> Tensor:
    """Write slices of `source` into `x`: y[..., index[i], ...] = source[..., i, ...].

    Of several slices for one index the last one is written. An index out of range writes nothing.

    Args:
        x: The input.
        axis: The axis that is indexed.
        index: A vector of indices into `axis`.
        source: The slices, of the shape of `x` but for `axis`.

    Raises:
        GraphError: The shapes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.index_copy([1, 2, 3], 0, [2, 0], [30, 10]))()
        array([10,  2, 30])
    """
    tensor, copied, places, place = _sliced("index_copy", x, axis, index, source)
    extent, count = tensor.shape[place], places.shape[0]
    chosen = equal(places, emit(ops.Iota((extent, 1), 0, places.dtype)))
    number = emit(ops.Iota((1, count), 1, places.dtype))
    last = (
        reductions.max(where(chosen, number, -1), 1)
        if count
        else broadcast_to(as_tensor(-1), (extent,))
    )
    shape = tuple(extent if a == place else 1 for a in range(tensor.ndim))
    found = emit(ops.Take(place), copied, last)
    return where(reshape(greater(last, -1), shape), found, tensor)


def index_fill(x: TensorLike, axis: int, index: TensorLike, value: TensorLike) -> Tensor:
    """Fill slices of `x` with a value.

    Args:
        x: The input.
        axis: The axis that is indexed.
        index: A vector of indices into `axis`. An index out of range fills nothing.
        value: The value.

    Example:
        >>> graphc.compile(lambda: graphc.index_fill([1, 2, 3], 0, [0, 2], 0))()
        array([0, 2, 0])
    """
    tensor = as_tensor(x)
    place = axis_of("index_fill", axis, tensor)
    extent = tensor.shape[place]
    places = reshape(checked_indices("index_fill", index, extent), -1)
    chosen = equal(places, emit(ops.Iota((extent, 1), 0, places.dtype)))
    shape = tuple(extent if a == place else 1 for a in range(tensor.ndim))
    return where(reshape(any(chosen, 1), shape), value, tensor)


def _sliced(
    name: str, x: TensorLike, axis: int, index: TensorLike, source: TensorLike
) -> tuple[Tensor, Tensor, Tensor, int]:
    tensor, slices = promoted(x, source)
    place = axis_of(name, axis, tensor)
    places = checked_indices(name, index, tensor.shape[place])
    fits = places.ndim == 1 and slices.ndim == tensor.ndim
    expected = (*tensor.shape[:place], *places.shape, *tensor.shape[place + 1 :])
    if not fits or slices.shape != expected:
        raise error(
            f"{name}: x {tensor.value.type}, index {places.value.type} and source "
            f"{slices.value.type} do not fit along axis {place}"
        )
    return tensor, slices, places, place


def select_scatter(x: TensorLike, src: TensorLike, axis: int, index: int) -> Tensor:
    """Replace one slice of `x`: y[..., index, ...] = src.

    Args:
        x: The input.
        src: The new slice, of the shape of `x` without `axis`.
        axis: The axis that is indexed.
        index: The index; a negative one counts from the end.

    Raises:
        GraphError: The index is out of range or the shapes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.select_scatter([[1, 2], [3, 4]], [0, 0], 0, 1))()
        array([[1, 2],
               [0, 0]])
    """
    tensor, source = promoted(x, src)
    place = axis_of("select_scatter", axis, tensor)
    extent = tensor.shape[place]
    if not -extent <= index < extent:
        raise error(f"select_scatter: index {index} is not in axis {place} of {tensor.value.type}")
    shape = (*tensor.shape[:place], *tensor.shape[place + 1 :])
    if source.shape != shape:
        raise error(
            f"select_scatter: src {source.value.type} does not fit a place of axis {place} of "
            f"{tensor.value.type}"
        )
    ramp = emit(ops.Iota(tuple(extent if a == place else 1 for a in range(tensor.ndim)), place))
    return where(equal(ramp, index % extent), expand_dims(source, place), tensor)


def diagonal_scatter(
    x: TensorLike, src: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1
) -> Tensor:
    """Replace a diagonal of `x`.

    Args:
        x: The input.
        src: The new diagonal, of the shape of `diagonal(x, offset, axis1, axis2)`.
        offset: The diagonal: 0 is the main one, 1 the one above it.
        axis1: The axis of the rows.
        axis2: The axis of the columns.

    Raises:
        GraphError: The shapes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.diagonal_scatter([[1, 2], [3, 4]], [0, 0]))()
        array([[0, 2],
               [3, 0]])
    """
    tensor, source = promoted(x, src)
    matrices = moveaxis(tensor, (axis1, axis2), (-2, -1))
    rows, columns = matrices.shape[-2:]
    top, left = max(-offset, 0), max(offset, 0)
    count = max(min(rows - top, columns - left), 0)
    if source.shape != (*matrices.shape[:-2], count):
        raise error(
            f"diagonal_scatter: src {source.value.type} does not fit diagonal {offset} of "
            f"{tensor.value.type}"
        )
    placed = diag_embed(source) if count else zeros((*source.shape[:-1], 0, 0), source.dtype)
    widths = ((top, rows - top - count), (left, columns - left - count))
    spread = pad(placed, (*((0, 0),) * (tensor.ndim - 2), *widths))
    row, column = (emit(ops.Iota((rows, columns), a)) for a in (0, 1))
    chosen = where(equal(subtract(column, row), offset), spread, matrices)
    return moveaxis(chosen, (-2, -1), (axis1, axis2))


def slice_scatter(
    x: TensorLike,
    src: TensorLike,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """Replace a range of slices of `x`: y[..., start:end:step, ...] = src.

    Args:
        x: The input.
        src: The new slices, of the shape of x[..., start:end:step, ...].
        axis: The axis that is sliced.
        start: The first index; by default 0.
        end: The end of the range; by default that of the axis.
        step: The step, at least 1.

    Raises:
        GraphError: The shapes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.slice_scatter([1, 2, 3, 4], [0, 0], start=1, end=3))()
        array([1, 0, 0, 4])
    """
    tensor, source = promoted(x, src)
    place = axis_of("slice_scatter", axis, tensor)
    extent = tensor.shape[place]
    places = range(*slice(start, end, step).indices(extent))
    shape = (*tensor.shape[:place], len(places), *tensor.shape[place + 1 :])
    if source.shape != shape or step < 1:
        raise error(
            f"slice_scatter: src {source.value.type} does not fit places {start}:{end}:{step} of "
            f"axis {place} of {tensor.value.type}"
        )
    if not places:
        return tensor
    low = tuple(places[0] if a == place else 0 for a in range(tensor.ndim))
    high = tuple(extent - 1 - places[-1] if a == place else 0 for a in range(tensor.ndim))
    apart = tuple(step - 1 if a == place else 0 for a in range(tensor.ndim))
    spread = emit(ops.Pad(low, high, apart), source)
    ramp = emit(ops.Iota(tuple(extent if a == place else 1 for a in range(tensor.ndim)), place))
    offset = subtract(ramp, places[0])
    inside = equal(offset % step, 0) & (offset >= 0) & (offset <= places[-1] - places[0])
    return where(inside, spread, tensor)
