"""Pointwise ops of numbers: arithmetic, elementary and special functions, rounding."""

from __future__ import annotations

from graphc import ops
from graphc.ops import Op
from tests.ops.sample import Range, Sample, of, one, two

POSITIVE = (0.3, 3.0)
NUMBERS = ("f32", "i32", "i64", "u8", "i8", "f64")
INTEGERS = ("i32", "u8", "i64", "i8")

ONE: dict[Op, Range] = {
    ops.Negative(): (-2, 2),
    ops.Abs(): (-2, 2),
    ops.Square(): (-2, 2),
    ops.Floor(): (-9, 9),
    ops.Ceil(): (-9, 9),
    ops.Round(): (-9, 9),
    ops.Trunc(): (-9, 9),
    ops.StopGradient(): (-2, 2),
    ops.Exp(): (-2, 2),
    ops.Exp2(): (-5, 5),
    ops.Expm1(): (-2, 2),
    ops.Log(): POSITIVE,
    ops.Log2(): POSITIVE,
    ops.Log10(): POSITIVE,
    ops.Log1p(): (-0.7, 2),
    ops.Sqrt(): POSITIVE,
    ops.Rsqrt(): POSITIVE,
    ops.Tanh(): (-2, 2),
    ops.Sigmoid(): (-5, 5),
    ops.Relu(): (-2, 2),
    ops.Sin(): (-9, 9),
    ops.Cos(): (-9, 9),
    ops.Tan(): (-1.4, 1.4),
    ops.Asin(): (-0.9, 0.9),
    ops.Acos(): (-0.9, 0.9),
    ops.Atan(): (-9, 9),
    ops.Sinh(): (-4, 4),
    ops.Cosh(): (-4, 4),
    ops.Asinh(): (-9, 9),
    ops.Acosh(): (1.2, 9),
    ops.Atanh(): (-0.9, 0.9),
    ops.Erf(): (-2, 2),
    ops.Erfc(): (-3, 3),
    ops.Erfcx(): (-2, 9),
    ops.Erfinv(): (-0.95, 0.95),
    ops.Ndtri(): (0.02, 0.98),
    ops.Lgamma(): (0.3, 20),
    ops.Digamma(): (0.3, 20),
    ops.Polygamma(1): (0.3, 20),
    ops.Polygamma(2): (0.6, 9),
    ops.Polygamma(3): (0.9, 9),
    ops.I0e(): (-9, 20),
    ops.I1e(): (-9, 20),
    ops.Sinc(): (-5, 5),
}
"""Ops of one float, and from where it is drawn."""

WHOLE: tuple[tuple[Op, tuple[str, ...]], ...] = (
    (ops.Negative(), ("i32", "i64", "i8")),
    (ops.Abs(), ("i32", "i64", "i8")),
    (ops.Square(), ("i32", "i64", "i8", "u8")),
    (ops.Relu(), ("i32", "i64", "i8", "u8")),
    (ops.StopGradient(), ("i32", "i64", "u8")),
)
"""Ops of one number, which may be an integer."""

TWO: tuple[tuple[Op, Range, Range, tuple[str, ...]], ...] = (
    (ops.Add(), (-3, 3), (-3, 3), NUMBERS),
    (ops.Subtract(), (-3, 3), (-3, 3), NUMBERS),
    (ops.Multiply(), (-3, 3), (-3, 3), NUMBERS),
    (ops.Divide(), (-3, 3), POSITIVE, ("f32", "f64")),
    (ops.FloorDivide(), (-9, 9), POSITIVE, ("f32", "f64")),
    (ops.FloorDivide(), (-9, 9), (-2, 2), INTEGERS),
    (ops.Remainder(), (-9, 9), POSITIVE, ("f32", "f64")),
    (ops.Remainder(), (-9, 9), (-2, 2), INTEGERS),
    (ops.Fmod(), (-9, 9), POSITIVE, ("f32", "f64")),
    (ops.Fmod(), (-9, 9), (-2, 2), INTEGERS),
    (ops.Pow(), POSITIVE, (-2, 2), ("f32", "f64")),
    (ops.Maximum(), (-3, 3), (-3, 3), NUMBERS),
    (ops.Minimum(), (-3, 3), (-3, 3), NUMBERS),
    (ops.ReluGrad(), (-3, 3), (-3, 3), ("f32", "f64")),
    (ops.Atan2(), (-3, 3), POSITIVE, ("f32", "f64")),
    (ops.Hypot(), (-3, 3), POSITIVE, ("f32", "f64")),
    (ops.Copysign(), (-3, 3), (-3, 3), ("f32", "f64")),
    (ops.Nextafter(), (-3, 3), (-3, 3), ("f32", "f64")),
    (ops.Gcd(), (-99, 99), (-20, 20), INTEGERS),
    (ops.BitwiseAnd(), (-99, 99), (-99, 99), INTEGERS),
    (ops.BitwiseOr(), (-99, 99), (-99, 99), INTEGERS),
    (ops.BitwiseXor(), (-99, 99), (-99, 99), INTEGERS),
    (ops.LeftShift(), (-99, 99), (-3, 40), INTEGERS),
    (ops.RightShift(), (-99, 99), (-3, 40), INTEGERS),
)
"""Ops of two numbers, from where each is drawn, and their dtypes."""

FUSED = ops.FusedMultiplyAdd(), ops.FusedMultiplySubtract(), ops.FusedNegateMultiplyAdd()

POINTWISE = (
    *(s for op, limits in ONE.items() for s in one(op, *limits)),
    *(s for op, (low, high) in ONE.items() for s in one(op, low, high, "f64")[3:8:2]),
    *(s for op, dtypes in WHOLE for d in dtypes for s in one(op, -9, 9, d)[:4:3]),
    *(s for op, a, b, dtypes in TWO for s in two(op, a, b, dtypes=dtypes)),
    *(s for d in INTEGERS for s in one(ops.BitwiseNot(), -99, 99, d)[::4]),
    *one(ops.Signbit()),
    *one(ops.Isnan()),
    *(
        Sample(op, (of(d, 3, 7), of(d, 7), of(d, 3, 1)), ((-3, 3),) * 3)
        for op in (
            ops.FusedMultiplyAdd(),
            ops.FusedMultiplySubtract(),
            ops.FusedNegateMultiplyAdd(),
        )
        for d in ("f32", "f64")
    ),
    Sample(ops.Gcd(), (of("i32", 3, 7), of("i32", 7)), ((0, 0), (-9, 9))),
)
