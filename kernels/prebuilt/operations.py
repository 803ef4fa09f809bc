"""The operations that are built for strips: expressions by the types of their operands.

`operations.h` lists them for the compiler, as `tools/write_operations.py` prints it. A formula that
is not among them has no prebuilt function.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from graphc.ops.pointwise.logic import C_TYPES

FLOATS, INTEGERS = ("f32", "f64"), ("u8", "i8", "i32", "i64")
NUMBERS = (*FLOATS, *INTEGERS)
OPERANDS = "abc"
LARGER = "as_mask(~(a <= b) & (b == b))"
"""Whether a is larger than b, or the first NaN, as the maximum of a window asks."""


class Operation(NamedTuple):
    """An expression of a, b and c."""

    expression: str
    """The C++ expression."""
    result: str
    """The type of an element of the result, in a register or in memory."""
    operands: tuple[str, ...]
    """Those of the operands."""


_ARITHMETIC = ("a + b", "a - b", "a * b", "maximum(a, b)", "minimum(a, b)")
_DIVISIONS = ("floor_divide(a, b)", "remainder(a, b)")
_UNARY = ("-a", "abs(a)", "a * a", "relu(a)")
_COMPARISONS = ("a < b", "a <= b", "a > b", "a >= b", "a == b", "a != b")
_OF_INTEGERS = (
    "a & b",
    "a | b",
    "a ^ b",
    "left_shift(a, b)",
    "right_shift(a, b)",
    "gcd(a, b)",
    "fmod(a, b)",
)
_MULTIPLY_ADDS = ("fma(a, b, c)", "fma(a, b, -c)", "fma(-a, b, c)")
_FUNCTIONS = (
    "exp expm1 log log1p sqrt rsqrt tanh sigmoid erf sin cos floor ceil round_even trunc exp2 log2 "
    "log10 tan asin acos atan sinh cosh asinh acosh atanh erfc erfcx erfinv ndtri lgamma digamma "
    "i0e i1e sinc"
).split()
_OF_TWO = ("a / b", "pow(a, b)", "copysign(a, b)", "fmod(a, b)", "atan2(a, b)", "hypot(a, b)")
_RAW = {"bool": "u8", "f16": "u16", "bf16": "u16"}
"""What memory has of elements that registers hold otherwise."""
KINDS = {**{kind: kind for kind in C_TYPES}, "f16": "f32", "bf16": "f32"}
"""The type of a register of each dtype."""


def _listed() -> Iterator[Operation]:
    for kind in NUMBERS:
        for expression in (*_ARITHMETIC, *_DIVISIONS, "relu_grad(a, b)"):
            yield Operation(expression, kind, (kind, kind))
        for expression in _UNARY:
            yield Operation(expression, kind, (kind,))
        for expression in _COMPARISONS:
            yield Operation(f"as_mask({expression})", "bool", (kind, kind))
        yield Operation("to_bool(a)", "bool", (kind,))
    for kind in (*NUMBERS, "bool"):
        yield Operation("select(a, b, c)", kind, ("bool", kind, kind))
        yield Operation("a", kind, (kind,))
    for kind in INTEGERS:
        for expression in _OF_INTEGERS:
            yield Operation(expression, kind, (kind, kind))
        yield Operation("~a", kind, (kind,))
    for expression in ("a & b", "a | b", "a ^ b"):
        yield Operation(expression, "bool", ("bool", "bool"))
    yield Operation("~a", "bool", ("bool",))
    for kind in FLOATS:
        for expression in _MULTIPLY_ADDS:
            yield Operation(expression, kind, (kind, kind, kind))
        for name in _FUNCTIONS:
            yield Operation(f"{name}(a)", kind, (kind,))
        for expression in (*_OF_TWO, "nextafter(a, b)"):
            yield Operation(expression, kind, (kind, kind))
        yield Operation("as_mask(isnan(a))", "bool", (kind,))
        yield Operation(LARGER, "bool", (kind, kind))
        yield Operation("as_mask(signbit(a))", "bool", (kind,))
    yield Operation("to_tf32(a)", "f32", ("f32",))
    for dtype, name in C_TYPES.items():
        if dtype == "bool":
            continue
        for kind in NUMBERS:
            if kind != dtype:
                yield Operation(f"convert<{name}>(a)", KINDS[dtype], (kind,))
        yield Operation(f"from_bool<{name}>(a)", KINDS[dtype], ("bool",))
    for dtype, name in (("f16", "half"), ("bf16", "bfloat")):
        yield Operation(f"decode<{name}>(a)", "f32", (_RAW[dtype],))
        yield Operation(f"encode<{name}>(a)", _RAW[dtype], ("f32",))
    yield Operation("as_mask(a != vec<uint8_t>{})", "bool", ("u8",))
    yield Operation("narrow<uint8_t>(a & 1)", "u8", ("bool",))


@functools.cache
def operations() -> Mapping[Operation, int]:
    """The number of each operation."""
    return {operation: number for number, operation in enumerate(_listed())}


@functools.cache
def conversion(dtype: str) -> tuple[int | None, int | None]:
    """The operations that read elements of `dtype` from memory into registers and write them; None
    where memory has what registers have."""
    if dtype not in _RAW:
        return None, None
    name, raw = C_TYPES[dtype], _RAW[dtype]
    read, write = f"decode<{name}>(a)", f"encode<{name}>(a)"
    if dtype == "bool":
        read, write = "as_mask(a != vec<uint8_t>{})", "narrow<uint8_t>(a & 1)"
    kind, known = KINDS[dtype], operations()
    return known[Operation(read, kind, (raw,))], known[Operation(write, raw, (kind,))]


def header_text() -> str:
    """The text of operations.h."""
    types = {**C_TYPES, "u16": "uint16_t"}
    lines = [
        "// The operations of strips: result, expression, operands. Written by",
        "// tools/write_operations.py.",
    ]
    for operation in operations():
        arity = ("UNARY", "BINARY", "TERNARY")[len(operation.operands) - 1]
        names = ", ".join(types[t] for t in operation.operands)
        result = types[operation.result]
        lines.append(f"GRAPHC_{arity}({result}, ({operation.expression}), {names})")
    return "".join(f"{line}\n" for line in lines)
