"""Kernels chosen by measurement: every candidate is right, the fastest is taken and remembered."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base import target
from graphc.runtime.cuda import Device, find_device, trial
from graphc.runtime.cuda.trial import CudaTrial
from graphc.runtime.plan.plan import LaunchPart, RepeatedParts
from graphc.runtime.sim import Simulator
from graphc.runtime.tuning import kernel_autotuner
from graphc.runtime.tuning.kernel_autotuner import measure
from graphc.runtime.tuning.timing import Play


class Net(nn.Module):
    """A strided convolution and two equal layers."""

    def __init__(self) -> None:
        graphc.seed(3)
        self.conv = nn.Conv2d(3, 20, 3, stride=2, padding=1)
        self.first, self.second = nn.Linear(80, 80), nn.Linear(80, 80)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        x = graphc.flatten(graphc.max_pool2d(graphc.relu(self.conv(x)), 2))
        return graphc.relu(self.second(graphc.relu(self.first(x))))


def loss_fn(net: Net, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
    return graphc.cross_entropy(net(x), y)


X = np.random.default_rng(0).standard_normal((37, 3, 8, 8)).astype(np.float32)
Y = np.arange(37, dtype=np.int32) % 7


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels stay from test to test, choices do not."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(kernels))
    for choice in kernels.glob("choices/*"):
        choice.unlink()


def _step(tune: bool | str, device: str = "cpu", streams: int = 1) -> graphc.Program:
    options = {"device": device, "tune": tune, "threads": 2, "streams": streams}
    return graphc.compile(loss_fn, Net(), X, Y, update=optim.SGD(lr=0.1), **options)


def _choose(monkeypatch: pytest.MonkeyPatch, index: int) -> list[int]:
    """Take candidate `index`, or the last, without a measurement; the candidates of each."""
    seen: list[int] = []

    def choose(plays: Sequence[Play], clock: Callable[[], float]) -> tuple[int, str]:
        seen.append(len(plays))
        for play in plays:
            play()
        return min(index, len(plays) - 1), "the test says so"

    monkeypatch.setattr(kernel_autotuner, "measure", choose)
    return seen


@pytest.mark.parametrize("index", [1, 5])
def test_every_candidate_computes_what_the_reference_does(
    index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _choose(monkeypatch, index)
    step, reference = _step(True), _step(False, "reference")
    assert len(seen) >= 4
    plain = _step(False)
    texts = {k.canonical for k in step.plan.kernels.values()}
    assert texts != {k.canonical for k in plain.plan.kernels.values()}
    for _ in range(3):
        np.testing.assert_allclose(step(X, Y), reference(X, Y), rtol=2e-5)


def test_what_was_measured_is_remembered_and_equal_layers_are_measured_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = _choose(monkeypatch, 1)
    first = _step(True)
    count = len(seen)
    contractions = [k for k in first.plan.kernels.values() if k.template == "contract"]
    assert count < len(contractions)
    again = _step(True)
    assert len(seen) == count
    assert str(again.plan) == str(first.plan)
    assert "takes candidate 2 of 6: the test says so" in str(first.plan)


def test_the_bits_are_those_of_every_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    _choose(monkeypatch, 2)
    one = graphc.compile(Net(), X, tune=True, device="cpu", threads=1, streams=1)
    two = graphc.compile(Net(), X, tune=True, device="cpu", threads=2, streams=2)
    np.testing.assert_array_equal(one(X), two(X))


def test_the_fastest_is_taken() -> None:
    def busy(count: int) -> Play:
        return lambda: [None for _ in range(count)] and None

    index, why = measure([busy(40_000), busy(30_000), busy(4_000), busy(20_000)], time.thread_time)
    assert index == 2 and "of the first's time" in why


def test_the_models_choice_stays_where_nothing_is_faster() -> None:
    def busy(count: int) -> Play:
        return lambda: [None for _ in range(count)] and None

    index, why = measure([busy(4_000), busy(8_000), busy(6_000)], time.thread_time)
    assert index == 0 and why.startswith("no other was faster by more than the noise of ")


def test_calls_that_take_too_long_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_autotuner, "SECONDS", 0.0)
    assert measure([lambda: None] * 2, time.thread_time) == (
        0,
        "a call takes too long to be measured",
    )


def test_without_tune_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _choose(monkeypatch, 1)
    _step(False)
    assert not seen


def test_times_of_the_simulator_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _choose(monkeypatch, 1)
    step = graphc.compile(Net(), X, device="sim", tune=True)
    assert not seen and step.plan.device == "sim"


@pytest.mark.parametrize("index", [1, 2, 4])
def test_every_candidate_of_a_gpu_computes_what_the_reference_does(
    index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _choose(monkeypatch, index)
    found = CudaTrial(find_device("sim"), "a simulated GPU")
    monkeypatch.setattr(trial, "trial_on", lambda device: found)
    step, reference = _step(True, "sim"), _step(False, "reference")
    assert set(seen) == {5} and found.clock() > 0
    taken = {k.choice for k in step.plan.kernels.values() if k.template == "contract"}
    assert all(f"number {index + 1} of those by the model" in choice for choice in taken)
    for _ in range(2):
        np.testing.assert_allclose(step(X, Y), reference(X, Y), rtol=2e-5)


def test_a_librarys_kernels_are_right_and_the_same_for_every_number_of_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _choose(monkeypatch, 99)
    found = CudaTrial(find_device("sim"), "a simulated GPU")
    monkeypatch.setattr(trial, "trial_on", lambda device: found)
    monkeypatch.setenv("GRAPHC_CHECK", "race")
    steps = [_step("libraries", "sim", streams) for streams in (1, 2, 4)]
    names = [k.name for k in steps[0].plan.kernels.values() if k.call is not None]
    assert {"first_bias_relu", "first_wgrad", "second_wgrad"} <= {*names}
    assert "conv_wgrad" in names
    text = str(steps[0].plan)
    assert "first_bias_relu: a call of NumPy, algorithm 1 of its heuristic" in text
    assert "not a kernel of graphc's" in str(steps[0].explain("first_bias_relu"))
    reference = _step(False, "reference")
    for _ in range(3):
        expected = reference(X, Y)
        losses = [float(step(X, Y)) for step in steps]
        assert losses[0] == losses[1] == losses[2] == pytest.approx(float(expected), rel=2e-5)


def test_a_library_is_not_asked_without_the_users_word(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _choose(monkeypatch, 99)
    found = CudaTrial(find_device("sim"), "a simulated GPU")
    monkeypatch.setattr(trial, "trial_on", lambda device: found)
    step = _step(True, "sim")
    assert set(seen) == {5} and not any(k.call for k in step.plan.kernels.values())


def test_products_in_loops_keep_blocks_that_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _choose(monkeypatch, 1)
    found = CudaTrial(find_device("sim"), "a simulated GPU")
    monkeypatch.setattr(trial, "trial_on", lambda device: found)
    monkeypatch.setitem(target.KINDS, "sim", target.GPU)
    cells = nn.LSTM(6, 32, 1)
    specs = graphc.spec((3, 16, 6)), graphc.spec((3, 16, 32))

    def fit(cells: nn.LSTM, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
        return graphc.mse_loss(cells(x)[0], y)

    step = graphc.compile(fit, cells, *specs, update=optim.SGD(lr=0.1), device="sim", tune=True)
    assert seen and step.plan is not None
    (run,) = step.plan.joined
    parts = [p for loop in run.parts if isinstance(loop, RepeatedParts) for p in loop.parts]
    assert len(parts) == 3 and all(isinstance(p, LaunchPart) and p.owns_rows for p in parts)


def test_libraries_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _choose(monkeypatch, 0)
    found = CudaTrial(find_device("sim"), "a simulated GPU")
    monkeypatch.setattr(trial, "trial_on", lambda device: found)
    monkeypatch.setattr(found, "library", lambda call: "")
    notes = str(_step("libraries", "sim").plan)
    for kind in ("matrix products", "convolutions"):
        text = f"tune: no library for {kind} is installed: pip install 'graphc[libraries]'\n"
        assert text in notes


def test_a_gpu_without_room_keeps_the_models_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(Simulator(memory=20_000), "sim small", declares=True)
    found = CudaTrial(device, "a small GPU")
    monkeypatch.setattr(trial, "trial_on", lambda device: found)
    program = graphc.compile(Net(), X, device="sim", tune=True)
    assert "takes candidate 1 of 5: the device could not measure it" in str(program.plan)
