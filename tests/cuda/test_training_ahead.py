"""`graphc.fit` on a GPU: the host goes on to the next step, on a driver that records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from tests.cuda.records import DRIVERS, count, recorded, verbs
from tests.tools import need_command

WAITS = ("event_synchronize", "stream_synchronize", "context_synchronize")
ALLOCATIONS = ("mem_alloc", "host_alloc", "mem_free", "event_create", "stream_create")


@pytest.fixture(scope="module", params=DRIVERS)
def record(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    return recorded("recording_training", tmp_path_factory.mktemp("driver"), request.param)


@pytest.mark.parametrize("kind", ["host", "schedule"])
def test_no_step_waits_for_the_gpu(record, kind):
    steps = record[kind]["steps"]
    assert len(steps) == 16
    for lines in steps:
        assert count(lines, WAITS) == count(lines, ALLOCATIONS) == 0
        assert count(lines, ("graph_launch",)) == 1


def test_inputs_of_many_megabytes_go_through_page_locked_memory_without_waiting(record):
    for lines in record["large"]:
        assert count(lines, WAITS) == count(lines, ALLOCATIONS) == 0
        copies = [int(x.split()[-1]) for x in lines if x.startswith("copy_to_device")]
        assert sum(copies) == 10 << 20 and len(copies) > 1


def test_the_last_steps_of_an_epoch_are_waited_for_at_its_end(record):
    for lines in record["host"]["ends"]:
        assert set(verbs(lines)) == {"event_synchronize"}
        assert len(lines) <= 2
    assert record["host"]["losses"] == 2


def test_a_schedule_sets_the_rate_and_counts_on_the_host(record):
    """The seventeenth step is the last, the first being that before `fit`."""
    for lines in record["schedule"]["steps"]:
        assert count(lines, ("copy_to_host",)) == 1
        assert lines[0] == "copy_to_device 1 bytes 4"
    assert record["schedule"]["rate"] == pytest.approx(record["last rate"])


def test_a_loss_scale_may_skip_steps_so_that_their_number_is_read(record):
    assert all(count(lines, ("copy_to_host",)) == 2 for lines in record["scaled"]["steps"])


def test_a_callback_that_reads_metrics_waits_for_its_step(record):
    assert all(count(lines, WAITS) == 1 for lines in record["reads"]["steps"])


def test_a_host_that_is_two_calls_ahead_waits_for_the_first(record):
    first, second, third = record["behind"]
    assert count(first, WAITS) == count(second, WAITS) == 0
    assert count(third, WAITS) == 1
    assert verbs(third)[0] == "event_synchronize"


X = np.random.default_rng(0).standard_normal((32, 6)).astype(np.float32)


def program(device: str) -> Any:
    graphc.seed(0)
    return graphc.compile(
        lambda model, x: graphc.mean(model(x) ** 2),
        nn.Linear(6, 1),
        graphc.spec((4, 6)),
        update=optim.SGD(lr=optim.schedules.Cosine(0.1, 9), momentum=0.9),
        device=device,
    )


def test_the_steps_that_the_host_counts_are_those_that_the_device_counts():
    """Also when state is read, and loaded in between."""
    need_command("g++", "clang++")
    rates: dict[str, list[float]] = {}
    for device in ("cpu", "sim"):
        step = program(device)
        before = step.update.state_dict()
        for number in range(9):
            if number == 3:
                assert step.update.step == 3
            if number == 5:
                assert int(step.update.state_dict()["step"]) == 5
                step.update.load_state_dict(before)
            step(X[:4])
            rates.setdefault(device, []).append(step._clock.rate.array.item())
    assert rates["sim"] == rates["cpu"]
    assert rates["cpu"][:4] == rates["cpu"][5:]


def test_fit_that_runs_ahead_has_the_history_of_one_that_does_not():
    need_command("g++", "clang++")
    found = []
    for device in ("cpu", "sim"):
        shown: list[Any] = []

        class Reads(graphc.training.Callback):
            def step(self, run: Any, shown: list[Any] = shown) -> None:
                shown.append(run.history.steps)
                if run.history.steps % 5 == 0:
                    shown.append(run.metrics["loss"])

        step, batches = program(device), graphc.data.Batches((X,), 4, shuffle=1)
        callbacks = [Reads()]
        history = graphc.fit(step, batches, 3, callbacks=callbacks, progress=False)
        found.append((history["loss"], shown))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-6)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-6)
