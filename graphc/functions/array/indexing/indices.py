"""Check indices, as far as their values are known when the function is traced."""

from __future__ import annotations

import numpy as np

from graphc.functions.array.tensors import as_tensor, cast, error
from graphc.ir import INTEGERS, TensorLike
from graphc.trace import Operand, Tensor
from graphc.trace.index_bounds import expect_below


def checked_indices(name: str, x: TensorLike, extent: int) -> Tensor:
    """Return `x` as indices; constants must be below `extent`, or GraphError is raised."""
    if not isinstance(x, Operand):
        known = np.asarray(x)
        wrong = known[(known < 0) | (known >= extent)]
        if wrong.size:
            raise error(f"{name}: index {wrong.flat[0]} is not in the range 0 to {extent - 1}")
    indices = integer_indices(name, x)
    expect_below(name, indices, extent)
    return indices


def integer_indices(name: str, x: TensorLike) -> Tensor:
    """Return `x` as i32 or i64, or raise GraphError if it holds no integers."""
    tensor = as_tensor(x)
    if tensor.dtype not in INTEGERS:
        raise error(f"{name}: expected integer indices, got {tensor.value.type}")
    return tensor if tensor.dtype in ("i32", "i64") else cast(tensor, "i32")
