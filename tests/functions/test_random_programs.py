"""Random chains of functions with their gradients: the compiled CPU program equals NumPy."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from graphc.gradients.reverse import gradients
from graphc.trace import Tensor, current_builder
from tests.functions.tracing import run

SHAPES = ((17, 3, 5, 6), (16, 2, 4, 4), (1, 4, 3, 3), (33, 20), (2, 3, 8), (100, 1, 6, 6))
LARGEST = 20_000
"""Elements; a step that gives more, or nothing, is left out."""

Step = Callable[[random.Random, Tensor, Tensor], Tensor]


def axis(choice: random.Random, x: Tensor) -> int:
    return choice.randrange(x.ndim)


def convolution(choice: random.Random, x: Tensor, _: Tensor) -> Tensor:
    weight = f.broadcast_to(f.sin(f.arange(9, dtype="f32") + 1), (3, x.shape[1], 9))
    return f.conv2d(x, f.reshape(weight, (3, -1, 3, 3)), padding=1) * 0.3


STEPS: dict[str, tuple[int, Step]] = {
    "tanh": (0, lambda c, x, y: f.tanh(x)),
    "relu": (0, lambda c, x, y: f.relu(x)),
    "add": (0, lambda c, x, y: x + y if x.shape == y.shape else x + f.mean(y)),
    "multiply": (0, lambda c, x, y: x * y if x.shape == y.shape else x * f.tanh(f.sum(y))),
    "where": (1, lambda c, x, y: f.where(x > 0.1, x, f.max(x))),
    "softmax": (1, lambda c, x, y: f.softmax(x, axis(c, x))),
    "centre": (1, lambda c, x, y: x - f.mean(x, axis(c, x), keepdims=True)),
    "sum": (1, lambda c, x, y: f.sum(x, axis(c, x)) * 0.3),
    "layer_norm": (1, lambda c, x, y: f.layer_norm(x, x.shape[-1], eps=0.1)),
    "permute": (2, lambda c, x, y: f.permute_dims(x, c.sample(range(x.ndim), x.ndim))),
    "flatten": (2, lambda c, x, y: f.flatten(x)),
    "flip": (1, lambda c, x, y: f.flip(x, axis(c, x))),
    "concat": (1, lambda c, x, y: f.concat([x, x * 2], axis(c, x))),
    "slice": (1, lambda c, x, y: x[..., :: c.choice([1, 2, -1])]),
    "pad": (1, lambda c, x, y: f.pad(x, [(c.randrange(2), c.randrange(3)) for _ in x.shape])),
    "matmul": (2, lambda c, x, y: x @ f.matrix_transpose(x) * 0.2),
    "max_pool2d": (4, lambda c, x, y: f.max_pool2d(x, c.choice([1, 2, 3]), 1, padding=0)),
    "conv2d": (4, convolution),
}
"""By name: the axes that a step needs (4: exactly), and the step."""


def program(seed: int) -> Callable[[Any], tuple[Tensor, ...]]:
    """A chain of random steps on x: its result, the sum of the step before, the gradient of x."""

    def chain(x: Tensor) -> tuple[Tensor, ...]:
        choice, results = random.Random(seed), [x]
        while len(results) < 6:
            last, other = results[-1], choice.choice(results)
            needs, step = STEPS[choice.choice(sorted(STEPS))]
            windows = last.ndim == 4 and min(last.shape[2:]) >= 3
            if last.ndim < needs or (needs == 4 and not windows):
                continue
            result = step(choice, last, other)
            if 0 < result.size <= LARGEST:
                results.append(result)
        y = results[-1]
        (slope,) = gradients([y], [f.ones_like(y) * 0.5], [x], current_builder())
        return (y, f.sum(results[-2]), *([] if slope is None else [slope]))

    return chain


@pytest.mark.parametrize("seed", range(8))
def test_a_random_program_compiled_for_the_cpu_equals_numpy(seed: int) -> None:
    shape = SHAPES[seed % len(SHAPES)]
    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    expected = run(program(seed), x.astype(np.float64))
    results = graphc.compile(program(seed), graphc.spec(shape), device="cpu")(x)
    for got, exact in zip(results, expected, strict=True):
        # Several roundings per step, and sums whose errors grow with the root of their length.
        size = 1 + float(np.max(np.abs(exact)))
        tolerance = 16 * np.finfo(np.float32).eps * np.sqrt(x.size) * size
        np.testing.assert_allclose(got, exact, rtol=0, atol=tolerance)
