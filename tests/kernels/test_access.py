"""Where an element lies in the memory of a value with lanes."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.ir import Layout, Type
from graphc.kernels.program.access import Domain, memory_access


@pytest.mark.parametrize("sample", [0, 3, 4, 9])
def test_one_sample_is_read_across_the_blocks_of_lanes(sample: int) -> None:
    """Samples lie four to a block: [n / 4][c][4]."""
    value, domain = Type((10, 3), "f32", Layout(0, 4)), Domain((3,))
    access = memory_access(value, (domain.constant(sample), domain.axis(0)), domain)
    numbers = np.arange(36).reshape(3, 3, 4)
    wanted = numbers[sample // 4, :, sample % 4]
    assert [access.offset + access.strides[0] * c for c in range(3)] == wanted.tolist()
