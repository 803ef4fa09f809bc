"""Matrices made from vectors and indices."""

from __future__ import annotations

from itertools import combinations as _pairs
from itertools import combinations_with_replacement

import numpy as np

from graphc import ops
from graphc.functions.array.creation import ones_like
from graphc.functions.array.elementwise.elementwise import equal, multiply, where
from graphc.functions.array.indexing.indexing import take
from graphc.functions.array.shape.padding import pad
from graphc.functions.array.shape.rearrange import meshgrid, moveaxis
from graphc.functions.array.shape.shapes import concat, expand_dims, reshape, stack
from graphc.functions.array.tensors import as_tensor, error, promoted
from graphc.ir import TensorLike
from graphc.trace import Tensor, emit


def vander(x: TensorLike, N: int | None = None, increasing: bool = False) -> Tensor:
    """Return the Vandermonde matrix of a vector: its powers in columns.

    Args:
        x: A vector [n].
        N: The number of columns; by default n.
        increasing: Whether the powers grow from column to column.

    Returns:
        A matrix [n, N].

    Raises:
        GraphError: `x` is not a vector.

    Example:
        >>> graphc.compile(lambda: graphc.vander([2, 3], 3))()
        array([[4, 2, 1],
               [9, 3, 1]])
    """
    tensor = as_tensor(x)
    if tensor.ndim != 1:
        raise error(f"vander: expected x of 1 axis, got {tensor.value.type}")
    count = tensor.shape[0] if N is None else N
    powers = [ones_like(tensor)]
    for _ in range(count - 1):
        powers.append(multiply(powers[-1], tensor))
    return stack(powers[:count] if increasing else powers[:count][::-1], 1)


def tril_indices(row: int, col: int | None = None, offset: int = 0) -> Tensor:
    """Return the row and column indices of a lower triangle.

    Args:
        row: The number of rows.
        col: The number of columns; by default `row`.
        offset: The last diagonal that belongs to the triangle: 0 is the main one.

    Returns:
        Indices i64 [2, n].

    Example:
        >>> graphc.compile(lambda: graphc.tril_indices(2))()
        array([[0, 1, 1],
               [0, 0, 1]])
    """
    return as_tensor(np.stack(np.tril_indices(row, offset, row if col is None else col)))


def triu_indices(row: int, col: int | None = None, offset: int = 0) -> Tensor:
    """Return the row and column indices of an upper triangle.

    Args:
        row: The number of rows.
        col: The number of columns; by default `row`.
        offset: The first diagonal that belongs to the triangle: 0 is the main one.

    Returns:
        Indices i64 [2, n].

    Example:
        >>> graphc.compile(lambda: graphc.triu_indices(2))()
        array([[0, 0, 1],
               [0, 1, 1]])
    """
    return as_tensor(np.stack(np.triu_indices(row, offset, row if col is None else col)))


def diag_embed(x: TensorLike, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Return matrices with the last axis of `x` on a diagonal, and 0 elsewhere.

    Args:
        x: The diagonals [..., n].
        offset: The diagonal: 0 is the main one, 1 the one above it.
        axis1: The axis of the rows in the result.
        axis2: The axis of the columns in the result.

    Example:
        >>> graphc.compile(lambda: graphc.diag_embed([1, 2]))()
        array([[1, 0],
               [0, 2]])
    """
    tensor = as_tensor(x)
    n = tensor.shape[-1]
    size = n + abs(offset)
    rows, columns = (emit(ops.Iota((n, n), a)) for a in (0, 1))
    square = where(equal(rows, columns), expand_dims(tensor, -1), as_tensor(0, tensor.dtype))
    widths = [(0, 0)] * (tensor.ndim - 1)
    widths += [(max(-offset, 0), max(offset, 0)), (max(offset, 0), max(-offset, 0))]
    placed = pad(square, widths) if size > n else square
    return moveaxis(placed, (-2, -1), (axis1, axis2))


def diagflat(x: TensorLike, offset: int = 0) -> Tensor:
    """Return a matrix with the elements of `x` on a diagonal, and 0 elsewhere.

    Args:
        x: The elements, taken in row-major order.
        offset: The diagonal: 0 is the main one, 1 the one above it.

    Example:
        >>> graphc.compile(lambda: graphc.diagflat([[1], [2]]))()
        array([[1, 0],
               [0, 2]])
    """
    return diag_embed(reshape(x, (-1,)), offset)


def block_diag(*arrays: TensorLike) -> Tensor:
    """Return a matrix with the given matrices along its diagonal, and 0 elsewhere.

    Example:
        >>> graphc.compile(lambda: graphc.block_diag([[1, 2]], [[3]]))()
        array([[1, 2, 0],
               [0, 0, 3]])
    """
    matrices = [reshape(t, (1,) * (2 - t.ndim) + t.shape) for t in promoted(*arrays)]
    width = np.cumsum([0, *(m.shape[1] for m in matrices)]).tolist()
    rows = [
        pad(m, ((0, 0), (before, width[-1] - before - m.shape[1])))
        for m, before in zip(matrices, width, strict=False)
    ]
    return concat(rows, 0)


def cartesian_prod(*arrays: TensorLike) -> Tensor:
    """Return all combinations of one element of each of k vectors, as rows.

    Args:
        *arrays: Vectors [n1], [n2], ...

    Returns:
        A matrix [n1 * n2 * ..., k].

    Example:
        >>> graphc.compile(lambda: graphc.cartesian_prod([1, 2], [3, 4]))()
        array([[1, 3],
               [1, 4],
               [2, 3],
               [2, 4]])
    """
    if len(arrays) == 1:
        return as_tensor(arrays[0])
    grids = meshgrid(*promoted(*arrays), indexing="ij")
    return stack([reshape(g, -1) for g in grids], 1)


def combinations(x: TensorLike, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return all combinations of `r` elements of a vector, as rows in order of their indices.

    Args:
        x: A vector.
        r: The number of elements in a combination.
        with_replacement: Whether an element may occur more than once.

    Raises:
        GraphError: `x` is not a vector.

    Example:
        >>> graphc.compile(lambda: graphc.combinations([1, 2, 3]))()
        array([[1, 2],
               [1, 3],
               [2, 3]])
    """
    tensor = as_tensor(x)
    if tensor.ndim != 1:
        raise error(f"combinations: expected x of 1 axis, got {tensor.value.type}")
    ways = (combinations_with_replacement if with_replacement else _pairs)(range(tensor.size), r)
    return take(tensor, np.array(list(ways), np.int64).reshape(-1, r))
