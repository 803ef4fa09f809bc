"""Take elements by their indices."""

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
    """Take elements or slices of `x` by their indices along an axis.

    Args:
        x: The input.
        indices: Indices, i32 or i64, not negative, of any shape. An index out of range gives 0.
        axis: The axis to take along; it may be left out for a vector.

    Returns:
        A tensor with the axes of `indices` in place of `axis`.

    Raises:
        GraphError: `axis` is missing, or a constant index is out of range.

    Example:
        >>> graphc.compile(lambda: graphc.take([10, 20, 30], [2, 0]))()
        array([30, 10])
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
    """Look up the rows of a table: y[...] = weight[x[...]].

    Args:
        x: Row numbers, i32 or i64. A number out of range gives a row of zeros.
        weight: The table [rows, features].
        padding_idx: A row that gets no gradient; it may count from the end.
        max_norm: Must be None, since a lookup does not change the table.

    Returns:
        A tensor [..., features].

    Raises:
        GraphError: The table is no matrix, or `padding_idx` is not one of its rows.

    Example:
        >>> graphc.compile(lambda: graphc.embedding([1, 0], [[1.0, 2.0], [3.0, 4.0]]))()
        array([[3., 4.],
               [1., 2.]], dtype=float32)
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
    """Encode integers as one-hot vectors.

    Args:
        x: Integers; one out of range gives a vector of zeros.
        num_classes: The length of the vectors.
        dtype: The dtype of the result.

    Returns:
        A tensor [..., num_classes].

    Raises:
        GraphError: `num_classes` is not a positive integer.

    Example:
        >>> graphc.compile(lambda: graphc.one_hot([1, 0], 3))()
        array([[0, 1, 0],
               [1, 0, 0]])
    """
    if not is_integer(num_classes) or num_classes < 1:
        raise error(f"one_hot: num_classes expected a positive integer, got {num_classes!r}")
    labels = integer_indices("one_hot", x)
    expect_below("one_hot", labels, int(num_classes))
    ramp = emit(ops.Iota((int(num_classes),), 0, labels.dtype))
    return astype(equal(reshape(labels, (*labels.shape, 1)), ramp), dtype)
