"""Schedules of learning rates have PyTorch's values."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.optim.schedules import Cosine, CosineRestarts, OneCycle, Plateau, Warmup
from tests.tools import need_module

BASE = 0.3
# fmt: off
SAME: list[tuple[Any, str, dict[str, Any], int]] = [
    (Cosine(BASE, 17), "CosineAnnealingLR", {"T_max": 17}, 18),
    (Cosine(BASE, 8, low=0.02), "CosineAnnealingLR", {"T_max": 8, "eta_min": 0.02}, 9),
    (CosineRestarts(BASE, 5), "CosineAnnealingWarmRestarts", {"T_0": 5}, 30),
    (CosineRestarts(BASE, 3, factor=2, low=0.01), "CosineAnnealingWarmRestarts",
     {"T_0": 3, "T_mult": 2, "eta_min": 0.01}, 40),
    (OneCycle(BASE, 50), "OneCycleLR", {"max_lr": BASE, "total_steps": 50}, 50),
    (OneCycle(BASE, 33, rising=0.45, divide=10, divide_at_end=100, linear=True), "OneCycleLR",
     {"max_lr": BASE, "total_steps": 33, "pct_start": 0.45, "div_factor": 10,
      "final_div_factor": 100, "anneal_strategy": "linear"}, 33),
    (OneCycle(BASE, 41, three_phases=True), "OneCycleLR",
     {"max_lr": BASE, "total_steps": 41, "three_phase": True}, 41),
    (Warmup(BASE, 6, start=0.25), "LinearLR", {"start_factor": 0.25, "total_iters": 6}, 12),
]
# fmt: on


@pytest.mark.parametrize(("ours", "name", "arguments", "steps"), SAME, ids=lambda v: str(v)[:40])
def test_a_schedule_is_that_of_pytorch(
    ours: Callable[[int], float], name: str, arguments: dict[str, Any], steps: int
) -> None:
    torch = need_module("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE, momentum=0.9)
    theirs = getattr(torch.optim.lr_scheduler, name)(optimizer, **arguments)
    for step in range(steps):
        assert ours(step) == pytest.approx(theirs.get_last_lr()[0], rel=1e-9, abs=1e-12), step
        optimizer.step()
        if step < steps - 1:
            theirs.step()


def test_a_warmup_leads_over_to_a_schedule_as_sequential_lr_does() -> None:
    torch = need_module("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    schedulers = torch.optim.lr_scheduler
    line = schedulers.LinearLR(optimizer, start_factor=0.1, total_iters=5)
    cosine = schedulers.CosineAnnealingLR(optimizer, T_max=10)
    theirs = schedulers.SequentialLR(optimizer, [line, cosine], milestones=[5])
    ours = Warmup(Cosine(BASE, 10), 5, start=0.1)
    for step in range(15):
        assert ours(step) == pytest.approx(theirs.get_last_lr()[0], rel=1e-9), step
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("cooldown", [0, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_plateau_is_that_of_pytorch(mode: str, relative: bool, cooldown: int, seed: int) -> None:
    torch = need_module("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer,
        mode=mode,
        factor=0.5,
        patience=2,
        threshold=0.05,
        threshold_mode="rel" if relative else "abs",
        cooldown=cooldown,
        min_lr=0.01,
    )
    ours = Plateau(
        BASE, 0.5, 2, threshold=0.05, relative=relative, cooldown=cooldown, low=0.01, mode=mode
    )
    values = np.random.default_rng(seed).uniform(0.5, 1, 60).tolist()
    values[20] = float("nan")
    for value in values:
        theirs.step(value)
        assert ours(value) == optimizer.param_groups[0]["lr"]


def test_a_rule_takes_a_schedule_and_pickles() -> None:
    rate = Warmup(Cosine(0.1, 4), 2)
    assert pickle.loads(pickle.dumps(rate)) == rate
    model = nn.Linear(2, 1)
    step = graphc.compile(
        lambda m: graphc.sum(m.weight**2), model, update=optim.SGD(lr=rate), device="reference"
    )
    rates = []
    for _ in range(8):
        rates.append(step.lr)
        step()
    assert rates == [rate(number) for number in range(8)]
    assert rates[-1] == 0


def test_a_cycle_of_one_or_two_steps_has_rates() -> None:
    assert OneCycle(BASE, 1)(0) == OneCycle(BASE, 1)(5) == pytest.approx(BASE / 25 / 1e4)
    assert all(0 <= OneCycle(BASE, steps)(n) <= BASE for steps in range(1, 9) for n in range(9))


# fmt: off
WRONG = [
    (lambda: Cosine(0.1, 0), "Cosine: steps expected a whole number from 1 up, got 0"),
    (lambda: CosineRestarts(0.1, 2.5), "CosineRestarts: steps expected a whole number from 1 up, "
     "got 2.5"),
    (lambda: CosineRestarts(0.1, 2, 0), "CosineRestarts: factor expected a whole number from 1 up, "
     "got 0"),
    (lambda: OneCycle(0.1, True), "OneCycle: steps expected a whole number from 1 up, got True"),
    (lambda: OneCycle(0.1, 9, rising=1), "OneCycle: rising expected a number between 0 and 1, "
     "got 1"),
    (lambda: OneCycle(0.1, 9, rising=0.6, three_phases=True),
     "OneCycle: rising expected a number between 0 and 0.5, got 0.6"),
    (lambda: Warmup(0.1, -1), "Warmup: steps expected a whole number from 1 up, got -1"),
    (lambda: Plateau(0.1, factor=1), "Plateau: factor expected a number between 0 and 1, got 1"),
    (lambda: Plateau(0.1, mode="least"), "Plateau: mode expected 'min' or 'max', got 'least'"),
]
# fmt: on


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[m for _, m in WRONG])
def test_a_mistake_is_named(make: Any, message: str) -> None:
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        make()
