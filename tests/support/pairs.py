"""Helpers of test_pairs.py and of tests beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.base.dtypes import convert, shown
from graphc.ir import DTYPES

EPS = 2.0**-24


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Floats that bf16 holds exactly."""
    random = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return shown(convert(random, DTYPES["bf16"]))


def turned(x: Any) -> Any:
    return graphc.swapaxes(x, -1, -2)


def played(
    function: Callable[..., Any], *arrays: np.ndarray, **settings: Any
) -> tuple[Any, Any, Any]:
    """The program with products of bf16, its results, and the reference's."""
    specs = [graphc.spec(a.shape) for a in arrays]
    program = graphc.compile(function, *specs, device="cpu", precision="bfloat16", **settings)
    reference = graphc.compile(function, *specs, device="reference", precision="bfloat16")
    return program, program(*arrays), reference(*arrays)


FORMS = {
    "nn": lambda a, b: a @ b,
    "nt": lambda a, b: a @ turned(b),
    "tn": lambda a, b: turned(a) @ b,
    "tt": lambda a, b: turned(a) @ turned(b),
}


def recurrent(batch: int, **settings: Any) -> tuple[Any, list[float]]:
    """Losses of three steps of a recurrent network, whose weight is read in every iteration."""
    graphc.seed(0)
    model = nn.LSTM(24, 32)

    def loss(model: Any, x: Any, y: Any) -> Any:
        return graphc.mean((model(x)[0] - y) ** 2)

    x, y = numbers(5, batch, 24), numbers(5, batch, 32, seed=1)
    rule = optim.SGD(lr=0.5)
    specs = graphc.spec(x.shape), graphc.spec(y.shape)
    step = graphc.compile(loss, model, *specs, update=rule, precision="bfloat16", **settings)
    return step, [float(step(x, y)) for _ in range(3)]
