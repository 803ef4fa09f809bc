"""C++ literals of numbers in registers and in memory."""

from __future__ import annotations

import numpy as np

from graphc.base.dtypes import convert, shown
from graphc.ir import DTYPES, FLOATS, NARROW
from graphc.kernels.program.body.statement import Literal, Number
from graphc.ops.pointwise.logic import REGISTER_TYPES

NAN = float("nan")
TRUE = Literal("true", True)
"""The condition that always passes."""


def splat(value: object, dtype: str) -> str:
    """The template of a register that holds the scalar `value` in every lane."""
    return f"splat<{REGISTER_TYPES[dtype]}>({literal(value, dtype)})"


def splat_literal(value: object, dtype: str) -> Literal:
    """The literal of such a register."""
    return Literal(splat(value, dtype), number(value, dtype), dtype)


def word_literal(value: int) -> Literal:
    """The literal of an unsigned word of 32 bits."""
    return Literal(f"{value}u", value)


def number(value: object, dtype: str) -> Number:
    """A scalar of NumPy as a number of Python."""
    if dtype == "bool":
        return bool(value)
    if dtype not in FLOATS:
        return int(value)  # type: ignore[call-overload, no-any-return]
    if isinstance(value, np.void):
        value = shown(np.asarray(value))
    real = float(value)  # type: ignore[arg-type]
    return NAN if np.isnan(real) else real


def memory_literal(value: object, dtype: str) -> str:
    """The C++ initializer of an element in memory."""
    if dtype not in NARROW:
        return literal(value, dtype)
    bits = convert(np.asarray(value), DTYPES[dtype]).view(np.uint16)
    return f"{{{int(bits):#06x}}}"


def literal(value: object, dtype: str) -> str:
    """The C++ literal of the scalar `value` as a register holds it."""
    if dtype == "bool":
        return "true" if value else "false"
    known = number(value, dtype)
    if dtype in FLOATS:
        suffix = "" if dtype == "f64" else "f"
        if np.isnan(known):
            return f'__builtin_nan{suffix}("")'
        if np.isinf(known):
            return f"{'-' if known < 0 else ''}__builtin_inf{suffix}()"
        text = repr(known) if dtype == "f64" else str(np.float32(known))
        return text + ("" if "." in text or "e" in text else ".0") + suffix
    if known == -(2**63):
        return "INT64_MIN"
    return f"{known}{'ll' if dtype == 'i64' else ''}"
