"""Numbers of elements: integers that are checked as far as they are known."""

from __future__ import annotations

import numpy as np

from graphc.functions.array.tensors import as_tensor, cast, error
from graphc.ir import INTEGERS, TensorLike
from graphc.trace import Operand, Tensor
from graphc.trace.index_bounds import expect_below


def checked_indices(name: str, x: TensorLike, extent: int) -> Tensor:
    """The indices, which must be below `extent` as far as they are known."""
    if not isinstance(x, Operand):
        known = np.asarray(x)
        wrong = known[(known < 0) | (known >= extent)]
        if wrong.size:
            raise error(f"{name}: index {wrong.flat[0]} is not in the range 0 to {extent - 1}")
    indices = integer_indices(name, x)
    expect_below(name, indices, extent)
    return indices


def integer_indices(name: str, x: TensorLike) -> Tensor:
    """The indices as i32 or i64."""
    tensor = as_tensor(x)
    if tensor.dtype not in INTEGERS:
        raise error(f"{name}: expected integer indices, got {tensor.value.type}")
    return tensor if tensor.dtype in ("i32", "i64") else cast(tensor, "i32")
