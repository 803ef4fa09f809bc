"""Binary search in sorted sequences."""

from __future__ import annotations

from graphc import ops
from graphc.functions.array.indexing.gathering import take_along_axis
from graphc.functions.array.shape.shapes import reshape
from graphc.functions.array.tensors import error, promoted
from graphc.ir import TensorLike
from graphc.trace import Tensor, emit


def searchsorted(
    sorted_sequence: TensorLike,
    values: TensorLike,
    right: bool = False,
    side: str | None = None,
    sorter: TensorLike | None = None,
) -> Tensor:
    """Return the indices at which values must be inserted to keep a sequence sorted.

    The index is the number of elements below the value, or with `right` not above it.

    Args:
        sorted_sequence: Elements in ascending order along the last axis; a vector, or of the
            leading axes of `values`.
        values: The values to search for.
        right: Whether equal elements come before the insertion point.
        side: "left" or "right", another way to say `right`.
        sorter: The indices that sort `sorted_sequence`, if it is not sorted itself.

    Returns:
        Indices, i64, of the shape of `values`.

    Raises:
        GraphError: `side` contradicts `right`.

    Example:
        >>> graphc.compile(lambda: graphc.searchsorted([1, 3, 5], [3, 4]))()
        array([1, 2])
    """
    if side not in (None, "left", "right") or (right and side == "left"):
        raise error(f"searchsorted: side expected left or right, as right={right}, got {side!r}")
    table, wanted = promoted(sorted_sequence, values)
    if sorter is not None:
        table = take_along_axis(table, sorter, -1)
    if table.ndim == 1 and wanted.ndim != 1:
        flat = reshape(wanted, (-1,))
        return reshape(_searched(table, flat, right or side == "right"), wanted.shape)
    return _searched(table, wanted, right or side == "right")


def bucketize(x: TensorLike, boundaries: TensorLike, right: bool = False) -> Tensor:
    """Return the index of the bucket that each element falls into.

    Args:
        x: The values.
        boundaries: The boundaries of the buckets, a vector in ascending order.
        right: Whether a value equal to a boundary belongs to the bucket above it.

    Returns:
        Indices, i64, of the shape of `x`: the number of boundaries below each element.

    Example:
        >>> graphc.compile(lambda: graphc.bucketize([0.5, 2.0], [1.0, 2.0, 3.0]))()
        array([0, 1])
    """
    return searchsorted(boundaries, x, right)


def _searched(table: Tensor, values: Tensor, right: bool) -> Tensor:
    return emit(ops.Searchsorted(right), table, values)
