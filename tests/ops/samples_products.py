"""Contractions and windows: matrix products, convolutions and their gradients, pooling."""

from __future__ import annotations

from graphc import ops
from tests.ops.sample import Sample, f32, of

MATRICES = (
    ((3, 4), (4, 5)),
    ((1, 1), (1, 1)),
    ((7, 33), (33, 19)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((3, 0), (0, 2)),
    ((0, 3), (3, 2)),
    ((1, 17), (17, 1)),
    ((16, 16), (16, 16)),
    ((33, 1), (1, 15)),
    ((5, 40), (40, 3)),
    ((2, 3, 4), (4, 6)),
    ((3, 4), (2, 4, 6)),
    ((4, 2, 2), (1, 2, 33)),
    ((2, 2, 2, 3), (2, 2, 3, 2)),
    ((64, 9), (9, 70)),
)
MATMULS = (
    *(Sample(ops.Matmul(), (f32(*a), f32(*b))) for a, b in MATRICES),
    *(Sample(ops.Matmul(), (of("f64", *a), of("f64", *b))) for a, b in MATRICES[::4]),
    *(
        Sample(ops.MatmulBytes(), (of("u8", *a), of("i8", *b)), ((0, 255), (-128, 127)))
        for a, b in MATRICES
        if len(a) == len(b) == 2
    ),
)

POINT = (1, 1)
CONVOLUTIONS = (
    # x, weight, stride, padding, dilation, groups
    ((2, 3, 6, 5), (4, 3, 3, 2), POINT, (0, 0), POINT, 1),
    ((1, 1, 1, 1), (1, 1, 1, 1), POINT, (0, 0), POINT, 1),
    ((2, 2, 7, 6), (3, 2, 3, 3), (2, 3), (1, 2), POINT, 1),
    ((2, 4, 7, 7), (6, 2, 3, 3), POINT, (1, 1), (2, 1), 2),
    ((1, 3, 5, 9), (3, 1, 2, 3), (2, 2), (0, 1), (1, 3), 3),
    ((2, 3, 4, 4), (5, 3, 1, 1), (2, 2), (0, 0), POINT, 1),
    ((17, 2, 5, 5), (3, 2, 5, 5), POINT, (2, 2), POINT, 1),
    ((0, 2, 4, 4), (3, 2, 3, 3), POINT, (1, 1), POINT, 1),
    ((1, 2, 1, 9), (2, 2, 1, 3), POINT, (0, 1), POINT, 1),
    ((2, 1, 9, 1), (3, 1, 4, 1), (3, 1), (2, 0), POINT, 1),
    ((1, 4, 6, 6), (8, 1, 3, 3), POINT, (1, 1), POINT, 4),
    ((1, 16, 5, 5), (17, 16, 1, 1), POINT, (0, 0), POINT, 1),
    ((3, 2, 8, 8), (2, 2, 3, 3), (2, 2), (1, 1), (2, 2), 1),
    ((1, 6, 4, 5), (4, 3, 2, 2), (1, 2), (1, 0), POINT, 2),
    ((16, 3, 4, 4), (2, 3, 3, 3), POINT, (1, 1), POINT, 1),
    ((1, 1, 12, 12), (1, 1, 7, 7), (4, 4), (3, 3), POINT, 1),
)


def _convolutions() -> list[Sample]:
    samples = []
    for x, weight, *settings in CONVOLUTIONS:
        (y,) = ops.Conv2d(*settings).infer(f32(*x), f32(*weight))
        samples += [
            Sample(ops.Conv2d(*settings), (f32(*x), f32(*weight))),
            Sample(ops.Conv2dDgrad(*settings, x[2:]), (y, f32(*weight))),
            Sample(ops.Conv2dWgrad(*settings, weight[2:]), (f32(*x), y)),
        ]
    return samples


POOLINGS = (
    # x, kernel size, stride, padding
    ((2, 3, 6, 4), (2, 2), (2, 2), (0, 0)),
    ((1, 1, 1, 1), (1, 1), (1, 1), (0, 0)),
    ((2, 2, 7, 5), (3, 2), (2, 1), (1, 1)),
    ((1, 2, 5, 5), (3, 3), (1, 1), (1, 1)),
    ((1, 2, 8, 9), (2, 3), (3, 4), (0, 0)),
    ((17, 1, 4, 4), (2, 2), (2, 2), (0, 0)),
    ((0, 2, 4, 4), (2, 2), (2, 2), (0, 0)),
    ((1, 1, 1, 17), (1, 3), (1, 2), (0, 1)),
    ((2, 1, 16, 1), (4, 1), (4, 1), (2, 0)),
    ((1, 3, 6, 6), (6, 6), (6, 6), (0, 0)),
    ((3, 5, 4, 33), (2, 2), (1, 2), (1, 0)),
    ((1, 1, 20, 20), (17, 17), (3, 3), (0, 0)),
)


def _poolings() -> list[Sample]:
    samples = []
    for x, *window in POOLINGS:
        y, index = ops.MaxPool2d(*window).infer(f32(*x))
        r, s = window[0]
        samples += [
            Sample(ops.MaxPool2d(*window), (f32(*x),)),
            Sample(ops.MaxPool2dGrad(*window, x[2:]), (y, index), ((-2, 2), (0, r * s - 1))),
        ]
        for padded in (True, False):
            samples += [
                Sample(ops.AvgPool2d(*window, padded), (f32(*x),)),
                Sample(ops.AvgPool2dGrad(*window, padded, x[2:]), (y,)),
            ]
    return samples


CONTRACTIONS = (*MATMULS, *_convolutions())
WINDOWS = tuple(_poolings())
