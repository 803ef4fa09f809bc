"""The trace of matrices, which `graphc.trace` calls for a tensor."""

from __future__ import annotations

from graphc.functions.array.reductions import sum
from graphc.functions.array.shape.rearrange import diagonal
from graphc.ir import TensorLike
from graphc.trace import Tensor


def trace(x: TensorLike, offset: int = 0) -> Tensor:
    """Return the sum along a diagonal of the last two axes."""
    return sum(diagonal(x, offset, -2, -1), -1)
