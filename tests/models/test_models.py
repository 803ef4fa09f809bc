"""Whole models beside PyTorch: from equal weights, equal losses for five steps."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.training import MODELS, STEPS
from tests.tools import need_module

TOLERANCE = 5e-4
SIMULATED = ("autoencoder", "vgg", "gpt")

slow = pytest.mark.slow
DEVICES = [
    # ResNets have hundreds of kernels, whose building takes minutes where none is in the cache.
    *(pytest.param(name, "reference") for name in ("resnet18", "resnet50")),
    *(pytest.param(name, "cpu", marks=slow) for name in ("resnet18", "resnet50")),
    *(pytest.param(name, "cpu") for name in MODELS if not name.startswith("resnet")),
    *(pytest.param(name, "sim") for name in SIMULATED),
    *(pytest.param(name, "sim", marks=slow) for name in MODELS if name not in SIMULATED),
]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
@pytest.mark.parametrize(("name", "device"), DEVICES)
def test_losses_are_those_of_pytorch(name: str, device: str) -> None:
    need_module("torch")
    training = MODELS[name]
    ours, theirs = training.pair()
    expected = training.torch_losses(theirs, STEPS)
    step = training.compile(ours, device=device)
    x, y = training.batch()
    losses = [float(step(x, y)) for _ in range(STEPS)]
    np.testing.assert_allclose(losses, expected, rtol=TOLERANCE)
    assert len(set(expected)) == STEPS, "the losses would agree if nothing were trained"
