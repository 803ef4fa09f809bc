"""Ops that go element by element, as ONNX's operators."""

from __future__ import annotations

import math
from collections.abc import Callable

from graphc import ops
from graphc.ir import FLOATS
from graphc.onnx.dtypes import NUMBERS
from graphc.onnx.writers.rules import Writer, in_f32, in_i32, writes
from graphc.ops.base import Op

_SAME: dict[type[Op], str] = {
    ops.Abs: "Abs",
    ops.Acos: "Acos",
    ops.Acosh: "Acosh",
    ops.Add: "Add",
    ops.Asin: "Asin",
    ops.Asinh: "Asinh",
    ops.Atan: "Atan",
    ops.Atanh: "Atanh",
    ops.BitwiseAnd: "BitwiseAnd",
    ops.BitwiseNot: "BitwiseNot",
    ops.BitwiseOr: "BitwiseOr",
    ops.BitwiseXor: "BitwiseXor",
    ops.Ceil: "Ceil",
    ops.Cos: "Cos",
    ops.Cosh: "Cosh",
    ops.Divide: "Div",
    ops.Equal: "Equal",
    ops.Erf: "Erf",
    ops.Exp: "Exp",
    ops.Floor: "Floor",
    ops.Greater: "Greater",
    ops.GreaterEqual: "GreaterOrEqual",
    ops.Isnan: "IsNaN",
    ops.Less: "Less",
    ops.LessEqual: "LessOrEqual",
    ops.Log: "Log",
    ops.LogicalAnd: "And",
    ops.LogicalNot: "Not",
    ops.LogicalOr: "Or",
    ops.LogicalXor: "Xor",
    ops.Matmul: "MatMul",
    ops.Maximum: "Max",
    ops.Minimum: "Min",
    ops.Multiply: "Mul",
    ops.Pow: "Pow",
    ops.Round: "Round",
    ops.Select: "Where",
    ops.Sigmoid: "Sigmoid",
    ops.Sin: "Sin",
    ops.Sinh: "Sinh",
    ops.Sqrt: "Sqrt",
    ops.StopGradient: "Identity",
    ops.Subtract: "Sub",
    ops.Tan: "Tan",
    ops.Tanh: "Tanh",
}
"""Ops that are an operator of ONNX."""


def _as(operator: str) -> Callable[..., str]:
    def write(w: Writer, op: Op, *inputs: str) -> str:
        name: str = w.add(operator, *inputs)
        return name

    return write


for _class, _operator in _SAME.items():
    writes(_class)(_as(_operator))


@writes(ops.Cast)
def cast(w: Writer, op: ops.Cast, x: str) -> str:
    return str(w.add("Cast", x, to=NUMBERS[op.dtype]))


writes(ops.Relu)(in_i32(_as("Relu")))
writes(ops.Negative)(in_i32(_as("Neg")))


@writes(ops.Square)
def square(w: Writer, op: Op, x: str) -> str:
    return str(w.add("Mul", x, x))


@writes(ops.Rsqrt)
@in_f32
def rsqrt(w: Writer, op: Op, x: str) -> str:
    return str(w.add("Reciprocal", w.add("Sqrt", x)))


@writes(ops.NotEqual)
def not_equal(w: Writer, op: Op, a: str, b: str) -> str:
    return str(w.add("Not", w.add("Equal", a, b)))


@writes(ops.Erfc)
@in_f32
def erfc(w: Writer, op: Op, x: str) -> str:
    return str(w.add("Sub", w.number(1, w.dtype()), w.add("Erf", x)))


@writes(ops.Exp2)
@in_f32
def exp2(w: Writer, op: Op, x: str) -> str:
    return str(w.add("Pow", w.number(2, w.dtype()), x))


@writes(ops.Log2)
@in_f32
def log2(w: Writer, op: Op, x: str) -> str:
    return str(w.add("Mul", w.add("Log", x), w.number(1 / math.log(2), w.dtype())))


@writes(ops.Log10)
@in_f32
def log10(w: Writer, op: Op, x: str) -> str:
    return str(w.add("Mul", w.add("Log", x), w.number(1 / math.log(10), w.dtype())))


def _near_zero(w: Writer, x: str, near: str, far: str) -> str:
    """`near` where |x| < 1/2: it is accurate there, `far` elsewhere."""
    small = w.add("Less", w.add("Abs", x), w.number(0.5, w.dtype()))
    return str(w.add("Where", small, near, far))


@writes(ops.Log1p)
@in_f32
def log1p(w: Writer, op: Op, x: str) -> str:
    """2 atanh(x / (2 + x)), or log(1 + x)."""
    one, two = w.number(1, w.dtype()), w.number(2, w.dtype())
    inner = w.add("Atanh", w.add("Div", x, w.add("Add", x, two)))
    return _near_zero(w, x, w.add("Mul", inner, two), w.add("Log", w.add("Add", x, one)))


