"""Loops on the simulated GPU: written out when they are captured, and checked across iterations."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ops.base import Array
from graphc.program import Program
from graphc.runtime.cuda.device import Device, find_device
from graphc.runtime.cuda.executable import CudaExecutable
from graphc.runtime.plan.plan import Launch, Loop, Wait, all_steps
from graphc.runtime.sim import LogicError, RaceError, Simulator
from graphc.runtime.sim.queues import POLICIES

STEPS, BATCH, WIDTH = 4, 3, 6


class Network(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        self.forwards = nn.LSTM(5, WIDTH)
        self.last = nn.Linear(WIDTH, 4)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        return self.last(self.forwards(x)[0][-1])


def loss_fn(model: Network, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
    return graphc.cross_entropy(model(x), y)


def program(device: str, streams: int) -> Program:
    graphc.seed(0)
    specs = graphc.spec((STEPS, BATCH, 5)), graphc.spec((BATCH,), "int32")
    rule = optim.SGD(lr=0.5)
    return graphc.compile(loss_fn, Network(), *specs, update=rule, device=device, streams=streams)


def batch() -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    x = random.standard_normal((STEPS, BATCH, 5)).astype(np.float32)
    return x, random.integers(0, 4, BATCH).astype(np.int32)


def loops(program: Program) -> list[Loop]:
    assert program.plan is not None
    return [step for step in program.plan.steps if isinstance(step, Loop)]


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_training_through_loops_matches_the_reference(
    streams: int, clean_environment: pytest.MonkeyPatch
) -> None:
    clean_environment.setenv("GRAPHC_CHECK", "race")
    here, there = program("sim", streams), program("reference", 1)
    assert len(loops(here)) == 2
    for _ in range(3):
        np.testing.assert_allclose(here(*batch()), there(*batch()), rtol=2e-5)


def test_no_order_of_streams_changes_a_bit() -> None:
    driver = find_device("sim").driver
    assert isinstance(driver, Simulator)
    expected: bytes = b""
    for streams in (1, 3):
        train = program("sim", streams)
        start = train.state_dict()
        for seed in range(12):
            driver.scheduler.policy = POLICIES[seed % len(POLICIES)]
            driver.scheduler.random.seed(seed)
            for name, array in start.items():
                train._state[name].assign(array)
            found = np.array([train(*batch()) for _ in range(3)]).tobytes()
            expected = expected or found
            assert found == expected, f"{streams} streams, seed {seed}"


def test_a_body_without_any_one_of_its_waits_is_found() -> None:
    """The body has two branches of its own that meet."""

    def fn(x: graphc.Tensor, h: graphc.Tensor, a: graphc.Tensor, b: graphc.Tensor) -> graphc.Tensor:
        def step(h: graphc.Tensor, x: graphc.Tensor) -> tuple[graphc.Tensor, graphc.Tensor]:
            new = graphc.matmul(graphc.softmax(h @ a), graphc.softmax(h @ b)) * x
            return new, new

        return graphc.scan(step, h, x)[1]

    specs = (graphc.spec(shape) for shape in ((2, 64, 64), (64, 64), (64, 64), (64, 64)))
    made = graphc.compile(fn, *specs, device="sim", streams=2)
    (loop,) = loops(made)
    assert made.plan is not None
    waits = [step for step in loop.steps if isinstance(step, Wait)]
    assert waits
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(b.value.type.shape).astype("f4") for b in made.plan.inputs]
    for number, wait in enumerate(waits):
        less = replace(loop, steps=tuple(s for s in loop.steps if s is not wait))
        steps = tuple(less if step is loop else step for step in made.plan.steps)
        device = Device(Simulator(), f"sim without wait {number} of a loop", declares=True)
        broken = CudaExecutable(replace(made.plan, steps=steps), made._state, device)
        with pytest.raises((RaceError, LogicError)):
            for _ in range(2):
                broken.run(arrays)
        device.driver.scheduler.drop()


def test_capture_of_loops_is_reported_apart(
    clean_environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clean_environment.setenv("GRAPHC_LOG", "info")
    train = program("sim", 1)
    train(*batch())
    pattern = r"graphc: loss_fn: loops written out as \d+ nodes of a graph in \d+\.\d ms\n"
    assert len(re.findall(pattern, capsys.readouterr().err)) == 1


def test_profile_and_timeline_count_the_iterations() -> None:
    train = program("sim", 1)
    assert train.plan is not None
    cells = [step for loop in loops(train) for step in loop.steps if isinstance(step, Launch)]
    rows = {t.name: t.calls for t in train._executable.profile(batch(), repeats=2)}
    assert {rows[cell.kernel] for cell in cells} == {2 * STEPS}
    assert isinstance(train._executable, CudaExecutable)
    line = [number for number, *_ in train._executable.timeline(batch())]
    numbers = {n for n, step in enumerate(all_steps(train.plan.steps)) if step in cells}
    assert all(line.count(number) == STEPS for number in numbers)
