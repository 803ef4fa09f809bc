"""Helpers of test_cuda_wgmma.py and of tests beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.base.dtypes import convert
from graphc.ir import DTYPES, Node
from tests.support.cuda_tensor import (
    EPS,
)


def assert_near(got: Any, want: Any, dtype: str, length: int) -> None:
    """Up to the rounding of `length` sums of float32, and of the results to `dtype`."""
    got, want = (np.asarray(x, np.float32) for x in (got, want))
    tolerance = (8 * np.sqrt(length) * EPS["float32"] + 2 * EPS[dtype]) * float(np.abs(want).max())
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


def operands(product: Node) -> list[Any]:
    random = np.random.default_rng(0)
    shapes = [v.type.shape for v in product.inputs]
    return [convert(random.standard_normal(s).astype("f4"), DTYPES["bf16"]) for s in shapes]
