"""Whole trainings on the simulated GPU: they match the reference, no check finds anything, and no
order of streams, threads and blocks changes a bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ops.base import Array
from graphc.program import Program
from graphc.runtime.cuda.device import Device, find_device
from graphc.runtime.cuda.executable import CudaExecutable
from graphc.runtime.plan.plan import Copy, Launch, Wait
from graphc.runtime.sim import LogicError, RaceError, Simulator
from graphc.runtime.sim.queues import POLICIES
from tests.small_models import MODELS, loss_fn

RULES = {
    "mlp": lambda: optim.Adam(lr=0.01),
    "lenet": lambda: optim.SGD(lr=0.1, momentum=0.9),
    "norm": lambda: optim.SGD(lr=0.1, momentum=0.9),
    "recurrent": lambda: optim.Adam(lr=0.01),
}
BATCHES = {"mlp": 20, "lenet": 5, "norm": 6, "recurrent": 4}


def program(name: str, device: str, streams: int) -> Program:
    model, shape = MODELS[name]
    graphc.seed(0)
    specs = graphc.spec((BATCHES[name], *shape[1:])), graphc.spec((BATCHES[name],), "int32")
    rule = RULES[name]()
    return graphc.compile(loss_fn, model(), *specs, update=rule, device=device, streams=streams)


def batches(name: str, count: int) -> list[tuple[Array, Array]]:
    random = np.random.default_rng(1)
    shape = (BATCHES[name], *MODELS[name][1][1:])
    return [
        (
            random.standard_normal(shape).astype(np.float32),
            random.integers(0, 10, shape[0]).astype(np.int32),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("check", [False, True], ids=["fast", "check"])
@pytest.mark.parametrize("name", MODELS)
def test_a_training_matches_the_reference(
    name: str, check: bool, clean_environment: pytest.MonkeyPatch
):
    if check:
        clean_environment.setenv("GRAPHC_CHECK", "race")
    here, there = program(name, "sim", streams=3), program(name, "reference", streams=1)
    losses = [(float(here(*batch)), float(there(*batch))) for batch in batches(name, 4)]
    np.testing.assert_allclose(*np.transpose(losses), rtol=2e-5)
    wanted = there.state_dict()
    for key, array in here.state_dict().items():
        np.testing.assert_allclose(array, wanted[key], rtol=2e-3, atol=2e-5, err_msg=key)


class Normed(nn.Module):
    """Batch norm whose channels are split among blocks, and, of smaller images, kept by them."""

    def __init__(self) -> None:
        self.conv1, self.norm1 = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, 2), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = graphc.relu(self.norm1(self.conv1(x)))
        return self.fc(graphc.mean(self.norm2(self.conv2(x)), axis=(2, 3)))


def test_statistics_that_move_in_place_match_the_reference(clean_environment: pytest.MonkeyPatch):
    clean_environment.setenv("GRAPHC_CHECK", "race")
    specs = graphc.spec((8, 1, 32, 32)), graphc.spec((8,), "int32")
    made = []
    for device in ("sim", "reference"):
        graphc.seed(0)
        rule = optim.SGD(lr=0.1)
        options: Any = {"device": device, "precision": "tf32"}
        made.append(graphc.compile(loss_fn, Normed(), *specs, update=rule, **options))
    here, there = made
    assert not any(isinstance(step, Copy) for step in here.plan.steps)
    assert any("Held<" in kernel.source for kernel in here.plan.kernels.values())
    random = np.random.default_rng(3)
    for _ in range(2):
        x = random.standard_normal((8, 1, 32, 32)).astype(np.float32) + 3
        y = random.integers(0, 5, 8).astype(np.int32)
        np.testing.assert_allclose(float(here(x, y)), float(there(x, y)), rtol=2e-3)
    wanted = there.state_dict()
    for key, array in here.state_dict().items():
        if "running" in key:
            np.testing.assert_allclose(array, wanted[key], rtol=2e-3, atol=2e-3, err_msg=key)


class Small(nn.Module):
    """Two convolutions, so that both kinds of gradient and several streams have work."""

    def __init__(self) -> None:
        self.conv1, self.conv2 = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(64, 5)

    def forward(self, x: Any) -> Any:
        x = graphc.relu(self.conv2(graphc.relu(self.conv1(x))))
        return self.fc(graphc.flatten(x))


def small(streams: int) -> Program:
    graphc.seed(0)
    rule = optim.SGD(lr=0.1, momentum=0.9)
    specs = graphc.spec((2, 1, 8, 8)), graphc.spec((2,), "int32")
    return graphc.compile(loss_fn, Small(), *specs, update=rule, device="sim", streams=streams)


def results(train: Program, seed: int, start: dict[str, Array]) -> dict[str, bytes]:
    """The bytes of three losses and of all state after three steps from `start`, which are played
    in the order of a seed: the third one is a graph's."""
    device = find_device("sim").driver
    assert isinstance(device, Simulator)
    device.scheduler.random.seed(seed)
    device.scheduler.policy = POLICIES[seed % 3]
    for name, array in start.items():
        train._state[name].assign(array)
    random = np.random.default_rng(2)
    x, y = random.standard_normal((3, 2, 1, 8, 8)).astype(np.float32), np.array([1, 3], np.int32)
    losses = np.array([train(x[i], y) for i in range(3)])
    return {"losses": losses.tobytes()} | {n: a.tobytes() for n, a in train.state_dict().items()}


