"""State of which each of several processes has a slice; it is saved and loaded as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir.state import StateBuffer
from graphc.ir.types import Array, Type


class SlicedBuffer(StateBuffer):
    """This process's slice [n] of an array whose elements, in row-major order, are divided.

    Rank r has the elements from r * n on, where n is the number of elements over that of the ranks,
    rounded up; zeros follow the last ones.

    Args:
        kind: The type of the whole array.
        rank: The number of this process.
        ranks: The number of processes.
        gathered: Returns the slices of all ranks [ranks, n] from that of this one. All ranks call
            it together.
        initial: The initial value of all elements.
    """

    def __init__(
        self,
        kind: Type,
        rank: int,
        ranks: int,
        gathered: Callable[[Array], Array],
        initial: float = 0.0,
    ) -> None:
        self._kind, self._rank, self._ranks, self._gathered = kind, rank, ranks, gathered
        super().__init__(np.full(slice_size(kind, ranks), initial), kind.numpy_dtype)

    @property
    def whole_type(self) -> Type:
        return self._kind

    def whole(self, array: Array) -> Array:
        """Return the whole array; all ranks call it together."""
        slices = self._gathered(array)
        return slices.reshape(-1)[: self._kind.size].reshape(self._kind.shape)

    def own(self, whole: Array) -> Array:
        """Return this rank's slice of a whole array."""
        size = self.array.size
        part = whole.reshape(-1)[self._rank * size : (self._rank + 1) * size]
        return np.pad(part, (0, size - part.size)) if part.size < size else part

    def __reduce__(self) -> NoReturn:
        raise GraphError(
            "state that is divided among ranks cannot be copied or pickled: state_dict returns the "
            "whole of it"
        )


def slice_size(kind: Type, ranks: int) -> int:
    """Return how many elements of an array each of several ranks has."""
    return -(-kind.size // ranks)