@writes(ops.Expm1)
@in_f32
def expm1(w: Writer, op: Op, x: str) -> str:
    """2 t / (1 - t) with t = tanh(x / 2), or e^x - 1."""
    one, two = w.number(1, w.dtype()), w.number(2, w.dtype())
    t = w.add("Tanh", w.add("Div", x, two))
    near = w.add("Div", w.add("Mul", t, two), w.add("Sub", one, t))
    return _near_zero(w, x, near, w.add("Sub", w.add("Exp", x), one))


@writes(ops.Hypot)
@in_f32
def hypot(w: Writer, op: Op, a: str, b: str) -> str:
    return str(w.add("Sqrt", w.add("Add", w.add("Mul", a, a), w.add("Mul", b, b))))


@writes(ops.Trunc)
def trunc(w: Writer, op: Op, x: str) -> str:
    below = w.add("Less", x, w.number(0, w.dtype()))
    return str(w.add("Where", below, w.add("Ceil", x), w.add("Floor", x)))


@writes(ops.Signbit)
def signbit(w: Writer, op: Op, x: str) -> str:
    """-0 is below 0 where it divides 1."""
    zero, one = w.number(0, w.dtype()), w.number(1, w.dtype())
    least = w.add("And", w.add("Equal", x, zero), w.add("Less", w.add("Div", one, x), zero))
    return str(w.add("Or", w.add("Less", x, zero), least))


@writes(ops.Copysign)
def copysign(w: Writer, op: Op, a: str, b: str) -> str:
    size = w.add("Abs", a)
    return str(w.add("Where", signbit(w, op, b), w.add("Neg", size), size))


def _divisor(w: Writer, b: str) -> str:
    """The integers b with 1 for 0 and -1, by which processors do not divide."""
    odd = w.add("Equal", b, w.number(0, w.dtype()))
    if w.dtype() != "u8":
        odd = w.add("Or", odd, w.add("Equal", b, w.number(-1, w.dtype())))
    return str(w.add("Where", odd, w.number(1, w.dtype()), b))


def _differ(w: Writer, rest: str, b: str) -> str:
    """Where a rest is not 0 and its sign not that of b."""
    zero = w.number(0, w.dtype())
    other = w.add("Xor", w.add("Less", rest, zero), w.add("Less", b, zero))
    return str(w.add("And", other, w.add("Not", w.add("Equal", rest, zero))))


@writes(ops.Fmod)
def fmod(w: Writer, op: Op, a: str, b: str) -> str:
    """0 for integers where b is 0; what 1 leaves is what -1 leaves."""
    return str(w.add("Mod", a, b if w.dtype() in FLOATS else _divisor(w, b), fmod=1))


@writes(ops.Remainder)
@in_f32
def remainder(w: Writer, op: Op, a: str, b: str) -> str:
    """With the sign of b, which ONNX has for integers alone."""
    if w.dtype() not in FLOATS:
        return str(w.add("Mod", a, _divisor(w, b)))
    rest, zero = w.add("Mod", a, b, fmod=1), w.number(0, w.dtype())
    signed = w.add("Where", w.add("Less", b, zero), w.number(-0.0, w.dtype()), zero)
    rest = w.add("Where", w.add("Equal", rest, zero), signed, rest)
    return str(w.add("Where", _differ(w, rest, b), w.add("Add", rest, b), rest))


@writes(ops.FloorDivide)
@in_f32
def floor_divide(w: Writer, op: Op, a: str, b: str) -> str:
    """Of the quotient without the rest, so that it is exact."""
    zero, one = w.number(0, w.dtype()), w.number(1, w.dtype())
    if w.dtype() in FLOATS:
        rest, ratio = w.add("Mod", a, b, fmod=1), w.add("Div", a, b)
        whole = w.add("Div", w.add("Sub", a, rest), b)
        whole = w.add("Where", _differ(w, rest, b), w.add("Sub", whole, one), whole)
        whole = w.add("Round", whole)
        whole = w.add("Where", w.add("Equal", whole, zero), w.add("Mul", ratio, zero), whole)
        return str(w.add("Where", w.add("Equal", b, zero), ratio, whole))
    divisor = _divisor(w, b)
    cut = w.add("Div", a, divisor)
    rest = w.add("Sub", a, w.add("Mul", cut, divisor))
    whole = w.add("Where", _differ(w, rest, divisor), w.add("Sub", cut, one), cut)
    whole = w.add("Where", w.add("Equal", b, zero), zero, whole)
    if w.dtype() == "u8":
        return str(whole)
    minus = w.add("Equal", b, w.number(-1, w.dtype()))
    return str(w.add("Where", minus, w.add("Sub", zero, a), whole))


@writes(ops.ReluGrad)
def relu_grad(w: Writer, op: Op, d: str, y: str) -> str:
    zero = w.number(0, w.dtype())
    return str(w.add("Where", w.add("LessOrEqual", y, zero), zero, d))
