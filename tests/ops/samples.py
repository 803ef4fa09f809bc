"""Every op on a few inputs: what the tests of the ops and of every backend walk.

Adding an op means adding a line here. The shapes include extents of 1, odd extents, broadcasting
and empty values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphc.ir import FLOATS, Type
from graphc.ops import (
    Abs,
    Add,
    AvgPool2d,
    AvgPool2dGrad,
    BroadcastTo,
    Cast,
    Concat,
    Constant,
    Conv2d,
    Conv2dDgrad,
    Conv2dWgrad,
    Cos,
    Divide,
    Equal,
    Erf,
    Exp,
    Expm1,
    Flip,
    Floor,
    FloorDivide,
    Greater,
    GreaterEqual,
    Iota,
    Isnan,
    Less,
    LessEqual,
    Log,
    Log1p,
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
    Op,
    Pad,
    PermuteDims,
    PhiloxUniform,
    Pow,
    Relu,
    ReluGrad,
    Remainder,
    Reshape,
    Rsqrt,
    Select,
    Sigmoid,
    Sin,
    Slice,
    Sqrt,
    Square,
    StopGradient,
    Subtract,
    Sum,
    Take,
    TakeGrad,
    Tanh,
)

Range = tuple[float, float]


@dataclass(frozen=True)
class Sample:
    """An op, the types of its inputs, and from where their elements are drawn.

    `ranges` holds (low, high) per input, or one for all: floats are uniform in it, integers are
    drawn from low to high inclusive, booleans are either.
    """

    op: Op
    inputs: tuple[Type, ...]
    ranges: tuple[Range, ...] = ((-2.0, 2.0),)

    def __str__(self) -> str:
        return f"{self.op.name}({', '.join(map(str, self.inputs))})"

    @property
    def differentiable(self) -> bool:
        """Whether the op has a gradient rule that gives something for these inputs."""
        has_rule = type(self.op).grad is not Op.grad
        return has_rule and any(t.dtype in FLOATS for t in self.inputs)

    def arrays(self, seed: int = 0) -> tuple[np.ndarray, ...]:
        """Row-major elements for the inputs, the same ones for the same seed."""
        random = np.random.default_rng(seed)
        ranges = self.ranges * len(self.inputs) if len(self.ranges) == 1 else self.ranges
        return tuple(_draw(random, t, r) for t, r in zip(self.inputs, ranges, strict=False))

    def with_floats(self, dtype: str) -> Sample:
        """The same sample with every float of another width."""
        inputs = tuple(Type(t.shape, dtype) if t.dtype in FLOATS else t for t in self.inputs)
        op = self.op
        if getattr(op, "dtype", None) in FLOATS:
            op = replace(op, dtype=dtype)  # type: ignore[call-arg]
        return replace(self, op=op, inputs=inputs)


def _draw(random: np.random.Generator, kind: Type, limits: Range) -> np.ndarray:
    low, high = limits
    if kind.dtype == "bool":
        return random.integers(0, 2, kind.shape).astype(np.bool_)
    if kind.dtype in FLOATS:
        return np.asarray(random.uniform(low, high, kind.shape)).astype(kind.numpy_dtype)
    low = max(low, 0) if kind.dtype == "u8" else low
    return random.integers(int(low), int(high), kind.shape, endpoint=True).astype(kind.numpy_dtype)


def f32(*shape: int) -> Type:
    return Type(shape, "f32")


def of(dtype: str, *shape: int) -> Type:
    return Type(shape, dtype)


def _one(op: Op, low: float = -2.0, high: float = 2.0) -> list[Sample]:
    """A pointwise op of one float: a matrix, a scalar, an empty value, a long odd vector."""
    shapes = ((3, 5), (), (0, 4), (1, 131))
    return [Sample(op, (f32(*s),), ((low, high),)) for s in shapes]


def _two(op: Op, *ranges: Range, dtypes: tuple[str, ...] = ("f32",)) -> list[Sample]:
    """A pointwise op of two inputs: equal shapes, broadcasting both ways, a scalar, nothing."""
    shapes = (((3, 5), (3, 5)), ((4, 1, 7), (3, 1)), ((), (2, 33)), ((0, 3), (1, 3)))
    return [
        Sample(op, (Type(a, d), Type(b, d)), ranges or ((-3.0, 3.0),))
        for d in dtypes
        for a, b in shapes
    ]


POSITIVE = (0.3, 3.0)
EVERY = ("f32", "i32", "u8")

POINTWISE = [
    *_two(Add(), dtypes=("f32", "i32", "i64")),
    *_two(Subtract()),
    *_two(Multiply(), dtypes=("f32", "i32")),
    *_two(Divide(), (-3.0, 3.0), POSITIVE),
    *_two(FloorDivide(), (-9.0, 9.0), POSITIVE),
    *_two(FloorDivide(), (-9.0, 9.0), (-2.0, 2.0), dtypes=("i32",)),
    *_two(Remainder(), (-9.0, 9.0), POSITIVE),
    *_two(Remainder(), (-9.0, 9.0), (-2.0, 2.0), dtypes=("i32",)),
    *_two(Pow(), POSITIVE, (-2.0, 2.0)),
    *_two(Maximum(), dtypes=("f32", "i32")),
    *_two(Minimum()),
    *_two(ReluGrad()),
    *_one(Negative()),
    Sample(Negative(), (of("i32", 7),)),
    *_one(Abs()),
    Sample(Abs(), (of("i32", 7),)),
    *_one(Square()),
    *_one(Floor()),
    *_one(StopGradient()),
    *_one(Exp()),
    *_one(Expm1()),
    *_one(Log(), *POSITIVE),
    *_one(Log1p(), -0.7, 2.0),
    *_one(Sqrt(), *POSITIVE),
    *_one(Rsqrt(), *POSITIVE),
    *_one(Tanh()),
    *_one(Sigmoid(), -5.0, 5.0),
    *_one(Relu()),
    *_one(Erf()),
    *_one(Sin(), -9.0, 9.0),
    *_one(Cos(), -9.0, 9.0),
    *_one(Isnan()),
    *_two(Less(), dtypes=EVERY),
    *_two(LessEqual(), dtypes=EVERY),
    *_two(Greater(), dtypes=EVERY),
    *_two(GreaterEqual(), dtypes=EVERY),
    *_two(Equal(), dtypes=EVERY),
    *_two(NotEqual(), dtypes=EVERY),
    *_two(LogicalAnd(), dtypes=("bool",)),
    *_two(LogicalOr(), dtypes=("bool",)),
    *_two(LogicalXor(), dtypes=("bool",)),
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
    for op in (Sum, Max, Min)
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


SAMPLES: tuple[Sample, ...] = (
    *POINTWISE,
    *SOURCES,
    *REDUCTIONS,
    *VIEWS,
    *MATMULS,
    *_convolutions(),
    *_poolings(),
    *_taking(),
)
