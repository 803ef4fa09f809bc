"""Ops along axes: reductions, views, padding and joining; and values without inputs."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from graphc import ops
from graphc.ir import Type
from tests.ops.sample import Sample, f32, of

SHAPES = ((7,), (5, 7), (1, 33), (17, 1), (2, 3, 5), (3, 1, 16), (2, 3, 4, 5), (2, 1, 3, 2, 3))
"""One to five axes, with extents of 1 and about a vector among them."""


def _reductions() -> list[Sample]:
    """Each op over each set of axes of some shape, with and without the axes kept in turn."""
    samples = []
    for number, op in enumerate((ops.Sum, ops.Prod, ops.Max, ops.Min)):
        for shape in SHAPES:
            ranks = range(len(shape) + 1)
            sets = [axes for n in ranks for axes in combinations(range(len(shape)), n)]
            for i, axes in enumerate(sets):
                if len(shape) < 4 or i % 4 == number:
                    samples.append(Sample(op(axes, bool((i + number) % 2)), (f32(*shape),)))
        for dtype in ("i32", "i64", "u8", "i8", "f64"):
            for shape, axes in (((4, 5), (0,)), ((3, 35), (1,)), ((2, 3, 4), (0, 2))):
                samples.append(Sample(op(axes, dtype == "i32"), (of(dtype, *shape),)))
        samples.append(Sample(op((1,), True), (f32(0, 3),)))
        samples.append(Sample(op((0, 1), False), (f32(70, 90),), ((0.97, 1.02),)))
        samples.append(Sample(op((), False), (f32(),)))
    for op in (ops.Sum, ops.Prod):  # over nothing
        samples += [Sample(op((0,), keep), (f32(0, 3),)) for keep in (False, True)]
        samples.append(Sample(op((0, 2), False), (f32(2, 3, 0),)))
    return samples


REDUCTIONS = tuple(_reductions())

RESHAPES = (
    ((6, 5), (2, 1, 15)),
    ((3, 1, 4), (1, 3, 1, 4)),
    ((1, 1), ()),
    ((0, 2), (0, 5)),
    ((), (1,)),
    ((24,), (2, 3, 4)),
    ((2, 3, 4), (24,)),
    ((4, 33), (33, 4)),
    ((2, 16), (4, 8)),
    ((1, 17), (17,)),
    ((2, 3, 2, 3), (6, 6)),
)
PERMUTATIONS = (
    ((2, 3, 5), (2, 0, 1)),
    ((17, 19), (1, 0)),
    ((), ()),
    ((2, 3, 5), (0, 2, 1)),
    ((16, 16), (1, 0)),
    ((33, 2), (1, 0)),
    ((0, 3), (1, 0)),
    ((2, 1, 3, 4), (3, 2, 1, 0)),
    ((2, 3, 4, 5), (0, 2, 3, 1)),
    ((2, 1, 3, 2, 3), (4, 1, 0, 3, 2)),
)
BROADCASTS = (
    ((3, 1), (2, 3, 5)),
    ((), (4, 7)),
    ((1, 3), (0, 3)),
    ((5,), (5,)),
    ((1,), (17,)),
    ((2, 1, 3, 1), (2, 4, 3, 33)),
    ((16,), (2, 3, 16)),
)
SLICES = (
    ((5, 9), (1, 0), (4, 9), (2, 3)),
    ((3,), (1,), (1,), (1,)),
    ((2, 3, 4), (0, 1, 2), (2, 2, 3), (1, 1, 1)),
    ((40,), (3,), (36,), (1,)),
    ((40,), (0,), (40,), (7,)),
    ((3, 17), (0, 1), (3, 17), (1, 2)),
    ((17, 3), (2, 0), (16, 3), (3, 1)),
    ((2, 3, 4, 5), (1, 0, 1, 0), (2, 3, 4, 5), (1, 2, 1, 4)),
    ((0, 3), (0, 0), (0, 2), (1, 1)),
)
FLIPS = (
    ((3, 5), (1,)),
    ((3, 1, 4), (0, 2)),
    ((17,), (0,)),
    ((2, 33), (0, 1)),
    ((2, 3), ()),
    ((0, 4), (1,)),
    ((2, 3, 2, 3), (1, 3)),
)
PADDINGS = (
    ((3, 4), (1, 0), (2, 3), (0, 2), 0.0),
    ((1,), (0,), (1,), (1,), 2.5),
    ((0, 3), (2, 0), (1, 0), (1, 0), 0.0),
    ((17,), (3,), (0,), (0,), -1.5),
    ((2, 16), (0, 1), (0, 15), (0, 0), 0.0),
    ((2, 3, 4), (1, 1, 1), (0, 2, 0), (1, 0, 3), 0.5),
    ((2, 3), (0, 0), (0, 0), (0, 0), 0.0),
    ((1, 2, 3, 4), (0, 0, 1, 1), (0, 0, 1, 1), (0, 0, 0, 0), 7.0),
)
JOINS = (
    (1, (2, 3), (2, 1), (2, 5)),
    (0, (0, 3), (2, 3)),
    (0, (4,)),
    (0, (16,), (1,), (15,)),
    (2, (2, 3, 4), (2, 3, 1)),
    (0, (1, 33), (2, 33), (3, 33), (1, 33)),
    (1, (3, 0), (3, 0)),
    (1, (2, 2, 2, 3), (2, 5, 2, 3)),
)
MOVES = (
    *((ops.Reshape(to), shape) for shape, to in RESHAPES),
    *((ops.PermuteDims(axes), shape) for shape, axes in PERMUTATIONS),
    *((ops.BroadcastTo(to), shape) for shape, to in BROADCASTS),
    *((ops.Slice(*places), shape) for shape, *places in SLICES),
    *((ops.Flip(axes), shape) for shape, axes in FLIPS),
    *((ops.Pad(*widths), shape) for shape, *widths in PADDINGS),
)
VIEWS = (
    *(Sample(op, (f32(*shape),)) for op, shape in MOVES),
    *(
        Sample(op, (of(dtype, *shape),), ((0.0, 99.0),))
        for i, (op, shape) in enumerate(MOVES)
        for j, dtype in enumerate(("i64", "u8", "bool", "f64", "i32"))
        if (i + j) % 3 == 0 and not (isinstance(op, ops.Pad) and op.value % 1)
    ),
    *(Sample(ops.Concat(axis), tuple(f32(*s) for s in shapes)) for axis, *shapes in JOINS),
    *(
        Sample(ops.Concat(axis), tuple(of(dtype, *s) for s in shapes))
        for axis, *shapes in JOINS[::3]
        for dtype in ("i32", "bool", "u8")
    ),
)

ARRAYS = (
    np.float32(0.5),
    np.float32(-0.0),
    np.arange(6, dtype=np.int32).reshape(2, 3),
    np.linspace(-1, 1, 21, dtype=np.float32),
    np.array([True, False]),
    np.zeros((0, 3), np.float32),
    np.int64(2**40),
    np.arange(17, dtype=np.uint8),
    np.linspace(0, 1, 7),
)
IOTAS = (
    ops.Iota((5,), 0),
    ops.Iota((3, 7), 1, "i64"),
    ops.Iota((3, 7), 0, "f32"),
    ops.Iota((2, 3, 17), 2),
    ops.Iota((2, 33, 1), 1, "f64"),
    ops.Iota((0, 4), 1),
    ops.Iota((1,), 0, "i64"),
    ops.Iota((4, 16), 1, "u8"),
    ops.Iota((2, 3, 2, 5), 0, "f32"),
)
COUNTER = Type((), "i32")
SOURCES = (
    *(Sample(ops.Constant.of(a), ()) for a in ARRAYS),
    *(Sample(op, ()) for op in IOTAS),
    *(
        Sample(ops.PhiloxUniform(*settings), (COUNTER,), ((0, 99),))
        for settings in (
            (7, 3, (5, 9)),
            (2**40 + 5, 0, (0, 9)),
            (0, 1, ()),
            (1, 2, (131,), 1),
            (3, 0, (2, 3, 17), 2),
            (9, 7, (16,), 3),
        )
    ),
)
