"""Whole models through `graphc.from_torch`: results and gradients beside PyTorch's."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import optim
from tests.tools import need_command, need_module

torch = need_module("torch")
nn, F = torch.nn, torch.nn.functional
WORDS = 13


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 6)
        self.lstm = nn.LSTM(6, 6, 2, batch_first=True)
        self.next = nn.Linear(6, WORDS)
        self.next.weight = self.words.weight

    def forward(self, words: Any) -> Any:
        return self.next(self.lstm(self.words(words))[0])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.attend, self.project = nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(approximate="tanh"), nn.Linear(16, 8))

    def forward(self, x: Any) -> Any:
        n, t, c = x.shape
        parts = self.attend(self.ln_1(x)).view(n, t, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(n, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 8), nn.Embedding(7, 8)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.ln = nn.LayerNorm(8)
        self.next = nn.Linear(8, WORDS, bias=False)
        self.next.weight = self.words.weight

    def forward(self, words: Any) -> Any:
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.next(self.ln(x))


def resnet18() -> Any:
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    need_command("g++", "clang++")
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):  # of kernels that may be built for another PyTorch
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchvision import models

    return models.resnet18(num_classes=10)


@pytest.mark.parametrize("kind", [LanguageModel, GPT])
def test_models_of_words_equal_eager(kind: Any) -> None:
    torch.manual_seed(0)
    words, following = torch.randint(0, WORDS, (2, 2, 7))
    check(kind(), words, following, "reference")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_resnet_of_torchvision_equals_eager() -> None:
    torch.manual_seed(0)
    model = resnet18()
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
