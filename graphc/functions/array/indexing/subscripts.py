"""Python's subscripts, such as x[2, 1:, None, ..., rows], with the rules of PyTorch.

They differ from NumPy's in where new axes go: numbers select first, so x[0, :, rows] of x[2, 4, 3]
is [4, rows], where NumPy puts the rows in front.

Integers, slices, None and Ellipsis become views. Then the axes that tensors, arrays and lists index
are merged into one, and one op takes the elements at their broadcast indices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from graphc import ops
from graphc.functions.array.elementwise.elementwise import (
    add,
    greater_equal,
    less,
    logical_and,
    multiply,
    where,
)
from graphc.functions.array.shape.shapes import permute_dims, reshape
from graphc.functions.array.tensors import as_tensor, cast, error, is_integer
from graphc.ir import FLOATS, Array, TensorLike
from graphc.trace import Operand, Tensor, emit
from graphc.trace.index_bounds import expect_below


def getitem(x: TensorLike, key: object) -> Tensor:
    """Return x[key].

    An index out of range gives 0 in a tensor, and is an error in an array or a list.

    Args:
        x: The input.
        key: Integers, slices with any step, None, Ellipsis, and integer tensors, arrays and lists;
            negative ones count from the end. Tensors, arrays and lists broadcast together. Their
            axes replace the axes that they index, or come first if something stands between them.
            Booleans must be arrays or lists, since the shape of the result depends on them.

    Raises:
        GraphError: There are too many subscripts, one is out of range, or one is of another type.

    Example:
        >>> graphc.compile(lambda: graphc.getitem([[1, 2], [3, 4]], (0, slice(1, None))))()
        array([2])
    """
    tensor = as_tensor(x)
    items = _expanded(tensor, key if isinstance(key, tuple) else (key,))
    plain = [slice(None) if isinstance(item, Place) else item for item in items]
    selected = _view(tensor, plain)
    indices: dict[int, Place] = {}
    axis = 0
    for item in items:
        if isinstance(item, Place):
            indices[axis] = item
        axis += not is_integer(item)
    return _taken(selected, indices) if indices else selected


@dataclass(frozen=True)
class _Known:
    """Places that are known when the function is traced."""

    array: Array
    masked: int | None = None
    """The extent of the mask's axis that they come from."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)


Place = _Known | Tensor
Subscript = Place | int | slice | None


def _expanded(x: Tensor, key: tuple[object, ...]) -> list[Subscript]:
    """The key with a slice for each axis that it leaves out, and known booleans as their places."""
    known: list[Subscript | EllipsisType] = []
    for item in key:
        known += _named(x, item)
    named = [item for item in known if item is not None and item is not Ellipsis]
    missing = x.ndim - len(named)
    ellipses = sum(item is Ellipsis for item in known)
    if missing < 0 or ellipses > 1:
        raise error(f"{len(named)} subscripts for {x.value.type} of {x.ndim} axes")
    if not ellipses:
        known.append(Ellipsis)
    items: list[Subscript] = []
    for item in known:
        items += [slice(None)] * missing if item is Ellipsis else [item]
    return items


def _named(x: Tensor, item: object) -> list[Subscript | EllipsisType]:
    """What a subscript stands for: itself, or places; booleans are places for each axis."""
    if item is None or item is Ellipsis or isinstance(item, slice) or is_integer(item):
        return [item]
    if isinstance(item, Operand):
        index = as_tensor(item)
        if index.dtype == "bool":
            raise error(
                f"x[mask]: how many elements the mask {index.value.type} selects is not known when "
                "the function is traced; graphc.where(mask, x, 0) keeps the shape"
            )
        if index.dtype in FLOATS or index.dtype == "u8":
            hint = ' (a mask in PyTorch: use .astype("int64"))' if index.dtype == "u8" else ""
            raise error(f"a subscript expected integers, got {index.value.type}{hint}")
        return [index]
    array = np.asarray(item) if isinstance(item, list | np.ndarray) else np.asarray(None)
    if array.dtype == np.bool_ and array.ndim:
        return [_Known(a, n) for a, n in zip(np.nonzero(array), array.shape, strict=True)]
    if array.dtype.kind not in "iu" and not (array.size == 0 and isinstance(item, list)):
        raise error(
            "a tensor's subscripts are integers, slices, None, Ellipsis and integer tensors, "
            f"arrays and lists, got {type(item).__name__}"
        )
    return [_Known(array.astype(np.int64))]


