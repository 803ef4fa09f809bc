"""Random programs of scans: every stage and device computes what NumPy and a Python loop do."""

from __future__ import annotations

import pytest

from graphc.passes.pipeline import OPTIONAL
from tests.scan_checks import (
    Case,
    assert_bits_agree,
    assert_device_agrees,
    assert_passes_are_optional,
    assert_stages_agree,
    assert_unrolled_agrees,
)
from tests.tools import first_quick, need_command


def check(seed: int, devices: tuple[str, ...]) -> None:
    case = Case(seed)
    assert_stages_agree(case)
    if not case.model.drops:  # a loop draws other random numbers
        assert_unrolled_agrees(case)
    for device in devices:
        assert_device_agrees(case, device)


@pytest.mark.parametrize("seed", first_quick(8, range(16)))
def test_a_random_program_of_scans_keeps_its_meaning(seed: int) -> None:
    check(seed, ())


@pytest.mark.parametrize("seed", first_quick(6, range(16, 28)))
def test_a_random_program_of_scans_computes_the_same_on_the_cpu(seed: int) -> None:
    need_command("g++", "clang++")
    assert_device_agrees(Case(seed), "cpu")


@pytest.mark.parametrize("seed", [30, 31])
def test_a_random_program_of_scans_has_the_same_bits_on_streams_and_threads(seed: int) -> None:
    need_command("g++", "clang++")
    assert_bits_agree(Case(seed))


@pytest.mark.parametrize("seed", [32, 33])
def test_a_random_program_of_scans_computes_the_same_on_the_simulated_gpu(seed: int) -> None:
    need_command("g++", "clang++")
    assert_device_agrees(Case(seed), "sim")


@pytest.mark.parametrize("seed", [34, 35])
def test_a_random_program_of_scans_needs_no_optional_pass(seed: int) -> None:
    assert_passes_are_optional(Case(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_random_programs_of_scans_agree(seed: int) -> None:
    need_command("g++", "clang++")
    check(seed, ("cpu", "sim"))
    assert_bits_agree(Case(seed))
    assert_passes_are_optional(Case(seed), (OPTIONAL[seed % len(OPTIONAL)],))
