"""Linear algebra: factorizations of matrices and what is computed by them, by the names of NumPy.

All functions take batches [..., m, n] and have gradients of any order.
"""

from graphc.linalg.least_squares import lstsq, pinv
from graphc.linalg.spectral import eigh, eigvalsh, qr, svd, svdvals
from graphc.linalg.systems import cholesky, det, inv, slogdet, solve, triangular_solve

__all__ = [
    "cholesky",
    "det",
    "eigh",
    "eigvalsh",
    "inv",
    "lstsq",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "triangular_solve",
]


def __dir__() -> list[str]:
    return __all__
