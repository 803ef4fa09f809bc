"""Random large programs compute what NumPy does, and are compiled in seconds."""

from __future__ import annotations

import pytest

from tests.random_large import KINDS, check_large, check_parameters


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_large_program_agrees_with_numpy(kind: str, seed: int) -> None:
    check_large(kind, seed)


@pytest.mark.parametrize("seed", [1, 3])
def test_many_parameters_are_trained_as_by_numpy(seed: int) -> None:
    check_parameters(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 54))
@pytest.mark.parametrize("kind", KINDS)
def test_more_large_programs_agree_with_numpy(kind: str, seed: int) -> None:
    check_large(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 54))
def test_more_parameters_are_trained_as_by_numpy(seed: int) -> None:
    check_parameters(seed)
