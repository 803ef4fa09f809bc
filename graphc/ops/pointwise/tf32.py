"""Floats rounded to tf32, the 10 bits of fraction that tensor cores multiply; made by passes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphc.ops.base import Array, Pointwise


def nearest_tf32(x: Array) -> Array:
    """float32 with 10 bits of fraction that are nearest to `x`, ties to even."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    near = (bits + np.uint32(0xFFF) + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(x), x, near.view(np.float32).reshape(x.shape))


class RoundTf32(Pointwise):
    """y = the number of 10 bits of fraction nearest to a; the even one of two equally near."""

    name: ClassVar[str] = "round_tf32"
    called: ClassVar[str] = ""
    expression: ClassVar[str] = "to_tf32({a})"
    operations: ClassVar[int] = 5
    units: ClassVar[float] = 0.0
    accepts: ClassVar[tuple[str, ...]] = ("f32",)
    meaning = nearest_tf32


class ReadTf32(RoundTf32):
    """The same where a contraction reads an operand: it costs no array in memory."""

    name: ClassVar[str] = "read_tf32"
    converts_reads: ClassVar[bool] = True
    keeps_value: ClassVar[bool] = True
    operations: ClassVar[int] = 5
