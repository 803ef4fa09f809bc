"""Elements taken by number."""

from __future__ import annotations

from graphc import ops
from graphc.functions.array.elementwise.elementwise import equal, stop_gradient, where
from graphc.functions.array.indexing.indices import checked_indices, integer_indices
from graphc.functions.array.shape.shapes import reshape
from graphc.functions.array.tensors import as_tensor, astype, axis_of, error, is_integer
from graphc.ir import DTypeLike, TensorLike
from graphc.trace import Tensor, emit
from graphc.trace.index_bounds import expect_below


def take(x: TensorLike, indices: TensorLike, axis: int | None = None) -> Tensor:
    """The elements of x at `indices` (i32 or i64) along `axis`, whose place the indices' axes take.

    `axis` may be left out for one axis. Indices are not negative; those out of range give 0.
    """
    tensor = as_tensor(x)
    if axis is None and tensor.ndim != 1:
        raise error(f"take: expected an axis for {tensor.value.type}")
    place = axis_of("take", 0 if axis is None else axis, tensor)
    return emit(ops.Take(place), tensor, checked_indices("take", indices, tensor.shape[place]))


def embedding(
    x: TensorLike,
    weight: TensorLike,
    padding_idx: int | None = None,
    max_norm: float | None = None,
) -> Tensor:
    """Row x[...] of `weight` [rows, features] for each element of x (i32 or i64): [..., features].

    Out of range gives a row of zeros. The row at `padding_idx`, which may count from the end, gets
    no gradient. PyTorch's `max_norm` changes the weight itself, which only updates do here.
    """
    table = as_tensor(weight)
    if table.ndim != 2:
        raise error(f"embedding: expected a weight of 2 axes, got {table.value.type}")
    if max_norm is not None:
        raise error(
            f"embedding: max_norm expected None, got {max_norm!r}: a lookup changes no weights; "
            "assign rows of that norm between steps"
        )
    rows = table.shape[0]
    y = emit(ops.Take(0), table, checked_indices("embedding", x, rows))
    if padding_idx is None:
        return y
    if not is_integer(padding_idx) or not -rows <= padding_idx < rows:
        raise error(f"embedding: padding_idx expected a row of {rows}, got {padding_idx!r}")
    padded = equal(as_tensor(x), int(padding_idx) % rows)
    return where(reshape(padded, (*padded.shape, 1)), stop_gradient(y), y)


def one_hot(x: TensorLike, num_classes: int, dtype: DTypeLike = "i64") -> Tensor:
    """[..., num_classes] with 1 at place x[...] (integers) and 0 elsewhere: out of range, all 0."""
    if not is_integer(num_classes) or num_classes < 1:
        raise error(f"one_hot: num_classes expected a positive integer, got {num_classes!r}")
    labels = integer_indices("one_hot", x)
    expect_below("one_hot", labels, int(num_classes))
    ramp = emit(ops.Iota((int(num_classes),), 0, labels.dtype))
    return astype(equal(reshape(labels, (*labels.shape, 1)), ramp), dtype)
