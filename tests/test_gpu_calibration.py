"""The fit of the model's constants to times of micro-kernels, rehearsed with the model's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphc.runtime.cuda import find_device
from tests.tools import need_command, need_cuda_compiler, need_nvdisasm
from tools.gpu_check import calibration, micro
from tools.gpu_check.micro import micros
from tools.gpu_model.fit import constants, costs, explained, fitted, not_negative
from tools.gpu_model.machine import H100, H200, Machine
from tools.gpu_model.micro_times import ModelClock

OTHER = replace(
    H100,
    clock=1.7e9,
    node=1.6e-6,
    gap=0.9e-6,
    wait=2e-6,
    l1_latency=33,
    l2_latency=210,
    memory_latency=800,
    shared_latency=26,
    barrier=40,
    shuffle=20,
    issue_share=0.8,
    mma_share=0.5,
    wgmma_share=0.7,
    l2=6.5e12,
)
"""A GPU on which every constant that is fitted is another."""
FITTED = (
    *("clock", "node", "gap", "wait", "l1_latency", "l2_latency", "memory_latency", "copy", "l2"),
    *("shared_latency", "barrier", "shuffle", "issue_share", "mma_share", "wgmma_share"),
)


@pytest.fixture(scope="module")
def walked() -> dict[str, tuple[Machine, dict[str, float]]]:
    """The seconds of micro-kernels by the model of two machines."""
    need_cuda_compiler()
    need_nvdisasm()
    machines = {"h200": H200, "other": OTHER}
    return {n: (m, ModelClock(m).seconds(list(micros(m)))) for n, m in machines.items()}


@pytest.mark.parametrize("name", ["h200", "other"])
def test_the_fit_recovers_the_constants_that_made_the_times(
    name: str, walked: dict[str, tuple[Machine, dict[str, float]]]
) -> None:
    machine, seconds = walked[name]
    each = list(micros(machine))
    found = costs(each, seconds)
    made = constants(found)
    assert set(made) == set(FITTED)
    for constant in FITTED:
        assert made[constant] == pytest.approx(getattr(machine, constant), rel=0.03), constant
    assert all(abs(x - 1) < 0.005 for x in explained(each, seconds, found).values())
    assert fitted(machine, made).node == made["node"] and "(fitted)" in fitted(machine, made).name


def test_a_time_that_the_costs_do_not_explain_shows(
    walked: dict[str, tuple[Machine, dict[str, float]]],
) -> None:
    machine, seconds = walked["h200"]
    each, wrong = list(micros(machine)), {**seconds, "l2_b": 2 * seconds["l2_b"]}
    ratios = explained(each, wrong, costs(each, wrong))
    assert max(ratios, key=lambda name: abs(ratios[name] - 1)) in ("l2_a", "l2_b")
    assert max(abs(x - 1) for x in ratios.values()) > 0.1


def test_what_was_not_measured_keeps_its_constant(
    walked: dict[str, tuple[Machine, dict[str, float]]],
) -> None:
    machine, seconds = walked["h200"]
    some = {name: x for name, x in seconds.items() if not name.startswith(("read", "memory"))}
    made = constants(costs(list(micros(machine)), some))
    assert set(FITTED) - set(made) == {"l2", "memory_latency"}


def test_costs_are_not_negative() -> None:
    table = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    assert not_negative(table, table @ [2.0, 0.5]) == pytest.approx([2.0, 0.5])
    falling = not_negative(table, np.array([3.0, 2.0, 1.0]))
    assert falling == pytest.approx([2.0, 0.0])


@pytest.mark.slow
def test_micro_kernels_do_their_work_on_the_simulated_gpu() -> None:
    need_command("g++", "clang++")
    need_cuda_compiler()
    need_nvdisasm()
    found = calibration.calibrated(find_device("sim"))
    assert found["constants"]["node"] == pytest.approx(H200.node, rel=0.01)
    assert set(found["us"]) == {each.name for each in micros(H200)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("find", "put", "message"),
    [
        ("at = static_cast<void**>(*at);", "at = at;", "the chase through"),
        ("reinterpret_cast<const char*>(ring) + at)", "ring)", "shared memory ended"),
        ("__shfl_xor_sync(0xffffffffu, at, 1)", "__shfl_xor_sync(0xffffffffu, at, 1) + 1", "lanes"),
    ],
)
def test_micro_kernels_that_do_something_else_are_found(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, find: str, put: str, message: str
) -> None:
    need_command("g++", "clang++")
    text = micro.SOURCE.read_text()
    assert find in text
    (tmp_path / "micro.cu").write_text(text.replace(find, put))
    monkeypatch.setattr(calibration, "SOURCE", tmp_path / "micro.cu")
    with pytest.raises(AssertionError, match=message):
        calibration.calibrated(find_device("sim"))
