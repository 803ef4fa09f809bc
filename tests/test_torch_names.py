"""The page of PyTorch's names is what PyTorch and graphc say, and its schedules are PyTorch's."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from graphc import optim
from tests.tools import need_module

BASE, GAMMA, TOTAL = 0.3, 0.9, 6
KNOWN: dict[str, Any] = {
    "optim": optim,
    "base": BASE,
    "gamma": GAMMA,
    "step_size": 3,
    "milestones": [2, 5],
    "factor": 0.5,
    "total_iters": TOTAL,
    "start": 0.25,
    "end": 1.0,
    "low": 0.01,
    "high": BASE,
    "half": 4,
    "T_max": 10,
    "T_0": 4,
    "T_mult": 2,
    "total_steps": 20,
    "power": 2.0,
}
"""What the formulas of the page call by name."""
ARGUMENTS: dict[str, dict[str, Any]] = {
    "StepLR": {"step_size": 3, "gamma": GAMMA},
    "MultiStepLR": {"milestones": [2, 5], "gamma": GAMMA},
    "ConstantLR": {"factor": 0.5, "total_iters": TOTAL},
    "LinearLR": {"start_factor": 0.25, "end_factor": 1.0, "total_iters": TOTAL},
    "ExponentialLR": {"gamma": GAMMA},
    "CosineAnnealingLR": {"T_max": 10, "eta_min": 0.01},
    "CyclicLR": {"base_lr": 0.01, "max_lr": BASE, "step_size_up": 4},
    "CosineAnnealingWarmRestarts": {"T_0": 4, "T_mult": 2, "eta_min": 0.01},
    "OneCycleLR": {"max_lr": BASE, "total_steps": 20},
    "PolynomialLR": {"total_iters": TOTAL, "power": 2.0},
}


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    need_module("torch")
    return import_module("tools.write_torch_names")


def test_the_page_of_names_is_up_to_date(writer: ModuleType) -> None:
    assert writer.PAGE.read_text() == writer.page(), "run python tools/write_torch_names.py"


def test_every_name_has_something_to_use_instead(writer: ModuleType) -> None:
    assert "| — |" not in writer.page()


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_schedule_of_the_page_is_that_of_pytorch(name: str, writer: ModuleType) -> None:
    torch = need_module("torch")
    formula = writer.SCHEDULES[name].strip("`").removeprefix("lr=")
    ours = eval(formula, dict(KNOWN))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    schedule = getattr(torch.optim.lr_scheduler, name)(optimizer, **ARGUMENTS[name])
    for step in range(10):
        assert ours(step) == pytest.approx(schedule.get_last_lr()[0], rel=1e-9), step
        optimizer.step()
        schedule.step()
