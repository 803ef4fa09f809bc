"""Whole models through `graphc.from_torch`: results and gradients beside PyTorch's."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import optim
from tests.tools import need_command, need_module, need_package

torch = need_module("torch")
networks = need_module("benchmarks.torch_networks")
F = torch.nn.functional
WORDS = 13
KINDS = {
    "lstm": lambda: networks.LanguageModel(WORDS, 6, tied=True),
    "gpt": lambda: networks.GPT(WORDS, 8, 7, 2, 2, "tanh"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_words_equal_eager(kind: str) -> None:
    torch.manual_seed(0)
    words, following = torch.randint(0, WORDS, (2, 2, 7))
    check(KINDS[kind](), words, following, "reference")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_resnet_of_torchvision_equals_eager() -> None:
    need_package("torchvision")
    need_command("g++", "clang++")
    torch.manual_seed(0)
    model = networks.torchvision_models().resnet18(num_classes=10)
    check(model, torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,)), "cpu")


def check(model: Any, x: Any, y: Any, device: str) -> None:
    """Results, loss and all gradients in training, and running statistics, beside eager; the
    gradients as a step of size 1 gives them."""
    own = graphc.from_torch(copy.deepcopy(model), x)

    def function(model: Any, x: Any, y: Any) -> Any:
        found = model(x)
        rows = graphc.reshape(found, (-1, found.shape[-1]))
        return graphc.cross_entropy(rows, graphc.reshape(y, (-1,))), found

    specs = [graphc.spec(x.shape, str(x.dtype).removeprefix("torch.")), graphc.spec(y.shape, "i64")]
    step = graphc.compile(function, own, *specs, update=optim.SGD(lr=1.0), device=device)
    before = graphc.to_torch(own)
    loss, found = step(x, y)
    expected = model(x)
    value = F.cross_entropy(expected.flatten(0, -2), y.flatten())
    value.backward()
    near(found, expected.detach())
    near(loss, value.detach())
    after = graphc.to_torch(own)
    for name, buffer in model.named_buffers():
        near(after[name], buffer)
    for name, parameter in model.named_parameters():
        near(before[name] - after[name], parameter.grad, before[name].abs().max())


def near(a: Any, b: Any, beside: float = 0.0) -> None:
    """Equal but for rounding, in proportion to the largest; `beside`: what a lies in."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    bound = 1e-4 * np.abs(b).max() + 3e-7 * float(beside) + 1e-7
    assert np.abs(a - b).max() <= bound
