"""Every op on a few inputs: what the tests of the ops and of every backend walk.

Adding an op means adding a line here. The shapes include extents of 1, odd extents, broadcasting
and empty values.
"""

from __future__ import annotations

import numpy as np

from graphc.ops import (
    Abs,
    Acos,
    Acosh,
    Add,
    Asin,
    Asinh,
    Atan,
    Atan2,
    Atanh,
    AvgPool2d,
    AvgPool2dGrad,
    BitwiseAnd,
    BitwiseNot,
    BitwiseOr,
    BitwiseXor,
    BroadcastTo,
    Cast,
    Ceil,
    Concat,
    Constant,
    Conv2d,
    Conv2dDgrad,
    Conv2dWgrad,
    Copysign,
    Cos,
    Cosh,
    Divide,
    Equal,
    Erf,
    Exp,
    Exp2,
    Expm1,
    Flip,
    Floor,
    FloorDivide,
    Fmod,
    Greater,
    GreaterEqual,
    Hypot,
    Iota,
    Isnan,
    LeftShift,
    Less,
    LessEqual,
    Log,
    Log1p,
    Log2,
    Log10,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    LogicalXor,
    Matmul,
    Max,
    Maximum,
    MaxPool2d,
    MaxPool2dGrad,
    Min,
    Minimum,
    Multiply,
    Negative,
    NotEqual,
    Pad,
    PermuteDims,
    PhiloxUniform,
    Pow,
    Prod,
    Relu,
    ReluGrad,
    Remainder,
    Reshape,
    RightShift,
    Round,
    Rsqrt,
    Select,
    Sigmoid,
    Signbit,
    Sin,
    Sinh,
    Slice,
    Sqrt,
    Square,
    StopGradient,
    Subtract,
    Sum,
    Take,
    TakeAlongAxis,
    TakeGrad,
    Tan,
    Tanh,
    Trunc,
)
from tests.ops.sample import Sample, f32, few, of, one, two
from tests.ops.samples_order import ORDERS

POSITIVE = (0.3, 3.0)
BITWISE = (BitwiseAnd(), BitwiseOr(), BitwiseXor())
SHIFTS = (LeftShift(), RightShift())
EVERY = ("f32", "i32", "u8")

POINTWISE = [
    *two(Add(), dtypes=("f32", "i32", "i64")),
    *two(Subtract()),
    *two(Multiply(), dtypes=("f32", "i32")),
    *two(Divide(), (-3.0, 3.0), POSITIVE),
    *two(FloorDivide(), (-9.0, 9.0), POSITIVE),
    *two(FloorDivide(), (-9.0, 9.0), (-2.0, 2.0), dtypes=("i32",)),
    *two(Remainder(), (-9.0, 9.0), POSITIVE),
    *two(Remainder(), (-9.0, 9.0), (-2.0, 2.0), dtypes=("i32",)),
    *two(Pow(), POSITIVE, (-2.0, 2.0)),
    *two(Maximum(), dtypes=("f32", "i32")),
    *two(Minimum()),
    *two(ReluGrad()),
    *one(Negative()),
    Sample(Negative(), (of("i32", 7),)),
    *one(Abs()),
    Sample(Abs(), (of("i32", 7),)),
    *one(Square()),
    *one(Floor()),
    *one(StopGradient()),
    *one(Exp()),
    *one(Expm1()),
    *one(Log(), *POSITIVE),
    *one(Log1p(), -0.7, 2.0),
    *one(Sqrt(), *POSITIVE),
    *one(Rsqrt(), *POSITIVE),
    *one(Tanh()),
    *one(Sigmoid(), -5.0, 5.0),
    *one(Relu()),
    *one(Erf()),
    *one(Sin(), -9.0, 9.0),
    *one(Cos(), -9.0, 9.0),
    *few(Tan(), -1.4, 1.4),
    *few(Asin(), -0.9, 0.9),
    *few(Acos(), -0.9, 0.9),
    *few(Atan(), -9.0, 9.0),
    *few(Sinh(), -4.0, 4.0),
    *few(Cosh(), -4.0, 4.0),
    *few(Asinh(), -9.0, 9.0),
    *few(Acosh(), 1.2, 9.0),
    *few(Atanh(), -0.9, 0.9),
    *few(Exp2(), -5.0, 5.0),
    *few(Log2(), *POSITIVE),
    *few(Log10(), *POSITIVE),
    *few(Ceil(), -9.0, 9.0),
    *few(Round(), -9.0, 9.0),
    *few(Trunc(), -9.0, 9.0),
    *few(Signbit()),
    *two(Atan2(), (-3.0, 3.0), POSITIVE)[:2],
    *two(Hypot(), (-3.0, 3.0), POSITIVE)[:2],
    *two(Copysign())[:2],
    *two(Fmod(), (-9.0, 9.0), POSITIVE)[:2],
    *two(Fmod(), (-9.0, 9.0), (-2.0, 2.0), dtypes=("i32", "u8"))[1::4],
    *(s for op in BITWISE for s in two(op, (-99.0, 99.0), dtypes=("i32", "u8", "i64"))[1::4]),
    *(s for op in SHIFTS for s in two(op, (-99, 99), (-3, 40), dtypes=("i32", "i8"))[1::4]),
    Sample(BitwiseNot(), (of("u8", 9),), ((0.0, 255.0),)),
    Sample(BitwiseNot(), (of("i64", 3, 5),)),
    *one(Isnan()),
    *two(Less(), dtypes=EVERY),
    *two(LessEqual(), dtypes=EVERY),
    *two(Greater(), dtypes=EVERY),
    *two(GreaterEqual(), dtypes=EVERY),
    *two(Equal(), dtypes=EVERY),
    *two(NotEqual(), dtypes=EVERY),
    *two(LogicalAnd(), dtypes=("bool",)),
    *two(LogicalOr(), dtypes=("bool",)),
    *two(LogicalXor(), dtypes=("bool",)),
    Sample(LogicalNot(), (of("bool", 3, 9),)),
    Sample(Select(), (of("bool", 3, 5), f32(3, 5), f32(3, 5))),
    Sample(Select(), (of("bool", 4, 1), f32(), f32(1, 35))),
    Sample(Select(), (of("bool", 4, 3), of("i32", 3), of("i32", 4, 1))),
    *(Sample(Cast(d), (f32(3, 7),), ((0.0, 9.0),)) for d in ("bool", "u8", "i32", "i64", "f64")),
    *(Sample(Cast("f32"), (of(d, 5, 7),), ((0.0, 9.0),)) for d in ("bool", "u8", "i32", "i64")),
    Sample(Cast("i64"), (of("i32", 5),)),
    Sample(Cast("i32"), (of("bool", 5),)),
]

