"""C++ literals of numbers in registers and in memory."""

from __future__ import annotations

import numpy as np

from graphc.base.dtypes import convert, shown
from graphc.ir import DTYPES, FLOATS, NARROW
from graphc.ops.pointwise.logic import REGISTER_TYPES


def splat(value: object, dtype: str) -> str:
    """The template of a register that holds the scalar `value` in every lane."""
    return f"splat<{REGISTER_TYPES[dtype]}>({literal(value, dtype)})"


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
    if dtype in FLOATS:
        if isinstance(value, np.void):
            value = shown(np.asarray(value))
        number = float(value)  # type: ignore[arg-type]
        suffix = "" if dtype == "f64" else "f"
        if np.isnan(number):
            return f'__builtin_nan{suffix}("")'
        if np.isinf(number):
            return f"{'-' if number < 0 else ''}__builtin_inf{suffix}()"
        text = repr(number) if dtype == "f64" else str(np.float32(number))
        return text + ("" if "." in text or "e" in text else ".0") + suffix
    number = int(value)  # type: ignore[call-overload]
    if number == -(2**63):
        return "INT64_MIN"
    return f"{number}{'ll' if dtype == 'i64' else ''}"
