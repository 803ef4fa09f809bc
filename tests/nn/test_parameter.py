"""Parameters: how contents are replaced; mistakes with them and with layers' arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc import nn
from graphc.base.errors import GraphError
from tests.nn.running import random, run


def test_assigned_contents_are_seen_by_every_program() -> None:
    layer = nn.Linear(2, 1)
    layer.weight.assign(np.full((1, 2), 3.0))
    layer.bias.assign([1])
    np.testing.assert_array_equal(run(layer, np.ones((1, 2), np.float32)), [[7]])


def test_an_attribute_may_hold_another_parameter_or_none() -> None:
    layer, other = nn.Linear(2, 1), nn.Linear(2, 1)
    layer.weight, layer.bias = other.weight, None
    assert list(layer.state_dict()) == ["weight"] and layer.weight is other.weight
    layer.bias = other.bias
    assert list(layer.state_dict()) == ["weight", "bias"]


def test_loading_takes_another_modules_parameters() -> None:
    first, second = nn.Linear(2, 1), nn.Linear(2, 1)
    first.load_state_dict(second)
    np.testing.assert_array_equal(first.weight.numpy(), second.weight.numpy())


@pytest.mark.parametrize(
    "make",
    [nn.ReLU, nn.SiLU, nn.ReLU6, nn.Hardsigmoid, nn.Hardswish, nn.Mish, nn.SELU, nn.LeakyReLU,
     nn.ELU, nn.CELU, nn.Hardtanh, nn.Dropout, nn.Dropout2d],
)  # fmt: skip
def test_inplace_changes_nothing(make: Callable[..., nn.Module]) -> None:
    x = random(2, 3, 2, 2)
    np.testing.assert_array_equal(run(make(inplace=True), x), run(make(), x))


@pytest.mark.parametrize(
    "layer", [nn.MaxPool2d, nn.Conv2d, nn.BatchNorm2d, nn.Dropout2d, nn.MSELoss, nn.ReLU]
)
def test_a_wrong_argument_is_reported_under_the_layers_own_name(layer: Callable[..., Any]) -> None:
    name = layer.__name__  # type: ignore[attr-defined]
    with pytest.raises(
        TypeError, match=rf"^{name}\.__init__\(\) got an unexpected keyword argument 'colour'$"
    ):
        layer(colour="red")


# fmt: off
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: np.sum(nn.Parameter([1.0])),
     "a parameter is not an array: use graphc's functions in a traced function and .numpy() "
     "elsewhere"),
    (lambda: float(nn.Parameter(1.0)),
     "a parameter is not an array: use graphc's functions in a traced function and .numpy() "
     "elsewhere"),
    (lambda: setattr(nn.Parameter(1.0), "requires_grad", False),
     "Parameter: cannot set requires_grad: assign(array) overwrites the contents, and trainable "
     "says whether update rules change them"),
    (lambda: nn.Parameter([1.0]).assign([1.0, 2.0]),
     "Parameter.assign: expected float32[1], got float64[2]"),
    (lambda: setattr(nn.Linear(2, 1), "weight", np.zeros((1, 2))),
     "Linear: weight holds a parameter, got ndarray; weight.assign(array) or load_state_dict "
     "overwrite its contents"),
    (lambda: nn.ReLU().load_state_dict("w.pt"),
     "load_state_dict: expected a module or a mapping of names to arrays, got str; load_weights "
     "reads a file"),
    (lambda: nn.ReLU().load_state_dict(3),
     "load_state_dict: expected a module or a mapping of names to arrays, got int"),
]
# fmt: on


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_mistakes_are_named_with_the_users_line(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphError, match=rf"^{re.escape(message)} \(test_parameter\.py:\d+\)$"):
        mistake()
