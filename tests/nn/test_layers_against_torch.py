"""Every layer beside PyTorch's of the same name and arguments, from the same weights."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc import nn
from tests.nn.running import random, run
from tests.tools import need_module

Make = Callable[[Any], Any]
IMAGE = (3, 4, 9, 7)

# fmt: off
LAYERS: list[tuple[Make, tuple[int, ...]]] = [
    (lambda nn: nn.Linear(6, 5), (3, 6)),
    (lambda nn: nn.Linear(6, 1, bias=False), (2, 3, 6)),
    (lambda nn: nn.Conv2d(4, 6, 3), IMAGE),
    (lambda nn: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), bias=False), IMAGE),
    (lambda nn: nn.Conv2d(4, 6, 3, dilation=2, groups=2, padding=2), IMAGE),
    (lambda nn: nn.Conv2d(4, 6, 3, padding="same"), IMAGE),
    (lambda nn: nn.Conv2d(4, 6, (4, 3), dilation=(1, 2), padding="same"), IMAGE),
    (lambda nn: nn.Conv2d(4, 4, 1, groups=4, padding="valid"), IMAGE),
    (lambda nn: nn.Conv1d(4, 6, 3), (3, 4, 9)),
    (lambda nn: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2, bias=False), (3, 4, 9)),
    (lambda nn: nn.Conv1d(4, 6, 3, padding="same", dilation=2), (3, 4, 9)),
    (lambda nn: nn.ConvTranspose2d(4, 6, 3), IMAGE),
    (lambda nn: nn.ConvTranspose2d(4, 6, (3, 2), stride=2, padding=1, output_padding=1, groups=2,
                                   bias=False, dilation=(2, 1)), IMAGE),
    (lambda nn: nn.MaxPool2d(2), IMAGE),
    (lambda nn: nn.MaxPool2d((3, 2), stride=2, padding=1), IMAGE),
    (lambda nn: nn.AvgPool2d(2), IMAGE),
    (lambda nn: nn.AvgPool2d(3, stride=(2, 1), padding=1), IMAGE),
    (lambda nn: nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    (lambda nn: nn.LayerNorm(7), IMAGE),
    (lambda nn: nn.LayerNorm((9, 7), eps=1e-3), IMAGE),
    (lambda nn: nn.LayerNorm([7], elementwise_affine=False), IMAGE),
    (lambda nn: nn.LayerNorm(7, bias=False), IMAGE),
    (lambda nn: nn.GroupNorm(2, 4), IMAGE),
    (lambda nn: nn.GroupNorm(4, 4, eps=1e-3, affine=False), IMAGE),
    (lambda nn: nn.Identity(), (3, 4)),
    (lambda nn: nn.ReLU(), (3, 4)),
    (lambda nn: nn.Sigmoid(), (3, 4)),
    (lambda nn: nn.Tanh(), (3, 4)),
    (lambda nn: nn.SiLU(), (3, 4)),
    (lambda nn: nn.GELU(), (3, 4)),
    (lambda nn: nn.GELU(approximate="tanh"), (3, 4)),
    (lambda nn: nn.LeakyReLU(0.2), (3, 4)),
    (lambda nn: nn.ELU(alpha=0.5), (3, 4)),
    (lambda nn: nn.Softplus(beta=2.0, threshold=1.0), (3, 4)),
    (lambda nn: nn.Softmax(dim=1), IMAGE),
    (lambda nn: nn.LogSoftmax(dim=-1), (3, 4)),
    (lambda nn: nn.Flatten(), IMAGE),
    (lambda nn: nn.Flatten(start_dim=2), IMAGE),
    (lambda nn: nn.Flatten(0, 1), IMAGE),
    (lambda nn: nn.Dropout(0.5).eval() if hasattr(nn.Module, "eval") else nn.Dropout(0.5), (3, 4)),
    (lambda nn: nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), (5, 4)),
    (lambda nn: nn.Sequential(OrderedDict(a=nn.Linear(4, 3), b=nn.Tanh())), (5, 4)),
    (lambda nn: nn.Sequential(nn.Sequential(nn.Linear(4, 3))), (5, 4)),
]
NORMS: list[tuple[Make, tuple[int, ...]]] = [
    (lambda nn: nn.BatchNorm2d(4), IMAGE),
    (lambda nn: nn.BatchNorm2d(4, eps=1e-3, momentum=0.3), IMAGE),
    (lambda nn: nn.BatchNorm2d(4, momentum=None), IMAGE),
    (lambda nn: nn.BatchNorm2d(4, affine=False), IMAGE),
    (lambda nn: nn.BatchNorm2d(4, track_running_stats=False), IMAGE),
    (lambda nn: nn.BatchNorm1d(6), (5, 6)),
    (lambda nn: nn.BatchNorm1d(6), (5, 6, 3)),
]
# fmt: on


def titles(layers: list[tuple[Make, tuple[int, ...]]]) -> list[str]:
    return [f"{repr(make(nn)).split(chr(10))[0]}-{shape}" for make, shape in layers]


def twins(make: Make) -> tuple[nn.Module, Any]:
    """Ours and PyTorch's layer, with PyTorch's weights in both."""
    torch = need_module("torch")
    torch.manual_seed(0)
    ours, theirs = make(nn), make(torch.nn)
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()
    }
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def assert_close(ours: Any, theirs: Any, terms: int = 1) -> None:
    """Equal but for rounding of sums of `terms` products of numbers around 1."""
    limit = 8 * np.finfo(np.float32).eps * max(terms, 8)
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=limit, atol=limit)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even:UserWarning")
@pytest.mark.parametrize(("make", "shape"), LAYERS, ids=titles(LAYERS))
def test_layer_agrees_with_pytorch(make: Make, shape: tuple[int, ...]) -> None:
    torch = need_module("torch")
    ours, theirs = twins(make)
    x = random(*shape)
    assert_close(run(ours, x), theirs(torch.from_numpy(x)), terms=64)


@pytest.mark.parametrize(("make", "shape"), NORMS, ids=titles(NORMS))
def test_batch_norm_trains_and_infers_as_pytorch(make: Make, shape: tuple[int, ...]) -> None:
    torch = need_module("torch")
    ours, theirs = twins(make)
    for seed in range(3):
        x = 2 * random(*shape, seed=seed) + 1
        theirs.train()
        assert_close(run(ours, x, training=True), theirs(torch.from_numpy(x)), terms=256)
        state = ours.state_dict()
        for name, expected in theirs.state_dict().items():
            assert state[name].dtype == expected.numpy().dtype
            assert_close(state[name], expected, terms=256)
        theirs.eval()
        assert_close(run(ours, x), theirs(torch.from_numpy(x)), terms=256)


def test_embedding_agrees_with_pytorch() -> None:
    torch = need_module("torch")
    ours, theirs = twins(lambda nn: nn.Embedding(7, 3))
    x = np.array([[0, 6, 3], [3, 3, 1]], np.int32)
    np.testing.assert_array_equal(run(ours, x), theirs(torch.from_numpy(x)).detach().numpy())


def test_weights_go_to_pytorch_and_back() -> None:
    torch = need_module("torch")
    make: Make = lambda nn: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))  # noqa: E731
    ours, theirs = make(nn), make(torch.nn)
    theirs.load_state_dict({k: torch.from_numpy(v) for k, v in ours.state_dict().items()})
    again = make(nn)
    again.load_state_dict(theirs.state_dict())
    for name, array in ours.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name], array)
