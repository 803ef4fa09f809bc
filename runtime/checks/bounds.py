"""The bounds check: before a call, the reference computes the indices that it will use and compares
them with their ranges.

Kernels never read out of range, checked or not; the documentation of each function says what they
give then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphc.base.dtypes import Array
from graphc.base.errors import GraphError
from graphc.ir.rewrite import drop_dead
from graphc.runtime.reference import ReferenceExecutable
from graphc.trace import Builder


class BoundsCheck:
    """The part of a traced function that its indices depend on."""

    def __init__(self, builder: Builder) -> None:
        self.bounds = builder.bounds or []
        graph = replace(builder.graph([b.tensor for b in self.bounds]), updates=())
        self._part = ReferenceExecutable(drop_dead(graph), builder.buffers)

    def __call__(self, inputs: Sequence[Array]) -> None:
        """Raise GraphError for the first index out of range that a call with `inputs` would use."""
        if any(not isinstance(x, np.ndarray) for x in inputs):
            raise GraphError("GRAPHC_CHECK=bounds: expected arrays on the host, got some elsewhere")
        for bound, indices in zip(self.bounds, self._part.run(inputs), strict=True):
            wrong = (indices < 0) | (indices >= bound.extent)
            wrong &= ~np.isin(indices, bound.spared)
            if wrong.any():
                place = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wrong)))
                value = int(np.atleast_1d(indices)[place])
                raise GraphError(bound.message(value, place if indices.ndim else ()))
