"""The trace of matrices. Type checkers take `graphc.trace` for that of functions alone, which
hands matrices on to this one."""

from __future__ import annotations

from graphc.functions.array.reductions import sum
from graphc.functions.array.shape.rearrange import diagonal
from graphc.ir import TensorLike
from graphc.trace import Tensor


def trace(x: TensorLike, offset: int = 0) -> Tensor:
    """The sum along diagonal `offset` of the last two axes."""
    return sum(diagonal(x, offset, -2, -1), -1)
