"""Reads and writes at places that tensors say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from graphc import functions as f
from graphc.base.source_lines import error
from graphc.torch.aten.rules import aten, pull
from graphc.trace import Tensor

Indices = Sequence[Tensor | None]


@aten("embedding")
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale: bool = False,
    sparse: bool = False,
) -> Tensor:
    return f.embedding(indices, weight)


@aten("embedding_dense_backward")
def embedding_dense_backward(
    dy: Tensor, indices: Tensor, rows: int, padding_idx: int, scale_by_frequency: bool
) -> Tensor:
    if scale_by_frequency:
        raise error("embedding: gradients scaled by frequency are not offered")
    if padding_idx >= 0:
        padding = f.expand_dims(f.equal(indices, padding_idx), -1)
        dy = f.where(padding, f.as_tensor(0, dy.dtype), dy)
    table = f.zeros((rows, dy.shape[-1]), dy.dtype)
    (dw,) = pull(lambda table: f.embedding(indices, table), dy, table)
    return dw


@aten("index_select")
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    return f.index_select(x, dim, index) if x.ndim else x


@aten("gather")
def gather(x: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    """A number counts as having one axis."""
    return f.reshape(_of_an_axis(f.gather, x, dim, index), index.shape)


def _of_an_axis(function: Callable[..., Tensor], x: Tensor, dim: int, *more: Any) -> Tensor:
    """The function of x, dim, and more; of a number as of its only element."""
    if x.ndim:
        return function(x, dim, *more)
    first, *rest = (f.reshape(t, (t.size,)) if isinstance(t, Tensor) else t for t in (x, *more))
    found = function(first, 0, *rest)
    return f.reshape(found, ()) if found.size == 1 else found


@aten("index.Tensor")
def index(x: Tensor, indices: Indices) -> Tensor:
    return x[tuple(slice(None) if i is None else _places(i) for i in indices)]


def _places(index: Tensor) -> Tensor:
    if index.dtype in ("bool", "u8"):
        raise error("x[mask]: how many elements there are depends on values")
    return index


@aten("index_put", "_unsafe_index_put")
def index_put(x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False) -> Tensor:
    """x with `values` at the places, which broadcast together, of the axes that have some."""
    masks = [i for i in indices if i is not None and i.dtype == "bool"]
    if masks:
        if len(indices) > 1 or values.ndim or accumulate:
            raise error("x[mask] = values: how many elements there are depends on values")
        mask = f.reshape(masks[0], (*masks[0].shape, *[1] * (x.ndim - masks[0].ndim)))
        return f.where(mask, f.astype(values, x.dtype), x)
    axes = [axis for axis, i in enumerate(indices) if i is not None]
    others = [axis for axis in range(x.ndim) if axis not in axes]
    places = f.broadcast_arrays(*(i for i in indices if i is not None))
    found = places[0].shape
    flat: Any = 0
    for axis, place in zip(axes, places, strict=True):
        extent = x.shape[axis]
        place = f.where(f.less(place, 0), f.add(place, extent), place)
        flat = f.add(f.multiply(flat, extent), place)
    front = f.permute_dims(x, (*axes, *others))
    rest = front.shape[len(axes) :]
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    before = axes[0] if together else 0
    shape = (*rest[:before], *found, *rest[before:])
    source = f.broadcast_to(f.astype(values, x.dtype), shape)
    order = (*range(before, before + len(found)), *range(before), *range(
        before + len(found), len(shape)
    ))  # fmt: skip
    count = math.prod(found)
    source = f.reshape(f.permute_dims(source, order), (count, *rest))
    rows = f.reshape(front, (math.prod(front.shape[: len(axes)]), *rest))
    write = f.index_add if accumulate else f.index_copy
    written = write(rows, 0, f.reshape(flat, (count,)), source)
    back = sorted(range(x.ndim), key=lambda place: (*axes, *others)[place])
    return f.permute_dims(f.reshape(written, front.shape), tuple(back))


@aten("scatter.src")
def scatter(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _of_an_axis(f.scatter, x, dim, index, _cut(source, index))


@aten("scatter.value")
def scatter_value(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    return _of_an_axis(f.scatter, x, dim, index, f.full(index.shape, value, x.dtype))


@aten("scatter_add")
def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _of_an_axis(f.scatter_add, x, dim, index, _cut(source, index))


@aten("scatter_reduce.two")
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    given = index, _cut(source, index), reduce, include_self
    return _of_an_axis(f.scatter_reduce, x, dim, *given)


@aten("index_reduce")
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    """`scatter_reduce` of whole parts of `source` along `dim`."""
    if x.ndim == 0:
        return scatter_reduce(x, dim, f.reshape(index, ()), source, reduce, include_self)
    wide = tuple(index.size if a == dim % x.ndim else 1 for a in range(x.ndim))
    places = f.broadcast_to(f.reshape(index, wide), source.shape)
    return scatter_reduce(x, dim, places, source, reduce, include_self)


@aten("put")
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Places are those of the elements in a row."""
    row, places, values = (f.reshape(t, (t.size,)) for t in (x, index, source))
    return f.reshape(index_put(row, (places,), values, accumulate), x.shape)


@aten("masked_scatter")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """x with the elements of `source`, in order, where the mask is true."""
    x, mask = f.broadcast_arrays(x, mask)
    if not source.size:
        return x
    ranks = _ranks(mask)
    values = f.take(f.reshape(source, (source.size,)), f.clip(ranks, 0, source.size - 1), 0)
    return f.where(mask, f.reshape(values, mask.shape), x)


@aten("masked_scatter_backward")
def masked_scatter_backward(dy: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The elements of dy where the mask is true, in order; zeros behind them."""
    count = math.prod(sizes)
    places = f.where(f.reshape(mask, (mask.size,)), _ranks(mask), count)
    begun = f.zeros((count + 1,), dy.dtype)
    written = f.scatter_add(begun, 0, f.minimum(places, count), f.reshape(dy, (dy.size,)))
    return f.reshape(written[:count], tuple(sizes))


def _ranks(mask: Tensor) -> Tensor:
    """[mask.size], how many elements before each are true."""
    counted = f.cumsum(f.astype(f.reshape(mask, (mask.size,)), "i64"), 0)
    return f.subtract(counted, f.astype(f.reshape(mask, (mask.size,)), "i64"))


def _cut(source: Tensor, index: Tensor) -> Tensor:
    """The elements of `source` that `index` has places for."""
    if source.shape == index.shape:
        return source
    return source[tuple(slice(n) for n in index.shape)]


@aten("bucketize.Tensor")
def bucketize(
    x: Tensor, boundaries: Tensor, out_int32: bool = False, right: bool = False
) -> Tensor:
    found = f.searchsorted(boundaries, x, right)
    return f.astype(found, "i32") if out_int32 else found


@aten("searchsorted.Tensor")
def searchsorted(
    sequence: Tensor,
    x: Tensor,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    found = f.searchsorted(sequence, x, right, side, sorter)
    return f.astype(found, "i32") if out_int32 else found
