"""Training steps of PyTorch's models through graphc's two doors, beside PyTorch.

    python -m benchmarks.torch_doors resnet18|lstm|gpt [--threads N] [--rounds N]

`backend` is torch.compile(model, backend="graphc") with PyTorch's optimizer, `plan` the module that
graphc.from_torch makes, whose whole step is one plan; `eager` and `inductor` are PyTorch's. All
begin with the same weights and take turns: each round measures some steps of each. Prints the
seconds to the end of the first step, the median milliseconds of a step, and the loss after all.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import graphc
from graphc import optim

STEPS = 5
"""Steps of each variant in a round."""
RATE = 0.01


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 256)
        self.lstm = nn.LSTM(256, 256, 2, batch_first=True)
        self.next = nn.Linear(256, 1000)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.next(self.lstm(self.words(words))[0])


class Block(nn.Module):
    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(features), nn.LayerNorm(features)
        self.attend, self.project = nn.Linear(features, 3 * features), nn.Linear(features, features)
        wide = 4 * features
        self.mlp = nn.Sequential(nn.Linear(features, wide), nn.GELU(), nn.Linear(wide, features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, c = x.shape
        parts = self.attend(self.ln_1(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(n, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(1000, 256), nn.Embedding(64, 256)
        self.blocks = nn.Sequential(*(Block(256, 4) for _ in range(4)))
        self.ln, self.next = nn.LayerNorm(256), nn.Linear(256, 1000, bias=False)
        self.next.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        return self.next(self.ln(self.blocks(x)))


def resnet18() -> nn.Module:
    """torchvision's, whose own kernels may be built for another PyTorch."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchvision import models

    return models.resnet18()


def subject(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """(model, inputs, labels)."""
    if name == "resnet18":
        return resnet18(), torch.randn(8, 3, 64, 64), torch.randint(0, 1000, (8,))
    x, y = torch.randint(0, 1000, (2, 8, 64))
    return LanguageModel() if name == "lstm" else GPT(), x, y


def in_pytorch(
    model: nn.Module, backend: str, x: torch.Tensor, y: torch.Tensor
) -> Callable[[], Any]:
    call = model if backend == "eager" else torch.compile(model, backend=backend)
    rule = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)

    def step() -> float:
        rule.zero_grad()
        loss = F.cross_entropy(call(x).flatten(0, -2), y.flatten())
        loss.backward()
        rule.step()
        return loss.item()

    return step


def planned(model: nn.Module, x: torch.Tensor, y: torch.Tensor, threads: int) -> Callable[[], Any]:
    own = graphc.from_torch(model, x)

    def loss(model: Any, x: Any, y: Any) -> Any:
        found = model(x)
        rows = graphc.reshape(found, (-1, found.shape[-1]))
        return graphc.cross_entropy(rows, graphc.reshape(y, (-1,)))

    kinds = [graphc.spec(t.shape, str(t.dtype).removeprefix("torch.")) for t in (x, y)]
    rule = optim.SGD(lr=RATE, momentum=0.9)
    program = graphc.compile(loss, own, *kinds, update=rule, threads=threads)
    arrays = x.numpy(), y.numpy()
    return lambda: float(program(*arrays))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=("resnet18", "lstm", "gpt"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    os.environ["GRAPHC_NUM_THREADS"] = str(options.threads)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model, x, y = subject(options.model)

    steps: dict[str, Callable[[], Any]] = {}
    for name in ("eager", "graphc", "inductor", "plan"):
        torch._dynamo.config.allow_rnn = name == "graphc"  # without its backend it is not
        begin = time.perf_counter()
        own = copy.deepcopy(model)
        plan = name == "plan"
        steps[name] = planned(own, x, y, options.threads) if plan else in_pytorch(own, name, x, y)
        steps[name]()
        print(f"{name}: first step after {time.perf_counter() - begin:.1f} s", flush=True)
    times: dict[str, list[float]] = {name: [] for name in steps}
    losses = {}
    for _ in range(options.rounds):
        for name, step in steps.items():
            for _ in range(STEPS):
                begin = time.perf_counter()
                losses[name] = step()
                times[name].append(1000 * (time.perf_counter() - begin))
    for name, found in times.items():
        tenths = statistics.quantiles(found, n=10)
        print(
            f"{name}: {statistics.median(found):.1f} ms per step "
            f"(p10 {tenths[0]:.1f}, p90 {tenths[-1]:.1f}), loss {losses[name]:.4f}"
        )


if __name__ == "__main__":
    main()