@pytest.mark.parametrize("orders", [24, pytest.param(200, marks=pytest.mark.slow)])
def test_many_orders_of_any_number_of_streams_change_no_bit(orders: int) -> None:
    expected: dict[str, bytes] = {}
    for streams in (1, 2, 3, 4, 8):
        train = small(streams)
        start = train.state_dict()
        for seed in range(orders):
            found = results(train, seed, start)
            expected = expected or found
            assert found == expected, f"{streams} streams, seed {seed}"


def test_streams_do_run_in_another_order_for_another_seed():
    train = small(2)
    assert {s.stream for s in train.plan.steps if isinstance(s, Launch)} == {0, 1}
    start, log = train.state_dict(), find_device("sim").driver.log
    orders = set()
    for seed in range(6):
        log.clear()
        results(train, seed, start)
        orders.add(tuple(name for name in log if name != "event"))
    assert len(orders) > 1


def test_a_plan_without_any_one_of_its_waits_is_found():
    train = small(3)
    waits = [step for step in train.plan.steps if isinstance(step, Wait)]
    x, y = np.zeros((2, 1, 8, 8), np.float32), np.array([1, 3], np.int32)
    assert len(waits) > 2
    for number, wait in enumerate(waits):
        steps = tuple(step for step in train.plan.steps if step is not wait)
        device = Device(Simulator(), f"sim without wait {number}", declares=True)
        broken = CudaExecutable(replace(train.plan, steps=steps), train._state, device)
        with pytest.raises((RaceError, LogicError)):
            for _ in range(2):
                broken.run([x, y])
        device.driver.scheduler.drop()


def test_a_scatter_in_place_writes_what_changes(clean_environment: pytest.MonkeyPatch) -> None:
    clean_environment.setenv("GRAPHC_CHECK", "race")

    def added(x: Any, index: Any, updates: Any) -> Any:
        return graphc.scatter_add(x, 0, index, updates)

    specs = graphc.spec((7,), "float16"), graphc.spec((2,), "int32"), graphc.spec((2,), "float16")
    step = graphc.compile(added, *specs, device="sim")
    x = np.arange(7, dtype=np.float16)
    found = step(x, np.array([1, 5], np.int32), np.array([0.5, 0.25], np.float16))
    np.testing.assert_array_equal(found, x + np.array([0, 0.5, 0, 0, 0, 0.25, 0], np.float16))
