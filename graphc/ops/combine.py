"""How elements are combined along an axis: expressions that kernels of every device print."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphc.ir import DTYPES, FLOATS


@dataclass(frozen=True)
class Combine:
    """An associative way to combine what came before, `{a}`, with what follows, `{b}`.

    `expression` is what both come to, as a pointwise op's expression; `{zero}` is a zero of their
    dtype. If set instead, `picks` is the condition under which `{b}` replaces `{a}`; the result is
    then one of the elements, and its index is kept too. A NaN always replaces.
    Joining `neutral` and an element gives the element: a number, or "lowest" or "highest" of what
    the dtype holds. `nanoseconds` is an estimate of what a vector register takes.
    """

    expression: str = ""
    neutral: float | str = 0
    picks: str = ""
    nanoseconds: float = 0.3

    def __post_init__(self) -> None:
        assert bool(self.expression) != bool(self.picks), "an expression, or a condition"

    def neutral_of(self, dtype: str) -> float | int:
        """The neutral element of a dtype."""
        if not isinstance(self.neutral, str):
            return self.neutral
        return end_of(dtype, self.neutral == "lowest")


def end_of(dtype: str, low: bool) -> float | int:
    """The lowest number that a dtype holds, or the highest; of floats the infinities."""
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
"""Equal arguments have the distance 0: inf - inf would be NaN."""
