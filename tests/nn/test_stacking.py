"""Several modules as one whose parameters have an axis for them, and back."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.base.errors import GraphError


def test_stacked_parameters_are_those_of_all_and_come_apart_again() -> None:
    layers = [nn.Linear(3, 2) for _ in range(4)]
    stacked = nn.stack_modules(layers)
    assert stacked.weight.shape == (4, 2, 3) and layers[0].weight.shape == (2, 3)
    for layer, found in zip(layers, nn.unstack_modules(stacked), strict=True):
        np.testing.assert_array_equal(found.weight.numpy(), layer.weight.numpy())
        np.testing.assert_array_equal(found.bias.numpy(), layer.bias.numpy())


def test_what_is_shared_within_a_module_stays_shared() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.first = self.second = nn.Linear(2, 2)

    stacked = nn.stack_modules([Tied(), Tied()])
    assert stacked.first is stacked.second
    assert len(list(stacked.parameters())) == 2


def test_stacking_keeps_dtypes_and_what_is_trainable() -> None:
    layers = [nn.Linear(3, 2).to("bfloat16") for _ in range(2)]
    layers[0].bias.trainable = False
    stacked = nn.stack_modules(layers)
    assert stacked.weight.dtype == "bf16" and not stacked.bias.trainable


def test_a_mapped_parameter_has_the_type_of_one_sample_in_the_function() -> None:
    seen = []

    def shape(layer: Any, weight: Any) -> Any:
        seen.append((layer.weight.shape, weight.shape, layer.weight.ndim))
        return layer(graphc.ones(3)) + graphc.sum(weight)

    stacked = nn.stack_modules([nn.Linear(3, 2) for _ in range(4)])
    weight = nn.Parameter(np.ones((5, 4), np.float32))
    graph = graphc.trace(lambda s, w: graphc.vmap(shape, (0, 1))(s, w), stacked, weight)
    assert seen == [((2, 3), (5,), 2)]
    assert [v.type.shape for v in graph.outputs] == [(4, 2)]
    assert stacked.weight.shape == (4, 2, 3)


# fmt: off
MISTAKES = [
    (lambda: nn.stack_modules([]),
     "stack_modules: expected one module or more, got none"),
    (lambda: nn.stack_modules([nn.ReLU(), 3]),
     "stack_modules: expected one module or more, got ReLU, int"),
    (lambda: nn.stack_modules([nn.Linear(3, 2), nn.Linear(3, 4)]),
     "stack_modules: weight is f32[2,3] in module 0, f32[4,3] in module 1"),
    (lambda: nn.stack_modules([nn.Linear(3, 2), nn.Linear(3, 2, bias=False)]),
     "stack_modules: bias is f32[2] in module 0, missing in module 1"),
    (lambda: nn.unstack_modules(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 4))),
     "unstack_modules: expected parameters with one first extent, got 0.weight f32[2,3], "
     "0.bias f32[2], 1.weight f32[4,2], 1.bias f32[4]"),
    (lambda: nn.unstack_modules(nn.ReLU()),
     "unstack_modules: expected parameters with one first extent, got none"),
]
# fmt: on


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_mistakes_are_named(call: Any, message: str) -> None:
    with pytest.raises(GraphError, match=rf"^{re.escape(message)} \(test_stacking\.py:\d+\)$"):
        call()
