"""Operators that move elements, and those that make tensors out of sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc import functions as f
from graphc.base.dtypes import convert, widened
from graphc.ir import Array
from graphc.onnx.dtypes import dtype_from
from graphc.onnx.operators.rules import (
    UnsupportedError,
    Values,
    axes_from,
    integers,
    number,
    operator,
)
from graphc.trace import Tensor

LARGEST = 2**27
"""The most elements that a constant made out of sizes may have."""


def full(shape: Any, value: Any) -> Array:
    """A known array of one value; UnsupportedError where it would be larger than any model's."""
    extents = integers(shape)
    if math.prod(extents) > LARGEST:
        raise UnsupportedError(f"a constant of {extents} elements is larger than {LARGEST}")
    return np.full(extents, value)


@operator("Shape", raw=True)
def shape(x: Values, start: int = 0, end: int | None = None) -> Array:
    return np.array(x.shape[start:end], np.int64)


@operator("Size", raw=True)
def size(x: Values) -> Array:
    return np.array(math.prod(x.shape), np.int64)


@operator("Constant", raw=True)
def constant(
    value: Any = None,
    value_float: float | None = None,
    value_floats: Any = None,
    value_int: int | None = None,
    value_ints: Any = None,
    value_string: Any = None,
    value_strings: Any = None,
    sparse_value: Any = None,
) -> Array:
    if value_float is not None or value_floats is not None:
        return np.array(value_floats if value_float is None else value_float, np.float32)
    if value_int is not None or value_ints is not None:
        return np.array(value_ints if value_int is None else value_int, np.int64)
    given = sparse_value if value is None else value
    if given is None:
        raise UnsupportedError("strings are not offered")
    return np.asarray(given)


@operator("ConstantOfShape", static="shape")
def constant_of_shape(shape: Any, value: Any = None) -> Array:
    return full(shape, np.float32(0) if value is None else np.asarray(value).reshape(-1)[0])


@operator("Range", static="start limit delta")
def range_(start: Any, limit: Any, delta: Any, stash_type: int = 1) -> Array:
    first, last, step = (widened(np.asarray(v)).reshape(()) for v in (start, limit, delta))
    count = max(math.ceil((last.item() - first.item()) / step.item()), 0)
    full((count,), 0)
    return convert((first + np.arange(count) * step).astype(first.dtype), np.asarray(start).dtype)


@operator("EyeLike", raw=True)
def eye_like(x: Values, dtype: int | None = None, k: int = 0) -> Tensor:
    own = f.as_tensor(x)
    rows, columns = own.shape
    return f.eye(rows, columns, k, own.dtype if dtype is None else dtype_from(dtype))


@operator("Reshape", static="shape")
def reshape(x: Tensor, shape: Any, allowzero: int = 0) -> Tensor:
    extents = integers(shape)
    if not allowzero:
        extents = [x.shape[i] if n == 0 else n for i, n in enumerate(extents)]
    if -1 in extents:
        others = math.prod(n for n in extents if n != -1)
        extents[extents.index(-1)] = x.size // others if others else 0
    return f.reshape(x, tuple(extents))


@operator("Flatten")
def flatten(x: Tensor, axis: int = 1) -> Tensor:
    first = axis + x.ndim if axis < 0 else axis
    return f.reshape(x, (math.prod(x.shape[:first]), math.prod(x.shape[first:])))


@operator("Squeeze", static="axes")
def squeeze(x: Tensor, axes: Any = None) -> Tensor:
    gone = axes_from(axes, x.ndim)
    if gone is None:
        gone = [a for a, n in enumerate(x.shape) if n == 1]
    return f.squeeze(x, tuple(gone)) if gone else x


@operator("Unsqueeze", static="axes")
def unsqueeze(x: Tensor, axes: Any) -> Tensor:
    new = axes_from(axes, x.ndim + np.size(axes)) or []
    for axis in sorted(new):
        x = f.expand_dims(x, axis)
    return x


@operator("Transpose")
def transpose(x: Tensor, perm: Any = None) -> Tensor:
    return f.permute_dims(x, tuple(perm or reversed(range(x.ndim))))


@operator("Expand", static="shape")
def expand(x: Tensor, shape: Any) -> Tensor:
    return f.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(integers(shape))))


