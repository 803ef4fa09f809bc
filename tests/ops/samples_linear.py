"""Factorizations of matrices of all kinds of sizes, none of them near singular."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphc.base.dtypes import convert, widened
from graphc.ir import Type
from graphc.ops import Cholesky, Eigh, Lu, Qr, Svd, TriangularSolve
from tests.ops.sample import Sample, f32, of


@dataclass(frozen=True)
class MatrixSample(Sample):
    """A sample whose first input has larger elements on its diagonals."""

    __test__ = False

    def arrays(self, seed: int = 0) -> tuple[np.ndarray, ...]:
        first, *others = super().arrays(seed)
        rows, columns = first.shape[-2:]
        # Different ones, so that eigenvalues and singular values are far apart.
        diagonal = np.eye(rows, columns) * (2.0 + np.arange(columns)) * (1 + columns / 4)
        return (convert(widened(first) + diagonal, first.dtype), *others)


SHAPES = (
    (1, 1),
    (2, 2),
    (3, 4, 4),
    (7, 7),
    (2, 1, 9, 9),
    (17, 17),
    (0, 3, 3),
    (2, 0, 0),
    (2, 40, 40),
)


def _samples() -> list[Sample]:
    samples: list[Sample] = []
    for number, shape in enumerate(SHAPES):
        dtype = "f64" if number % 3 == 2 else "f32"
        a, near = of(dtype, *shape), ((-1.0, 1.0),)
        tall = of(dtype, *shape[:-2], shape[-2] + 3, shape[-1])
        samples += [MatrixSample(op, (a,), near) for op in (Cholesky(), Lu(), Qr())]
        samples += [MatrixSample(op, (tall,), near) for op in (Qr(), Svd())]
        samples += [MatrixSample(op, (a,), near) for op in (Eigh(), Svd())]
        b = Type((*shape[:-1], (1, 3, 70)[number % 3]), dtype)
        for flags in range(8):
            if (flags + number) % 3 == 0:
                op = TriangularSolve(bool(flags & 1), bool(flags & 2), bool(flags & 4))
                samples.append(MatrixSample(op, (a, b), near))
    nothing = f32(2, 5, 5), f32(2, 5, 0)
    return [*samples, MatrixSample(TriangularSolve(True), nothing, ((-1.0, 1.0),))]


MATRICES: tuple[Sample, ...] = tuple(_samples())
