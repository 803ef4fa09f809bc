"""clang beside g++: every core op on the CPU, and whole models there and on the simulated GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphc.base.errors import CompileError
from graphc.runtime.compilers.shared_objects import find_compiler
from tests.ops.samples import CORE
from tests.sim.playing import simulator
from tests.support.executable import batch, trainer
from tests.support.sweep import differences, on_cpu
from tests.tools import need_clang

PARTS = 4


@pytest.fixture(autouse=True)
def clang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CXX", need_clang(tmp_path))
    return find_compiler().version


@pytest.mark.parametrize("part", range(PARTS))
def test_clang_builds_every_op_and_it_means_the_same(part: int):
    assert differences(on_cpu, CORE[part::PARTS]) == []


@pytest.mark.parametrize(
    ("device", "name"),
    [("cpu", "lenet"), ("cpu", "norm"), ("cpu", "recurrent"), ("sim", "lenet")],
)
def test_a_model_built_by_clang_trains_as_on_the_reference(device: str, name: str):
    train, reference = trainer(name, device, streams=2), trainer(name, "reference")
    x, y = batch(name)
    for _ in range(5):
        assert float(train(x, y)) == pytest.approx(float(reference(x, y)), rel=2e-4)


def test_clang_does_not_check_accesses(clang: str):
    text = 'extern "C" __global__ void plain(float* y) {}\n'
    with pytest.raises(CompileError) as caught:
        simulator(check=True).compile(text, "plain", "model.py:7")
    assert str(caught.value) == (
        f"kernel plain (model.py:7) cannot be checked: GRAPHC_CHECK=race needs g++, got {clang}, "
        "which drops accesses before they are seen; install g++ or let CXX name it"
    )
