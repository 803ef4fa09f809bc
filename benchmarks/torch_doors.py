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
from benchmarks.torch_networks import GPT, LanguageModel, torchvision_models
from graphc import optim

STEPS = 5
"""Steps of each variant in a round."""
RATE = 0.01


def subject(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """(model, inputs, labels)."""
    if name == "resnet18":
        return (
            torchvision_models().resnet18(),
            torch.randn(8, 3, 64, 64),
            torch.randint(0, 1000, (8,)),
        )
    x, y = torch.randint(0, 1000, (2, 8, 64))
    return LanguageModel(1000, 256) if name == "lstm" else GPT(1000, 256, 64, 4, 4), x, y


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
