"""Mixed precision: which ops take two-byte floats and which take float32.

While a function is traced with mixed precision, its builder names a two-byte dtype. Products
(matrix products, convolutions, attention) take float32 operands in it, which the functions that
emit them see to (`graphc/functions/array/elementwise/precision.py`). The ops below take two-byte
operands as float32, and so give float32. All others have the dtype that promotion gives their
operands. Gradients follow from what was traced: the gradient of a conversion is a conversion.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Precise(Protocol):
    """A builder, as far as this module needs to know it."""

    mixed: str


WIDE = frozenset(
    {
        *("sum", "prod", "cumsum", "cumprod", "logcumsumexp"),
        *("exp", "expm1", "log", "log1p", "pow", "rsqrt"),
        *("sinh", "cosh", "tan", "asin", "acos", "lgamma", "digamma", "polygamma"),
    }
)
"""The names of ops whose results leave the range of float16 or need more digits than its."""


@contextmanager
def in_precision(builder: Precise | None, dtype: str) -> Iterator[None]:
    """Set the two-byte dtype of products that `builder` emits inside; "" keeps them as they are.

    Nothing happens without a builder.
    """
    if builder is None:
        yield
        return
    before, builder.mixed = builder.mixed, dtype
    try:
        yield
    finally:
        builder.mixed = before
