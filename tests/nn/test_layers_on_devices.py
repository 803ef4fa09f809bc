"""Every layer of the comparison with PyTorch, forward and backward, on the CPU and the simulated
GPU: the same numbers as NumPy gives. Many layers share one program, so that few are built."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from tests.nn.running import random
from tests.support.layers_against_torch import LAYERS, LOSSES, NORMS, Make

Case = tuple[Make, tuple[int, ...]]
PER_PROGRAM = 10
CASES: list[Case] = [*LAYERS, *NORMS]
PROGRAMS = [CASES[i : i + PER_PROGRAM] for i in range(0, len(CASES), PER_PROGRAM)]


def gradients_of(models: list[nn.Module], arrays: list[Any], *labels: Any) -> list[Any]:
    """Outputs, and gradients of a weighed sum of each with respect to input and parameters."""

    def weighed(model: nn.Module, x: Any, *label: Any) -> Any:
        y = model(x, *label)
        return graphc.sum(y * random(*y.shape, seed=7)), y

    results = []
    for i, (model, x) in enumerate(zip(models, arrays, strict=True)):
        label = labels[i : i + 1]
        (_, y), (parameters, dx) = graphc.value_and_grad(weighed, (0, 1))(model, x, *label)
        results += [y, dx, *parameters.values()]
    return results


def assert_equal_on(device: str, cases: list[Case], labels: list[Any]) -> None:
    graphc.seed(0)
    models = [make(nn) for make, _ in cases]
    arrays = [random(*shape) for _, shape in cases]
    specs = [graphc.spec(a.shape, a.dtype) for a in (*arrays, *labels)]

    def program(models: list[nn.Module], *inputs: Any) -> list[Any]:
        count = len(models)
        return gradients_of(models, list(inputs[:count]), *inputs[count:])

    results = []
    for name in ("reference", device):
        compiled = graphc.compile(program, models, *specs, device=name, training=True)
        results.append(compiled(*arrays, *labels))
    limit = 256 * float(np.finfo(np.float32).eps)
    assert len(results[0]) >= 2 * len(cases)
    for expected, found in zip(*results, strict=True):
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(found, expected, rtol=limit, atol=limit * scale)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_layers_compute_on_devices_what_numpy_does(device: str, number: int) -> None:
    assert_equal_on(device, PROGRAMS[number], [])


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_losses_compute_on_devices_what_numpy_does(device: str) -> None:
    generator = np.random.default_rng(1)
    labels = [
        {
            "numbers": random(*shape, seed=1),
            "probabilities": generator.dirichlet(np.ones(shape[1]), shape[0]).astype(np.float32),
            "signs": np.sign(random(*shape, seed=1)).astype(np.int64),
            "classes": generator.integers(0, shape[1], (shape[0], *shape[2:])),
        }[target]
        for _, shape, target in LOSSES
    ]
    assert_equal_on(device, [(make, shape) for make, shape, _ in LOSSES], labels)
