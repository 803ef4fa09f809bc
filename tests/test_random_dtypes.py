"""Random programs of all dtypes, with arrays that may be empty: stages and devices compute exactly
what NumPy computes from the trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.dtypes import widened
from graphc.ir.interpret import evaluate
from graphc.passes.pipeline import OPTIONAL
from tests.random_dtypes import Array, RandomDtypes
from tests.tools import first_quick, need_command


def assert_exact(got: Sequence[Any], want: Sequence[Any], program: RandomDtypes) -> None:
    for a, b in zip(got, want, strict=True):
        x, y = (np.asarray(widened(np.asarray(array))) for array in (a, b))
        np.testing.assert_array_equal(x, y, str(program), strict=True)


def traced(program: RandomDtypes) -> tuple[Array, ...]:
    graph = program.graph()
    return evaluate(graph, program.arrays_of(graph))[0]


def assert_stages_are_exact(program: RandomDtypes) -> None:
    want = traced(program)
    compiled = graphc.compile(program.run, *program.kinds, device="reference")
    for stage in compiled.stages.values():
        if not stage.state:  # constants that became state
            assert_exact(evaluate(stage, program.arrays_of(stage))[0], want, program)


def assert_device_is_exact(program: RandomDtypes, device: str, **options: Any) -> None:
    compiled = graphc.compile(program.run, *program.kinds, device=device, **options)
    assert_exact(compiled(*program.arrays), traced(program), program)


@pytest.mark.parametrize("seed", first_quick(40, range(80)))
def test_stages_are_exact(seed: int) -> None:
    assert_stages_are_exact(RandomDtypes(seed))


@pytest.mark.parametrize("seed", range(80, 88))
def test_the_cpu_is_exact(seed: int) -> None:
    need_command("g++", "clang++")
    assert_device_is_exact(RandomDtypes(seed), "cpu", streams=1 + seed % 3)


@pytest.mark.parametrize("seed", [92, 93])
def test_the_simulated_gpu_is_exact(seed: int) -> None:
    need_command("g++", "clang++")
    assert_device_is_exact(RandomDtypes(seed), "sim")


@pytest.mark.parametrize("seed", range(94, 114))
def test_the_meaning_is_proved_or_tried(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_CHECK", "meaning")
    assert_device_is_exact(RandomDtypes(seed), "reference")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 800))
def test_many_programs_are_exact(seed: int) -> None:
    need_command("g++", "clang++")
    program = RandomDtypes(seed)
    assert_stages_are_exact(program)
    assert_device_is_exact(program, "cpu", streams=1 + seed % 4)
    assert_device_is_exact(program, "sim")
    assert_device_is_exact(program, "cpu", disable=(OPTIONAL[seed % len(OPTIONAL)],))
