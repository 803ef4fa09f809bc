"""Operators that read and write at places that tensors say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc import functions as f
from graphc.ir import Array
from graphc.onnx.operators.rules import from_front, integers, number, operator
from graphc.trace import Tensor

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("Gather")
def gather(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    axis %= x.ndim
    return f.take(x, from_front(indices, x.shape[axis]), axis)


@operator("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    return f.gather(x, axis, from_front(indices, x.shape[axis]))


@operator("GatherND")
def gather_nd(x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """The last axis of `indices` names places along the first axes behind the batch."""
    count = indices.shape[-1]
    batch = x.shape[:batch_dims]
    extents = x.shape[batch_dims : batch_dims + count]
    rest = x.shape[batch_dims + count :]
    rows = f.reshape(x, (math.prod(batch) * math.prod(extents), *rest))
    flat = _flat(indices, extents)
    samples = np.arange(math.prod(batch)).reshape(*batch, *[1] * (flat.ndim - batch_dims))
    return f.take(rows, f.add(flat, samples * math.prod(extents)), 0)


def _flat(indices: Tensor, extents: tuple[int, ...]) -> Tensor:
    """The row of each place that the last axis of `indices` names."""
    flat = f.zeros(indices.shape[:-1], "i64")
    for i, extent in enumerate(extents):
        flat = f.add(f.multiply(flat, extent), from_front(f.select(indices, -1, i), extent))
    return flat


@operator("ScatterElements", "Scatter")
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none"
) -> Tensor:
    places = from_front(indices, x.shape[axis])
    if reduction == "none":
        return f.scatter(x, axis, places, updates)
    return f.scatter_reduce(x, axis, places, updates, _REDUCTIONS[reduction])


@operator("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, reduction: str = "none") -> Tensor:
    count = indices.shape[-1]
    extents, rest = x.shape[:count], x.shape[count:]
    inner = math.prod(rest)
    rows = f.reshape(x, (math.prod(extents), inner))
    flat = f.reshape(_flat(indices, extents), (-1, 1))
    places = f.broadcast_to(flat, (flat.shape[0], inner))
    source = f.reshape(updates, (flat.shape[0], inner))
    if reduction == "none":
        written = f.scatter(rows, 0, places, source)
    else:
        written = f.scatter_reduce(rows, 0, places, source, _REDUCTIONS[reduction])
    return f.reshape(written, x.shape)


@operator("TensorScatter")
def tensor_scatter(
    cache: Tensor,
    update: Tensor,
    write_indices: Tensor | None = None,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    """`update` written into each sample from its index on; in mode "circular" round the end."""
    axis %= cache.ndim
    steps = np.arange(update.shape[axis], dtype=np.int64)
    starts = f.zeros((cache.shape[0],), "i64") if write_indices is None else write_indices
    places = f.add(f.expand_dims(starts, 1), f.as_tensor(steps))
    if mode == "circular":
        places = f.remainder(places, cache.shape[axis])
    shape = [1] * cache.ndim
    shape[0], shape[axis] = places.shape
    return f.scatter(cache, axis, f.broadcast_to(f.reshape(places, shape), update.shape), update)


@operator("OneHot", static="depth")
def one_hot(indices: Tensor, depth: Any, values: Tensor, axis: int = -1) -> Tensor:
    count = int(number(depth, 1))
    places = indices if indices.dtype in ("i32", "i64") else f.astype(indices, "i64")
    places = f.expand_dims(from_front(places, count), axis)
    shape = [1] * places.ndim
    shape[axis] = count
    hot = f.equal(places, f.as_tensor(np.arange(count).reshape(shape)))
    return f.where(hot, values[1], values[0])


@operator("NonZero", static="x")
def non_zero(x: Any) -> Array:
    """Of a known array: how many there are is a shape."""
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)


@operator("Compress", static="condition")
def compress(x: Tensor, condition: Any, axis: int | None = None) -> Tensor:
    if axis is None:
        x, axis = f.reshape(x, (-1,)), 0
    places = np.flatnonzero(np.asarray(condition)[: x.shape[axis]])
    return f.take(x, f.as_tensor(places.astype(np.int64)), axis)


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(x: Tensor, y: Tensor) -> Tensor:
    taken = f.take(x, f.reshape(y, (-1,)), x.ndim - 1)
    return f.reshape(taken, (1, -1)) if x.ndim == 1 else taken


@operator("TopK", static="k")
def top_k(
    x: Tensor, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    return f.topk(x, integers(k)[0], axis, bool(largest))


@operator("Unique", static="x")
def unique(x: Any, axis: int | None = None, sorted: int = 1) -> tuple[Array, ...]:
    """Of a known array: how many there are is a shape."""
    y, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        y = np.take(y, order, 0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return y, *(np.asarray(a, np.int64) for a in (first, inverse, counts))
