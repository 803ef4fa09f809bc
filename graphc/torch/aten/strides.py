"""Reads and writes by strides of a tensor's memory, which graphc's tensors do not have.

An operator is supported where PyTorch's tensor fills its memory, in any order of its axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from graphc import functions as f
from graphc.base.source_lines import error
from graphc.torch.aten.rules import aten
from graphc.trace import Tensor


def reads_strides(node: Node) -> bool:
    """Whether what the node does depends on where its first argument's elements lie."""
    return str(node.target).startswith("aten.as_strided")


def order_of(example: torch.Tensor) -> tuple[int, ...] | None:
    """The axes in the order in which they lie, None unless the tensor fills its memory."""
    strides = example.stride()
    order = tuple(sorted(range(example.ndim), key=lambda a: (-strides[a], -example.shape[a])))
    fills = example.permute(order).is_contiguous() and example.storage_offset() == 0
    return order if fills else None


def as_they_lie(
    rule: Callable[..., Tensor], x: Tensor, rest: Sequence[Any], example: torch.Tensor
) -> Tensor:
    """The rule's result for x with its elements in a row as those of `example` lie."""
    order = order_of(example)
    if order is None:
        raise error("as_strided: of a part of another tensor's memory it is left to PyTorch")
    turned = f.permute_dims(x, order)
    result = rule(f.reshape(turned, (x.size,)), *rest)
    if rule is as_strided:
        return result
    back = tuple(sorted(range(x.ndim), key=order.__getitem__))
    return f.permute_dims(f.reshape(result, turned.shape), back)


@aten("as_strided", "as_strided_copy")
def as_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Tensor:
    """x lies in a row."""
    places = _places(size, stride, offset or 0, x.size)
    if _is_run(places):
        first = int(places.flat[0]) if places.size else 0
        return f.reshape(x[first : first + places.size], tuple(size))
    return f.take(x, places, 0)


@aten("as_strided_scatter")
def as_strided_scatter(
    x: Tensor,
    source: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int | None = None,
) -> Tensor:
    """x lies in a row."""
    places = _places(size, stride, offset or 0, x.size)
    row = f.astype(f.reshape(source, (places.size,)), x.dtype)
    if places.size == x.size and _is_run(places):
        return row
    if np.unique(places).size < places.size:
        raise error("as_strided_scatter: which of several elements for a place stays is left open")
    return f.index_copy(x, 0, f.as_tensor(places.ravel()), row)


def _places(size: Sequence[int], stride: Sequence[int], offset: int, count: int) -> Any:
    """Where each element lies; an error unless all do among the first `count`."""
    steps = [np.arange(n) * s for n, s in zip(size, stride, strict=True)]
    grid = np.zeros((), np.int64) + offset
    for step in steps:
        grid = grid[..., None] + step
    assert grid.size == math.prod(size)
    if grid.size and not 0 <= grid.min() <= grid.max() < count:
        raise error(f"as_strided: element {grid.max()} of a tensor that has {count}")
    return grid


def _is_run(places: Any) -> bool:
    flat = places.ravel()
    return bool(np.array_equal(flat, np.arange(flat.size) + (flat[0] if flat.size else 0)))
