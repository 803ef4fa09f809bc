"""How elements are combined along an axis: expressions that kernels of every device print."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphc.ir import DTYPES, FLOATS


@dataclass(frozen=True)
class Combine:
    """An associative way to combine what came before, `{a}`, with what follows, `{b}`.

    `expression` is what both come to, as a pointwise op's expression; `{zero}` is a zero of their
    dtype. One that `picks` is the condition under which `{b}` takes the place of `{a}`: the result
    is one of the elements, so that its place along the axis is known as well; NaN takes any place.
    Joining `neutral` and an element gives the element: a number, or "lowest" or "highest" of what
    the dtype holds. `nanoseconds` is an estimate of what a vector register takes.
    """

    expression: str = ""
    neutral: float | str = 0
    picks: str = ""
    nanoseconds: float = 0.3

    def neutral_of(self, dtype: str) -> float | int:
        """The neutral element of a dtype."""
        if not isinstance(self.neutral, str):
            return self.neutral
        low = self.neutral == "lowest"
        if dtype in FLOATS:
            return -np.inf if low else np.inf
        limits = np.iinfo(DTYPES[dtype])
        return int(limits.min if low else limits.max)


SUM = Combine("{a} + {b}", 0)
PROD = Combine("{a} * {b}", 1)
LATEST_MAX = Combine(picks="{b} >= {a}", neutral="lowest")
LATEST_MIN = Combine(picks="{b} <= {a}", neutral="highest")
LOGSUMEXP = Combine(
    "maximum({a}, {b}) + log1p(exp(select(as_mask({a} == {b}), {zero}, "
    "minimum({a}, {b}) - maximum({a}, {b}))))",
    "lowest",
    nanoseconds=12.0,
)
"""Of equal numbers the distance is zero: of infinities it would be NaN."""