SOURCES = [
    Sample(Constant.of(np.float32(0.5)), ()),
    Sample(Constant.of(np.arange(6, dtype=np.int32).reshape(2, 3)), ()),
    Sample(Constant.of(np.linspace(-1, 1, 21, dtype=np.float32)), ()),
    Sample(Constant.of(np.array([True, False])), ()),
    Sample(Iota((5,), 0), ()),
    Sample(Iota((3, 7), 1, "i64"), ()),
    Sample(Iota((3, 7), 0, "f32"), ()),
    Sample(PhiloxUniform(7, 3, (5, 9)), (of("i32"),), ((0, 99),)),
    Sample(PhiloxUniform(2**40 + 5, 0, (0, 9)), (of("i32"),), ((0, 99),)),
]

REDUCTIONS = [
    Sample(op(axes, keepdims), (f32(*shape),))
    for op in (Sum, Prod, Max, Min)
    for axes, keepdims, shape in (
        ((0,), False, (5, 7)),
        ((1,), True, (5, 37)),
        ((0, 1), False, (3, 4)),
        ((0, 2, 3), False, (2, 3, 4, 5)),
        ((1,), False, (2, 1, 3)),
        ((), False, (2, 3)),
        ((1,), True, (0, 3)),
        ((0,), False, (1,)),
    )
] + [
    Sample(Sum((0,), False), (f32(0, 3),)),
    Sample(Sum((1,), False), (of("i64", 3, 5),)),
    Sample(Prod((0,), True), (f32(0, 3),)),
    Sample(Prod((1,), False), (of("i64", 3, 5),)),
    Sample(Sum((0, 1), False), (f32(70, 90),)),
    Sample(Max((0,), True), (of("i32", 4, 5),)),
]

VIEWS = [
    Sample(Reshape((2, 1, 15)), (f32(6, 5),)),
    Sample(Reshape((1, 3, 1, 4)), (f32(3, 1, 4),)),
    Sample(Reshape(()), (f32(1, 1),)),
    Sample(Reshape((0, 5)), (f32(0, 2),)),
    Sample(PermuteDims((2, 0, 1)), (f32(2, 3, 5),)),
    Sample(PermuteDims((1, 0)), (f32(17, 19),)),
    Sample(PermuteDims(()), (f32(),)),
    Sample(BroadcastTo((2, 3, 5)), (f32(3, 1),)),
    Sample(BroadcastTo((4, 7)), (f32(),)),
    Sample(BroadcastTo((0, 3)), (f32(1, 3),)),
    Sample(Slice((1, 0), (4, 9), (2, 3)), (f32(5, 9),)),
    Sample(Slice((1,), (1,), (1,)), (f32(3),)),
    Sample(Slice((0, 1, 2), (2, 2, 3), (1, 1, 1)), (f32(2, 3, 4),)),
    Sample(Flip((1,)), (f32(3, 5),)),
    Sample(Flip((0, 2)), (f32(3, 1, 4),)),
    Sample(Pad((1, 0), (2, 3), (0, 2)), (f32(3, 4),)),
    Sample(Pad((1,), (0,), (1,), 2.5), (f32(1),)),
    Sample(Pad((2, 0), (1, 0), (1, 0)), (f32(0, 3),)),
    Sample(Concat(1), (f32(2, 3), f32(2, 1), f32(2, 5))),
    Sample(Concat(0), (f32(0, 3), f32(2, 3))),
    Sample(Concat(0), (f32(4),)),
]

