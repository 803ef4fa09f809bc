"""Ops that read places named by data."""

from __future__ import annotations

from graphc import ops
from graphc.ir import Type
from tests.ops.sample import Sample, f32, of

TABLES = (
    # axis, table, indices
    (0, (5, 3), (4,)),
    (1, (3, 5, 2), (2, 3)),
    (0, (7,), ()),
    (1, (2, 4), (1, 33)),
    (0, (3, 2), (0,)),
    (0, (17, 16), (5,)),
    (0, (1, 33), (3,)),
    (2, (2, 3, 4), (2,)),
    (1, (2, 3, 2, 3), (5, 1)),
    (0, (100,), (131,)),
    (0, (4, 0), (2,)),
)
ALONG = (
    (0, (5, 3), (4, 3), "i64"),
    (1, (3, 5, 2), (3, 7, 2), "i32"),
    (1, (2, 33), (2, 35), "i64"),
    (0, (7,), (1,), "i32"),
    (1, (3, 2), (3, 0), "i64"),
    (0, (1,), (17,), "i32"),
    (2, (2, 3, 4), (2, 3, 16), "i32"),
    (0, (4, 1, 3), (2, 1, 3), "i64"),
    (3, (2, 1, 3, 5), (2, 1, 3, 2), "i32"),
)


def _taking() -> list[Sample]:
    samples = []
    for axis, table, indices in TABLES:
        for dtype in ("i32", "i64"):
            places = of(dtype, *indices)
            (y,) = ops.Take(axis).infer(f32(*table), places)
            limits = (-1, table[axis])
            samples += [
                Sample(ops.Take(axis), (f32(*table), places), ((-2, 2), limits)),
                Sample(ops.TakeGrad(axis, table[axis]), (places, y), (limits, (-2, 2))),
            ]
    for i, (axis, table, indices) in enumerate(TABLES):
        dtype = ("i64", "u8", "bool", "f64")[i % 4]
        limits = (-1, table[axis])
        kinds = (Type(table, dtype), of("i64", *indices))
        samples.append(Sample(ops.Take(axis), kinds, ((0, 99), limits)))
    return samples


def _taking_along() -> list[Sample]:
    return [
        Sample(
            ops.TakeAlongAxis(axis),
            (Type(table, kind), of(dtype, *indices)),
            ((-2, 2), (-1.0, float(table[axis]))),
        )
        for axis, table, indices, dtype in ALONG
        for kind in ("f32", "i32")
    ]


PLACES = (*_taking(), *_taking_along())