@operator("Tile", static="repeats")
def tile(x: Tensor, repeats: Any) -> Tensor:
    return f.tile(x, tuple(integers(repeats)))


@operator("Concat")
def concat(*arrays: Tensor, axis: int = 1) -> Tensor:
    return f.concat(arrays, axis)


@operator("Split", static="split")
def split(
    x: Tensor,
    split: Any = None,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int = 1,
) -> tuple[Tensor, ...]:
    count = num_outputs or outputs
    extent = x.shape[axis]
    part = -(-extent // count)
    sizes = [max(min(part, extent - i * part), 0) for i in range(count)]
    return f.split(x, sizes if split is None else integers(split), axis)


@operator("Slice", static="starts ends axes steps")
def slice_(x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    first, last = integers(starts), integers(ends)
    places = axes_from(axes, x.ndim)
    key: list[slice] = [slice(None)] * x.ndim
    for i, axis in enumerate(range(len(first)) if places is None else places):
        key[axis] = slice(first[i], last[i], 1 if steps is None else integers(steps)[i])
    return x[tuple(key)]


@operator("Pad", static="pads constant_value axes")
def pad(
    x: Tensor,
    pads: Any = None,
    constant_value: Any = None,
    axes: Any = None,
    mode: str = "constant",
    value: float = 0.0,
    paddings: Any = None,
) -> Tensor:
    """Negative widths cut off."""
    given = integers(paddings if pads is None else pads)
    places = axes_from(axes, x.ndim)
    if places is None:
        places = list(range(x.ndim))
    before, after = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(places):
        before[axis], after[axis] = given[i], given[i + len(places)]
    kept = tuple(
        slice(max(0, -b), n - max(0, -a)) for n, b, a in zip(x.shape, before, after, strict=True)
    )
    widths = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    modes = {"edge": "replicate", "wrap": "circular"}
    filling = number(constant_value, value)
    if x.dtype == "bool":
        return f.astype(f.pad(f.astype(x, "u8"), widths, float(filling)), "bool")
    return f.pad(x[kept] if x.ndim else x, widths, filling, modes.get(mode, mode))


@operator("Trilu", static="k")
def trilu(x: Tensor, k: Any = None, upper: int = 1) -> Tensor:
    part = f.triu if upper else f.tril
    return part(x, k=int(number(k, 0)))


@operator("DepthToSpace")
def depth_to_space(x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    rest = c // blocksize**2
    if mode == "DCR":
        parts = f.reshape(x, (n, blocksize, blocksize, rest, h, w))
        moved = f.permute_dims(parts, (0, 3, 4, 1, 5, 2))
    else:
        parts = f.reshape(x, (n, rest, blocksize, blocksize, h, w))
        moved = f.permute_dims(parts, (0, 1, 4, 2, 5, 3))
    return f.reshape(moved, (n, rest, h * blocksize, w * blocksize))


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, blocksize: int) -> Tensor:
    n, c, h, w = x.shape
    p, q = h // blocksize, w // blocksize
    parts = f.reshape(x, (n, c, p, blocksize, q, blocksize))
    return f.reshape(f.permute_dims(parts, (0, 3, 5, 1, 2, 4)), (n, c * blocksize**2, p, q))


@operator("ReverseSequence", static="sequence_lens")
def reverse_sequence(
    x: Tensor, sequence_lens: Any, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    """The first `sequence_lens[i]` steps of sample i in the other order."""
    lengths = np.asarray(sequence_lens).reshape(-1, 1)
    steps = np.arange(x.shape[time_axis])
    places = np.where(steps < lengths, lengths - 1 - steps, steps)
    where = [1] * x.ndim
    where[batch_axis], where[time_axis] = places.shape
    order = places if batch_axis < time_axis else places.T
    return f.take_along_axis(x, f.as_tensor(order.reshape(where).astype(np.int64)), time_axis)


@operator("CenterCropPad", static="shape")
def center_crop_pad(x: Tensor, shape: Any, axes: Any = None) -> Tensor:
    places = axes_from(axes, x.ndim) or list(range(x.ndim))
    for axis, extent in zip(places, integers(shape), strict=True):
        own = x.shape[axis]
        if own >= extent:
            first = (own - extent) // 2
            x = x[(*[slice(None)] * axis, slice(first, first + extent))]
        else:
            widths = [(0, 0)] * x.ndim
            widths[axis] = ((extent - own) // 2, extent - own - (extent - own) // 2)
            x = f.pad(x, widths)
    return x


@operator("Col2Im", static="image_shape block_shape")
def col_to_im(
    columns: Tensor,
    image_shape: Any,
    block_shape: Any,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
) -> Tensor:
    """Add the elements of each window at their positions in the image.

    The positions are known, so it is one sum by index over a padded image.
    """
    image, block = integers(image_shape), integers(block_shape)
    axes = len(image)
    steps, apart = strides or [1] * axes, dilations or [1] * axes
    around = pads or [0] * 2 * axes
    whole = [n + around[i] + around[i + axes] for i, n in enumerate(image)]
    counts = [
        (n - d * (k - 1) - 1) // s + 1
        for n, d, k, s in zip(whole, apart, block, steps, strict=True)
    ]
    tap = np.indices(block).reshape(axes, -1, 1)
    window = np.indices(counts).reshape(axes, 1, -1)
    place = tap * np.reshape(apart, (-1, 1, 1)) + window * np.reshape(steps, (-1, 1, 1))
    flat = np.ravel_multi_index(tuple(place), whole).reshape(-1)
    n = columns.shape[0]
    channels = columns.shape[1] // math.prod(block)
    source = f.reshape(columns, (n, channels, flat.size))
    empty = f.zeros((n, channels, math.prod(whole)), columns.dtype)
    added = f.index_add(empty, 2, f.as_tensor(flat.astype(np.int64)), source)
    inner = (slice(around[i], around[i] + extent) for i, extent in enumerate(image))
    return f.reshape(added, (n, channels, *whole))[(slice(None), slice(None), *inner)]


@operator("SequenceEmpty", raw=True)
def sequence_empty(dtype: int | None = None) -> list[Values]:
    return []


@operator("SequenceConstruct", raw=True)
def sequence_construct(*values: Values) -> list[Values]:
    return list(values)


@operator("SequenceInsert", raw=True, static="position")
def sequence_insert(sequence: Values, value: Values, position: Any = None) -> list[Values]:
    place = len(sequence) if position is None else int(number(position, 0))
    place += len(sequence) if place < 0 else 0
    return [*sequence[:place], value, *sequence[place:]]


@operator("SequenceErase", raw=True, static="position")
def sequence_erase(sequence: Values, position: Any = None) -> list[Values]:
    place = len(sequence) - 1 if position is None else int(number(position, 0)) % len(sequence)
    return [*sequence[:place], *sequence[place + 1 :]]


@operator("SequenceAt", raw=True, static="position")
def sequence_at(sequence: Values, position: Any) -> Values:
    return sequence[int(number(position, 0))]


@operator("SequenceLength", raw=True)
def sequence_length(sequence: Values) -> Array:
    return np.array(len(sequence), np.int64)


@operator("SplitToSequence", static="split")
def split_to_sequence(
    x: Tensor, split: Any = None, axis: int = 0, keepdims: int = 1
) -> list[Tensor]:
    extent = x.shape[axis]
    if split is None:
        parts = list(f.split(x, 1, axis))
        return parts if keepdims else [f.squeeze(part, axis) for part in parts]
    if np.ndim(split):
        return list(f.split(x, integers(split), axis))
    step = int(number(split, 1))
    return list(f.split(x, [min(step, extent - i) for i in range(0, extent, step)], axis))


@operator("ConcatFromSequence", raw=True)
def concat_from_sequence(sequence: Values, axis: int, new_axis: int = 0) -> Tensor:
    tensors = [f.as_tensor(value) for value in sequence]
    return f.stack(tensors, axis) if new_axis else f.concat(tensors, axis)


@operator("Optional", raw=True)
def optional(value: Values = None, type: Any = None) -> Values:
    return value


@operator("OptionalHasElement", raw=True)
def optional_has_element(value: Values = None) -> Array:
    return np.array(value is not None)


@operator("OptionalGetElement", raw=True)
def optional_get_element(value: Values) -> Values:
    if value is None:
        raise UnsupportedError("OptionalGetElement: there is no element")
    return value
