"""Memory of batches, used again once nobody holds a batch any more."""

from __future__ import annotations

import sys
from collections import deque

import numpy as np

from graphc.base.dtypes import Array, DType


class Memory:
    """Arrays by name, which `take` returns again when nothing else refers to them.

    A view, a memoryview or a DLPack capsule of an array refers to it. At most `most` arrays of a
    name are kept; those that callers hold beyond are theirs alone.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._arrays: dict[str, deque[Array]] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: DType) -> Array:
        """Return an array of this shape and dtype with any contents, which nobody else holds."""
        arrays = self._arrays.setdefault(name, deque(maxlen=self.most))
        for place in range(len(arrays)):
            if sys.getrefcount(arrays[place]) == _ALONE:
                array = arrays[place]
                if array.shape == shape and array.dtype == dtype:
                    return array
        array = np.empty(shape, dtype)
        arrays.append(array)
        return array


_PROBE = deque([np.empty(0)])
_ALONE = sys.getrefcount(_PROBE[0])
"""The count of an array that only its deque refers to, as `take` reads it."""
