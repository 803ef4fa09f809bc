"""Random programs on the CPU compute what NumPy computes in float64.

GRAPHC_CAMPAIGN=N checks N programs instead of a sample.
"""

import os

import pytest

from tests.random_programs import RandomProgram, disagreement

SAMPLE = 32
TOLERANCE = 2.0**-23 * 512
"""float32's rounding, times the longest sum (a convolution's gradient over batch and pixels, cut into
lanes) and the growth through up to nine steps."""


@pytest.mark.parametrize("seed", range(int(os.environ.get("GRAPHC_CAMPAIGN", SAMPLE))))
def test_a_random_program_agrees_with_numpy(seed):
    assert disagreement(seed, "cpu") < TOLERANCE, str(RandomProgram(seed))


@pytest.mark.parametrize("seed", range(4))
def test_a_random_program_has_the_same_bits_on_several_streams(seed):
    assert disagreement(seed, "cpu", streams=4) == disagreement(seed, "cpu", streams=1)
