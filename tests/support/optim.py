"""Helpers of test_optim.py and of tests beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc import nn, optim
from tests.nn.running import Array, play, random, traced

STEPS = 20


SHAPES = {"conv1.weight": (4, 3, 3, 3), "conv1.bias": (4,), "scale": ()}


class Weights(nn.Module):
    """Parameters of a few shapes."""

    def __init__(self) -> None:
        for i, (name, shape) in enumerate(SHAPES.items()):
            vars(self)[name] = nn.Parameter(random(*shape, seed=i))


def gradient(name: str, step: int) -> Array:
    return random(*SHAPES[name], seed=100 + 10 * step + list(SHAPES).index(name))


class Training:
    """A program that updates `weights` by `rule` from gradients that are its inputs."""

    def __init__(self, rule: optim.Rule, weights: Weights | None = None) -> None:
        self.rule, self.weights = rule, weights or Weights()

        def update(*gradients: Any) -> tuple[()]:
            from graphc.trace import current_builder

            named = zip(self.weights.named_parameters(), gradients, strict=True)
            rule.emit(current_builder(), [(p, g, name) for (name, p), g in named])
            return ()

        arrays = [gradient(name, 0) for name in SHAPES]
        self.graph, self.builder = traced(update, *arrays, model=self.weights)

    def step(self, number: int) -> None:
        self.rule.before_step(self.rule.clock(self.builder.buffers.values()))
        play(self.graph, self.builder, *(gradient(name, number) for name in SHAPES))


def assert_same(ours: dict[str, Array], theirs: dict[str, Array]) -> None:
    """Equal but for the rounding of a few operations in each of the steps."""
    limit = 8 * STEPS * np.finfo(np.float32).eps
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=limit, atol=limit, err_msg=name)
