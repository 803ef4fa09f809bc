"""Random programs on the CPU compute what NumPy computes in float64."""

import pytest

from tests.random_programs import RandomProgram, disagreement

TOLERANCE = 2.0**-23 * 512
"""float32's rounding, times the longest sum (a convolution's gradient over batch and pixels, cut
into lanes) and the growth through up to nine steps."""


@pytest.mark.parametrize("seed", range(32))
def test_a_random_program_agrees_with_numpy(seed):
    assert disagreement(seed, "cpu") < TOLERANCE, str(RandomProgram(seed))


@pytest.mark.parametrize("seed", range(32, 44))
def test_a_random_program_of_float64_agrees_with_numpy(seed):
    assert disagreement(seed, "cpu", "float64") < TOLERANCE * 2.0**-29, str(RandomProgram(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(32, 1032))
def test_many_random_programs_agree_with_numpy(seed):
    assert disagreement(seed, "cpu") < TOLERANCE, str(RandomProgram(seed))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_random_program_has_the_same_bits_on_several_streams(seed, dtype):
    one, several = (disagreement(seed, "cpu", dtype, streams=n) for n in (1, 4))
    assert several == one
