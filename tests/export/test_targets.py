"""Every target gives the bits of this machine: whole models, and what their kernels may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from benchmarks import exported_bits
from benchmarks.exported import CROSS, X86, selftest, states
from benchmarks.exported_models import MODELS, STEPS, training_step
from graphc.export.targets import MACHINES
from tests.export.harness import need_target
from tests.random_programs import RandomProgram

QUICK = ("gpt",)


@pytest.mark.parametrize("target", (*X86, *CROSS))
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in MODELS]
)
def test_ten_training_steps(name: str, target: str, tmp_path: Path) -> None:
    step, batches = training_step(name)
    step.export(tmp_path / "made", target, name=name, calls=STEPS, inputs=batches)
    need_target(target)
    lines = selftest(tmp_path / "made", name, target)
    assert len(set(states(lines))) == STEPS


def test_every_target_is_tested() -> None:
    assert {*X86, *CROSS} == set(MACHINES)


def functions(x: Any) -> Any:
    return (
        *(f(x) for f in (graphc.sin, graphc.cos, graphc.tanh, graphc.exp, graphc.erf)),
        graphc.log(graphc.abs(x) + 0.1),
        graphc.sqrt(graphc.abs(x)),
        graphc.round(x * 10),
    )


def narrow(x: Any) -> Any:
    half, bfloat = x.astype("float16"), x.astype("bfloat16")
    return half * half + 1, graphc.exp(half), graphc.sum(bfloat, 0), half, bfloat * bfloat


def wide(x: Any) -> Any:
    d = x.astype("float64")
    return d * d + d, graphc.sum(d, -1), graphc.sqrt(graphc.abs(d)), graphc.where(d > 0, d, 1.0)


def integers(x: Any) -> Any:
    i = (x * 100).astype("int32")
    long = i.astype("int64")
    return (
        i // 7,
        i % 7,
        long * long * long,
        (i >> 2) & 5,
        i.astype("uint8"),
        graphc.sum(long, 0),
        x > 0,
    )


def orders(x: Any) -> Any:
    return (
        graphc.sort(x, -1),
        graphc.cumsum(x, -1),
        graphc.argmax(x, 0),
        graphc.take(x, np.array([3, 1, 2]), 0),
        graphc.softmax(x @ x.T, -1),
    )


@pytest.mark.parametrize("target", ("x86-64", *CROSS))
def test_kernels_of_all_kinds(target: str, tmp_path: Path) -> None:
    programs = {
        f.__name__: graphc.compile(f, graphc.spec((19, 37)), device="cpu")
        for f in (functions, narrow, wide, integers, orders)
    }
    graphc.export(programs, tmp_path / "made", target, name="kinds", calls=2)
    need_target(target)
    selftest(tmp_path / "made", "kinds", target)


@pytest.mark.parametrize("target", ("x86-64-avx2", "aarch64", "wasm32"))
def test_random_programs(target: str, tmp_path: Path) -> None:
    programs = {}
    for seed in range(40, 48):
        made = RandomProgram(seed)
        programs[f"seed{seed}"] = graphc.compile(made, *made.specs, device="cpu")
    graphc.export(programs, tmp_path / "made", target, name="random_programs", calls=1)
    need_target(target)
    selftest(tmp_path / "made", "random_programs", target)


def test_a_checksum_for_all_threads_and_streams() -> None:
    """The table of docs/export.md, for one model, batch and target; another checksum shows."""
    need_target("x86-64-avx2")
    found = exported_bits.in_python("lstm", 3, streams=(1, 2), threads=(1, 3))
    found |= exported_bits.of_machine("lstm", 3, "x86-64-avx2")
    assert len(found) == 4 + 3
    cells, same = exported_bits.row("lstm", 3, found, ["x86-64-avx2 3"])
    assert same and cells[3] == "7 the same"
    found["another"] = "00000000"
    cells, same = exported_bits.row("lstm", 3, found, [])
    assert not same and cells[3].startswith("not the same: {")
