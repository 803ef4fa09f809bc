"""Binary search among NaN, which counts as larger than anything, as in sorting and in NumPy.

PyTorch compares by `<` alone: NaN in the sequence counts as smaller there, NaN as a value as larger
than all, so that what its own sort makes is not searched in order.
"""

from __future__ import annotations

import numpy as np
import pytest

import graphc

NAN, INF = np.nan, np.inf
TABLE = np.array(
    [[0, 1, 1, 2, NAN, NAN], [NAN] * 6, [-INF, 0, 0, 1, INF, NAN], [0, 1, 2, 3, 4, 5]], np.float32
)
WANTED = np.array([[NAN, 1, INF, -1, 0]] * 4, np.float32)


@pytest.mark.parametrize("device", ["reference", "cpu", "sim"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_nan_is_larger_than_anything(side: str, device: str) -> None:
    program = graphc.compile(
        lambda s, x: graphc.searchsorted(s, x, side=side),
        graphc.spec(TABLE.shape),
        graphc.spec(WANTED.shape),
        device=device,
    )
    expected = [np.searchsorted(row, x, side) for row, x in zip(TABLE, WANTED, strict=True)]
    np.testing.assert_array_equal(program(TABLE, WANTED), np.stack(expected))
