"""Random programs of gradients, `vmap` and scans inside each other: their gradients are those of
finite differences, and stages and devices compute what Python loops do."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.passes.pipeline import OPTIONAL
from tests.random_transforms import RandomTransforms
from tests.scan_checks import (
    Case,
    assert_bits_agree,
    assert_device_agrees,
    assert_passes_are_optional,
    assert_stages_agree,
    assert_unrolled_agrees,
)
from tests.tools import first_quick, need_command

STEPS = (1e-5, 3e-6, 1e-6)
"""Of finite differences, one of which is small enough and not too small."""


def assert_differences_agree(case: Case) -> None:
    """The gradient in a random direction is the difference of the loss along it, in float64."""
    floats = [i for i, spec in enumerate(case.model.inputs) if spec.dtype == "f32"]
    if case.model.mode == "forward":
        return
    outputs, random = case.meaning(case.traced()), np.random.default_rng(case.seed)
    ways = {i: random.standard_normal(case.arrays[i].shape) for i in floats}
    slope = sum(float((outputs[1 + n] * ways[i]).sum()) for n, i in enumerate(floats))
    arrays, found = case.arrays, []
    for step in STEPS:
        ends = []
        for sign in (step, -step):
            case.arrays = [
                a.astype(np.float64) + sign * ways[i] if i in ways else a
                for i, a in enumerate(arrays)
            ]
            ends.append(float(case.meaning(case.traced())[0]))
        found.append((ends[0] - ends[1]) / (2 * step))
    case.arrays = arrays
    errors = [abs(difference - slope) for difference in found]
    assert min(errors) <= 1e-4 * max(1, abs(slope)), f"gradient {slope}, differences {found}"


def check(case: Case) -> None:
    assert_differences_agree(case)
    assert_stages_agree(case)
    assert_unrolled_agrees(case)


@pytest.mark.parametrize("seed", first_quick(24, range(60)))
def test_gradients_and_stages_agree(seed: int) -> None:
    check(Case(seed, RandomTransforms))


@pytest.mark.parametrize("seed", [289, 491, 588])
def test_programs_that_once_failed(seed: int) -> None:
    check(Case(seed, RandomTransforms))


@pytest.mark.parametrize("seed", range(60, 63))
def test_the_cpu_agrees(seed: int) -> None:
    need_command("g++", "clang++")
    assert_device_agrees(Case(seed, RandomTransforms), "cpu")


@pytest.mark.parametrize("seed", [66, 67])
def test_the_simulated_gpu_agrees(seed: int) -> None:
    need_command("g++", "clang++")
    assert_device_agrees(Case(seed, RandomTransforms), "sim")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 500))
def test_many_programs_agree(seed: int) -> None:
    need_command("g++", "clang++")
    case = Case(seed, RandomTransforms)
    check(case)
    for device in ("cpu", "sim"):
        assert_device_agrees(case, device)
    assert_bits_agree(case)
    assert_passes_are_optional(case, (OPTIONAL[seed % len(OPTIONAL)],))
