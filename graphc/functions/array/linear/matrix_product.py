"""The matrix product."""

from __future__ import annotations

import math

import numpy as np

from graphc import ops
from graphc.functions.array.elementwise.precision import factors
from graphc.functions.array.shape.shapes import reshape
from graphc.functions.array.tensors import error
from graphc.ir import TensorLike
from graphc.trace import Tensor, emit


def matmul(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Multiply matrices: [..., m, k] and [..., k, n] give [..., m, n].

    A vector [k] is a row on the left and a column on the right; its axis is missing in the result.

    Args:
        x1: The left matrices.
        x2: The right matrices; leading axes broadcast with those of `x1`.

    Raises:
        GraphError: An argument is a scalar, or the inner sizes differ.

    Example:
        >>> graphc.compile(lambda: graphc.matmul([[1, 2], [3, 4]], [1, 1]))()
        array([3, 7])
    """
    a, b = factors(x1, x2)
    if not a.ndim or not b.ndim:
        raise error(f"matmul: expected 1 axis or more, got {a.value.type} and {b.value.type}")
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise error(f"matmul: {a.value.type} and {b.value.type} have no common inner extent")
    left = reshape(a, (1, -1)) if a.ndim == 1 else a
    right = reshape(b, (-1, 1)) if b.ndim == 1 else b
    batch = np.broadcast_shapes(left.shape[:-2], ()) if right.ndim == 2 else None
    if batch:
        # One matrix product instead of a batch of them; so is its gradient for the right side.
        left = reshape(left, (math.prod(left.shape[:-1]), left.shape[-1]))
    y = emit(ops.Matmul(), left, right)
    rows = () if a.ndim == 1 else a.shape[-2:-1]
    columns = () if b.ndim == 1 else b.shape[-1:]
    leading = batch if batch is not None else y.shape[:-2]
    return reshape(y, (*leading, *rows, *columns))
