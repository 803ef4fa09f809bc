"""The state of optimizers: saved, loaded, refused where it does not fit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from graphc import optim
from graphc.base.errors import GraphError
from tests.support.optim import SHAPES, Training, Weights, gradient


@pytest.mark.parametrize("compiled", [False, True], ids=["before compile", "after compile"])
def test_a_run_goes_on_from_its_saved_state(compiled: bool) -> None:
    whole = Training(optim.Adam(lr=0.03))
    for step in range(3):
        whole.step(step)
    state, weights = whole.rule.state_dict(), Weights()
    weights.load_state_dict(whole.weights.state_dict())
    rule = optim.Adam(lr=1.0)
    if compiled:
        resumed = Training(rule, weights)
        rule.load_state_dict(state)
    else:
        rule.load_state_dict(state)
        assert rule.state_dict().keys() == state.keys()
        resumed = Training(rule, weights)
    for step in range(3, 6):
        whole.step(step)
        resumed.step(step)
    for name, array in whole.weights.state_dict().items():
        np.testing.assert_array_equal(weights.state_dict()[name], array)
    assert rule.lr == 0.03


def test_state_has_rate_step_and_moments_by_parameter() -> None:
    training = Training(optim.SGD(lr=0.1, momentum=0.9))
    assert training.rule.state_dict().keys() == {"lr", "step", *(f"momentum.{n}" for n in SHAPES)}
    training.step(0)
    state = training.rule.state_dict()
    assert float(state["lr"]) == 0.1 and int(state["step"]) == 1
    np.testing.assert_array_equal(state["momentum.scale"], gradient("scale", 0))


def test_state_that_does_not_fit_changes_nothing() -> None:
    training = Training(optim.SGD(lr=0.1, momentum=0.9))
    state = training.rule.state_dict()
    del state["momentum.scale"]
    state["momentum.conv1.bias"] = np.zeros(5, np.float32)
    state["exp_avg.scale"] = np.zeros((), np.float32)
    state["step"] = np.array(7, np.int32)
    message = """\
load_state_dict: SGD
  missing momentum.scale : f32[]
  momentum.conv1.bias: expected f32[4], got f32[5]
  unexpected exp_avg.scale"""
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        training.rule.load_state_dict(state)
    assert training.rule.step == 0


@pytest.mark.parametrize(
    ("rate", "loaded", "message"),
    [
        (0.1, -1.0, r"SGD: lr expected a number in \[0, inf\), got -1\.0"),
        (lambda step: 0.5 - 0.1 * step, 0.1, r"SGD: lr expected a number in \[0, inf\), got -0\.2"),
    ],
    ids=["number", "schedule"],
)
def test_a_rate_that_is_none_changes_nothing(rate: Any, loaded: float, message: str) -> None:
    training = Training(optim.SGD(lr=rate, momentum=0.9))
    before = training.rule.state_dict()
    state = {name: array + 1 for name, array in before.items()}
    state |= {"lr": np.array(loaded), "step": np.array(7, np.int32)}
    with pytest.raises(GraphError, match=rf"^{message}\d* \(test_optim_state\.py:\d+\)$"):
        training.rule.load_state_dict(state)
    for name, array in training.rule.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_loaded_moments_must_hold_every_parameter() -> None:
    state = Training(optim.SGD(lr=0.1, momentum=0.9)).rule.state_dict()
    del state["momentum.scale"]
    rule = optim.SGD(lr=0.1, momentum=0.9)
    rule.load_state_dict(state)
    with pytest.raises(GraphError, match=r"^load_state_dict: SGD\n  missing momentum\.scale$"):
        Training(rule)
    with pytest.raises(
        GraphError, match=r"^momentum\.scale: expected float32\[\], got float32\[2\]$"
    ):
        rule.load_state_dict({**state, "momentum.scale": np.zeros(2, np.float32)})
        Training(rule)