def _view(x: Tensor, items: Sequence[int | slice | None]) -> Tensor:
    """x at integers, slices and None."""
    starts, stops, steps, flips = [], [], [], []
    shape: list[int] = []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        extent = x.shape[axis]
        places = _places(x, item, axis)
        if isinstance(item, slice):
            shape.append(len(places))
        if places.step < 0:
            flips.append(axis)
            places = places[::-1]
        starts.append(places.start if len(places) else 0)
        stops.append(min(places[-1] + 1, extent) if len(places) else 0)
        steps.append(places.step)
        axis += 1
    op = ops.Slice(tuple(starts), tuple(stops), tuple(steps))
    if op != ops.Slice((0,) * x.ndim, x.shape, (1,) * x.ndim):
        x = emit(op, x)
    if flips:
        x = emit(ops.Flip(tuple(flips)), x)
    return reshape(x, tuple(shape))


def _places(x: Tensor, item: int | slice, axis: int) -> range:
    """The places along `axis` that a slice or an integer names."""
    extent = x.shape[axis]
    if isinstance(item, slice):
        if item.step == 0:
            raise error("a slice's step is not 0")
        return range(*item.indices(extent))
    if not -extent <= item < extent:
        raise error(f"subscript {item} is out of range for axis {axis} of {x.value.type}")
    return range(int(item) % extent, int(item) % extent + 1)


def _taken(x: Tensor, indices: dict[int, Place]) -> Tensor:
    """The elements of x at the indices of each axis, which broadcast together."""
    axes = sorted(indices)
    shapes = [tuple(indices[a].shape) for a in axes]
    try:
        common = np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(str(list(s)) for s in shapes)
        raise error(f"subscripts of shapes {listed} do not broadcast") from None
    first = axes[0] if axes[-1] - axes[0] + 1 == len(axes) else 0
    rest = [a for a in range(x.ndim) if a not in axes]
    order = [*rest[:first], *axes, *rest[first:]]
    extents = [x.shape[a] for a in axes]
    moved = x if order == list(range(x.ndim)) else permute_dims(x, order)
    shape = moved.shape
    behind = shape[first + len(axes) :]
    merged = reshape(moved, (*shape[:first], math.prod(extents), *behind))
    places = _merged([_place(x, a, indices[a]) for a in axes], extents)
    places = reshape(places, (1,) * (len(common) - places.ndim) + places.shape)
    if places.shape != common:
        places = emit(ops.BroadcastTo(common), places)
    return emit(ops.Take(first), merged, places)


def _place(x: Tensor, axis: int, index: Place) -> Tensor:
    """The index along `axis` counted from the front."""
    extent = x.shape[axis]
    if isinstance(index, _Known):
        known, masked = index.array, index.masked
        if masked not in (None, extent):
            raise error(f"a mask of extent {masked} does not fit axis {axis} of {x.value.type}")
        wrong = known[(known < -extent) | (known >= extent)]
        if wrong.size:
            raise error(f"subscript {wrong[0]} is out of range for axis {axis} of {x.value.type}")
        return as_tensor(np.where(known < 0, known + extent, known))
    tensor = index if index.dtype in ("i32", "i64") else cast(index, "i32")
    place = where(less(tensor, 0), add(tensor, extent), tensor)
    expect_below(f"subscript of axis {axis}, from the front", place, extent)
    return place


def _merged(places: Sequence[Tensor], extents: Sequence[int]) -> Tensor:
    """One place in the merged axes for one in each; -1, which is out of range, for any such."""
    if len(places) == 1:
        return places[0]
    wide = [cast(p, "i64") for p in places]
    total = inside = wide[0]
    for i, (place, extent) in enumerate(zip(wide, extents, strict=True)):
        total = place if not i else add(multiply(total, extent), place)
        within = logical_and(greater_equal(place, 0), less(place, extent))
        inside = within if not i else logical_and(inside, within)
    return where(inside, total, -1)
