"""Comparisons, logic, selection and conversion."""

from __future__ import annotations

from graphc import ops
from graphc.ir import Type
from tests.ops.sample import PAIRS, Sample, f32, of, one, two

EVERY = ("f32", "i32", "u8", "i64", "f64")
DTYPES = ("bool", "u8", "i8", "i32", "i64", "f32", "f64")
COMPARISONS = (
    ops.Less(),
    ops.LessEqual(),
    ops.Greater(),
    ops.GreaterEqual(),
    ops.Equal(),
    ops.NotEqual(),
)


def _selections() -> list[Sample]:
    shapes = [((a, b, a), (b, a, a), (a, a, b))[i % 3] for i, (a, b) in enumerate(PAIRS)]
    samples = [
        Sample(ops.Select(), (of("bool", *s[0]), *(Type(t, d) for t in s[1:])))
        for i, s in enumerate(shapes)
        for d in (("f32", "i32") if i % 2 else ("f32", "i64", "u8"))
    ]
    masks = of("bool", 4, 3), of("bool", 3), of("bool", 4, 1)
    return [*samples, Sample(ops.Select(), masks)]


def _conversions() -> list[Sample]:
    return [
        Sample(ops.Cast(target), (of(source, *shape),), ((0.0, 9.0),))
        for i, source in enumerate(DTYPES)
        for j, target in enumerate(DTYPES)
        for shape in (((3, 7), (2, 0), (1, 33), ()) if (i + j) % 3 == 0 else ((5, 17),))
    ]


LOGIC = (
    *(s for op in COMPARISONS for s in two(op, dtypes=EVERY)),
    *(
        s
        for op in (ops.LogicalAnd(), ops.LogicalOr(), ops.LogicalXor())
        for s in two(op, dtypes=("bool",))
    ),
    *one(ops.LogicalNot(), dtype="bool"),
    *_selections(),
    *_conversions(),
    Sample(ops.Cast("i32"), (f32(3, 9),), ((-9.0, 9.0),)),
    Sample(ops.Cast("i8"), (of("i32", 3, 9),), ((-300.0, 300.0),)),
    Sample(ops.Cast("u8"), (of("i32", 3, 9),), ((-300.0, 300.0),)),
)
