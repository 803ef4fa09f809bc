"""Where an element lies in the memory of a value with lanes."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.ir import Layout, Type
from graphc.kernels.program.access import AffineIndex, Domain, compose_index, memory_access
from graphc.ops.base import Affine


@pytest.mark.parametrize("sample", [0, 3, 4, 9])
def test_one_sample_is_read_across_the_blocks_of_lanes(sample: int) -> None:
    """Samples lie four to a block: [n / 4][c][4]."""
    value, domain = Type((10, 3), "f32", Layout(0, 4)), Domain((3,))
    access = memory_access(value, (domain.constant(sample), domain.axis(0)), domain)
    numbers = np.arange(36).reshape(3, 3, 4)
    wanted = numbers[sample // 4, :, sample % 4]
    assert [access.offset + access.strides[0] * c for c in range(3)] == wanted.tolist()


def test_an_index_of_places_that_are_quotients_is_one_quotient() -> None:
    """2 * (i + 1) / 4 - 3 * (2 * j + 5) / 6 + 7, as one division by 12."""
    i, j = AffineIndex((1, 0), 1, 4), AffineIndex((0, 2), 5, 6)
    place = compose_index(Affine((2, -3), 7), (i, j), 2)
    for at in ((0, 0), (3, 1), (5, 8)):
        over = sum(c * x for c, x in zip(place.coefficients, at, strict=True)) + place.offset
        wanted = 2 * (at[0] + 1) / 4 - 3 * (2 * at[1] + 5) / 6 + 7
        assert place.divisor == 12 and over / 12 == pytest.approx(wanted)


def test_a_place_that_is_not_used_divides_nothing() -> None:
    plain, quotient = AffineIndex((1,), 2), AffineIndex((1,), 0, 3)
    assert compose_index(Affine((5, 0), 1), (plain, quotient), 1) == AffineIndex((5,), 11)
