"""Running results, orders and searches on a few inputs."""

from __future__ import annotations

from graphc.ir import Type
from graphc.ops import Cummax, Cummin, Cumprod, Cumsum, Logcumsumexp, Scatter, Searchsorted, Sort
from tests.ops.sample import Sample, f32, of

TIES = (-3.0, 3.0)
"""Integers drawn from here are equal to one another often."""


def _running() -> list[Sample]:
    shapes = (
        ((7,), 0),
        ((1,), 0),
        ((131,), 0),
        ((3, 16), 1),
        ((2, 33), 1),
        ((0, 4), 1),
        ((4, 0), 1),
        ((5, 70), 0),
        ((33, 2), 0),
        ((2, 5, 19), 1),
        ((4, 3, 1), 1),
        ((3, 1, 5), 1),
        ((2, 3, 4, 5), 0),
        ((2, 2000), 1),
        ((3000, 3), 0),
    )
    samples = []
    for number, (shape, axis) in enumerate(shapes):
        reverse = number % 2 == 1
        samples += [Sample(Cumsum(axis, r), (f32(*shape),)) for r in (False, True)]
        samples.append(Sample(Cummax(axis, reverse), (f32(*shape),)))
        if number % 3 == 0:
            samples.append(Sample(Cummin(axis, reverse), (f32(*shape),)))
        if number % 3 != 2:
            samples.append(Sample(Logcumsumexp(axis, reverse), (f32(*shape),)))
            samples.append(Sample(Cumprod(axis, reverse), (f32(*shape),), ((0.97, 1.02),)))
    for number, dtype in enumerate(("u8", "i8", "i32", "i64")):
        for op in (Cumsum, Cumprod, Cummax, Cummin):
            shape, axis = (((3, 37), 1), ((19, 5), 0))[number % 2]
            samples.append(Sample(op(axis), (of(dtype, *shape),), (TIES,)))
    for op in (Cumsum, Cumprod, Cummax, Logcumsumexp):
        samples.append(Sample(op(1), (Type((3, 37), "f64"),), ((0.5, 1.3),)))
    samples.append(Sample(Cumsum(0), (Type((19, 5), "f64"),)))
    return samples


def _sorting() -> list[Sample]:
    shapes = (
        ((7,), 0, 7),
        ((1,), 0, 1),
        ((5,), 0, 0),
        ((131,), 0, 131),
        ((3, 16), 1, 16),
        ((35, 6), 1, 2),
        ((0, 4), 1, 3),
        ((4, 0), 1, 0),
        ((5, 70), 0, 5),
        ((33, 2), 0, 30),
        ((2, 5, 19), 1, 5),
        ((19, 3, 1), 1, 3),
        ((17, 130), 1, 100),
        ((2, 270), 1, 270),
        ((2, 2500), 1, 9),
        ((2100, 3), 0, 1),
        ((2, 4100), 1, 700),
    )
    samples = []
    for number, (shape, axis, count) in enumerate(shapes):
        samples.append(Sample(Sort(axis, count, number % 2 == 1), (f32(*shape),)))
        samples.append(Sample(Sort(axis, count, number % 3 == 0), (of("i32", *shape),), (TIES,)))
    samples += [
        Sample(Sort(0, count, count == 9), (of("i32", 300, 67),), ((-9.0, 9.0),))
        for count in (300, 9)
    ]
    for dtype in ("bool", "u8", "i8", "i64", "f64"):
        for number, (shape, axis, count) in enumerate(
            (((18, 13), 1, 13), ((3, 40), 1, 33), ((9, 20), 0, 9), ((2, 2500), 1, 3))
        ):
            samples.append(
                Sample(Sort(axis, count, number % 2 == 0), (of(dtype, *shape),), (TIES,))
            )
    return samples


def _scattering() -> list[Sample]:
    samples = []
    for number, (axis, shape, places) in enumerate(
        (
            (0, (7,), (5,)),
            (0, (3,), (70,)),
            (1, (3, 9), (3, 20)),
            (1, (3, 40), (3, 6)),
            (0, (5, 70), (8, 70)),
            (1, (2, 6, 35), (2, 9, 35)),
            (2, (2, 3, 5), (2, 3, 40)),
            (0, (4, 3), (0, 3)),
            (0, (0, 3), (4, 3)),
            (1, (0, 3), (0, 4)),
        )
    ):
        limits = ((-2.0, 2.0), (-1.0, float(shape[axis])), (-2.0, 2.0))
        for combine in ("sum", "replace", *(("prod", "max", "min") if number < 6 else ())):
            ties = combine in ("max", "min")
            for dtype in ("f32", "i32") if number % 2 == 0 or ties else ("f32",):
                index = of(("i32", "i64")[number % 2], *places)
                inputs = (Type(shape, dtype), index, Type(places, dtype))
                samples.append(Sample(Scatter(axis, combine), inputs, limits))
    for dtype in ("bool", "u8", "i8", "i64", "f64"):
        inputs = (of(dtype, 3, 9), of("i32", 3, 7), of(dtype, 3, 7))
        limits = ((-2.0, 2.0), (0.0, 8.0), (-2.0, 2.0))
        samples.append(Sample(Scatter(1, "replace"), inputs, limits))
    return samples


def _searching() -> list[Sample]:
    """Unsorted rows are searched too: where is a matter of the halves that are chosen."""
    samples = []
    for table, values, dtype in (
        ((9,), (5,), "f32"),
        ((1,), (33,), "f32"),
        ((0,), (4,), "f32"),
        ((3, 20), (3, 18), "i32"),
        ((2, 3, 7), (2, 3, 2), "f64"),
        ((2, 40), (2, 0), "i64"),
        ((5,), (3,), "u8"),
        ((5,), (3,), "i8"),
    ):
        inputs = (of(dtype, *table), of(dtype, *values))
        samples += [Sample(Searchsorted(r), inputs, (TIES,)) for r in (False, True)]
    return samples


ORDERS: tuple[Sample, ...] = (*_running(), *_sorting(), *_scattering(), *_searching())
