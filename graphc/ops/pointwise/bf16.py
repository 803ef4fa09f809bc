"""Floats rounded to bf16, of 7 bits of fraction, where a contraction reads them; made by passes."""

from __future__ import annotations

from typing import ClassVar

from graphc.base.dtypes import BFLOAT16, convert, widened
from graphc.ops.base import Array, Pointwise


def nearest_bf16(x: Array) -> Array:
    """float32 with 7 bits of fraction that are nearest to `x`, ties to even."""
    return widened(convert(x, BFLOAT16))


class ReadBf16(Pointwise):
    """y = the bf16 nearest to a, as f32, where a contraction reads an operand.

    It needs no array in memory.
    """

    name: ClassVar[str] = "read_bf16"
    called: ClassVar[str] = ""
    expression: ClassVar[str] = "to_bf16({a})"
    operations: ClassVar[int] = 1
    units: ClassVar[float] = 0.0
    accepts: ClassVar[tuple[str, ...]] = ("f32",)
    converts_reads: ClassVar[bool] = True
    keeps_value: ClassVar[bool] = True
    meaning = nearest_bf16
