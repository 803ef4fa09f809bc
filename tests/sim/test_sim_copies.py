"""Copies of a module whose newest weights lie on the simulated GPU."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim


def loss(model: nn.Module, x: Any) -> Any:
    return graphc.mean(graphc.square(model(x)))


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))],
    ids=["deepcopy", "pickle"],
)
def test_a_copy_after_training_has_the_devices_weights_and_goes_its_own_way(
    duplicate: Callable[[nn.Module], nn.Module],
) -> None:
    model, x = nn.Linear(4, 3), np.ones((2, 4), np.float32)
    untrained = model.state_dict()

    def compiled(module: nn.Module) -> graphc.Program:
        rule = optim.SGD(lr=0.1)
        return graphc.compile(loss, module, graphc.spec(x.shape), update=rule, device="sim")

    train = compiled(model)
    train(x)
    trained = model.state_dict()
    train(x)
    twice = model.state_dict()
    train.load_state_dict(train.state_dict() | trained)
    train(x)  # the newest contents lie on the device, those of the host are old
    twin = duplicate(model)
    for name, array in twin.state_dict().items():
        np.testing.assert_array_equal(array, twice[name])
        assert (array != untrained[name]).any()
    compiled(twin)(x)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, twice[name])
        assert (twin.state_dict()[name] != array).any()