MATMULS = [
    Sample(Matmul(), (f32(*a), f32(*b)))
    for a, b in (
        ((3, 4), (4, 5)),
        ((1, 1), (1, 1)),
        ((7, 33), (33, 19)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((3, 0), (0, 2)),
        ((0, 3), (3, 2)),
    )
]

POINT = (1, 1)
CONVOLUTIONS = [
    # x, weight, stride, padding, dilation, groups
    ((2, 3, 6, 5), (4, 3, 3, 2), POINT, (0, 0), POINT, 1),
    ((1, 1, 1, 1), (1, 1, 1, 1), POINT, (0, 0), POINT, 1),
    ((2, 2, 7, 6), (3, 2, 3, 3), (2, 3), (1, 2), POINT, 1),
    ((2, 4, 7, 7), (6, 2, 3, 3), POINT, (1, 1), (2, 1), 2),
    ((1, 3, 5, 9), (3, 1, 2, 3), (2, 2), (0, 1), (1, 3), 3),
    ((2, 3, 4, 4), (5, 3, 1, 1), (2, 2), (0, 0), POINT, 1),
    ((17, 2, 5, 5), (3, 2, 5, 5), POINT, (2, 2), POINT, 1),
    ((0, 2, 4, 4), (3, 2, 3, 3), POINT, (1, 1), POINT, 1),
]


def _convolutions() -> list[Sample]:
    samples = []
    for x, weight, *settings in CONVOLUTIONS:
        (y,) = Conv2d(*settings).infer(f32(*x), f32(*weight))
        samples += [
            Sample(Conv2d(*settings), (f32(*x), f32(*weight))),
            Sample(Conv2dDgrad(*settings, x[2:]), (y, f32(*weight))),
            Sample(Conv2dWgrad(*settings, weight[2:]), (f32(*x), y)),
        ]
    return samples


POOLINGS = [
    # x, kernel size, stride, padding
    ((2, 3, 6, 4), (2, 2), (2, 2), (0, 0)),
    ((1, 1, 1, 1), (1, 1), (1, 1), (0, 0)),
    ((2, 2, 7, 5), (3, 2), (2, 1), (1, 1)),
    ((1, 2, 5, 5), (3, 3), (1, 1), (1, 1)),
    ((1, 2, 8, 9), (2, 3), (3, 4), (0, 0)),
    ((17, 1, 4, 4), (2, 2), (2, 2), (0, 0)),
    ((0, 2, 4, 4), (2, 2), (2, 2), (0, 0)),
]


def _poolings() -> list[Sample]:
    samples = []
    for x, *window in POOLINGS:
        y, index = MaxPool2d(*window).infer(f32(*x))
        r, s = window[0]
        samples += [
            Sample(MaxPool2d(*window), (f32(*x),)),
            Sample(MaxPool2dGrad(*window, x[2:]), (y, index), ((-2, 2), (0, r * s - 1))),
        ]
        for padded in (True, False):
            samples += [
                Sample(AvgPool2d(*window, padded), (f32(*x),)),
                Sample(AvgPool2dGrad(*window, padded, x[2:]), (y,)),
            ]
    return samples


def _taking() -> list[Sample]:
    samples = []
    for axis, table, indices in (
        (0, (5, 3), (4,)),
        (1, (3, 5, 2), (2, 3)),
        (0, (7,), ()),
        (1, (2, 4), (1, 33)),
        (0, (3, 2), (0,)),
    ):
        for dtype in ("i32", "i64"):
            places = of(dtype, *indices)
            (y,) = Take(axis).infer(f32(*table), places)
            limits = (-1, table[axis])
            samples += [
                Sample(Take(axis), (f32(*table), places), ((-2, 2), limits)),
                Sample(TakeGrad(axis, table[axis]), (places, y), (limits, (-2, 2))),
            ]
    return samples


def _taking_along() -> list[Sample]:
    return [
        Sample(TakeAlongAxis(axis), (f32(*table), of(dtype, *indices)), ((-2, 2), limits))
        for axis, table, indices, dtype in (
            (0, (5, 3), (4, 3), "i64"),
            (1, (3, 5, 2), (3, 7, 2), "i32"),
            (1, (2, 33), (2, 35), "i64"),
            (0, (7,), (1,), "i32"),
            (1, (3, 2), (3, 0), "i64"),
        )
        for limits in ((-1.0, float(table[axis])),)
    ]


SAMPLES: tuple[Sample, ...] = (
    *POINTWISE,
    *SOURCES,
    *REDUCTIONS,
    *VIEWS,
    *MATMULS,
    *_convolutions(),
    *_poolings(),
    *_taking(),
    *_taking_along(),
    *ORDERS,
)
