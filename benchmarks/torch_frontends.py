"""Training steps of PyTorch's models through graphc's two front ends, beside PyTorch.

    python -m benchmarks.torch_frontends resnet18|lstm|gpt [--threads N] [--rounds N] [--cold]

`backend` is torch.compile(model, backend="graphc") with PyTorch's optimizer, `plan` the module that
graphc.from_torch makes, whose whole step is one plan; `eager` and `inductor` are PyTorch's. All
begin with the same weights and take turns: each round measures some steps of each. Prints the
seconds to the end of the first step, the median milliseconds of a step, both on the clock and of
the processor, and the loss after all. With `--cold` the two compilers' caches are empty at first.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch._inductor import config as inductor_config

import graphc
from benchmarks.torch_models.times import processor
from benchmarks.torch_networks import GPT, LanguageModel, torchvision_models
from graphc import optim

STEPS = 5
"""Steps of each variant in a round."""
RATE = 0.01
VARIANTS = ("eager", "graphc", "inductor", "plan")


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
    program = graphc.compile(loss, own, *kinds, update=rule, threads=threads, wait=True)
    arrays = x.numpy(), y.numpy()
    return lambda: float(program(*arrays))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=("resnet18", "lstm", "gpt"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--cold", action="store_true", help="with empty caches")
    options = parser.parse_args()
    if options.cold:
        folder = tempfile.TemporaryDirectory()
        os.environ["GRAPHC_CACHE_DIR"] = f"{folder.name}/graphc"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder.name}/inductor"
    os.environ["GRAPHC_NUM_THREADS"] = str(options.threads)
    torch.set_num_threads(options.threads)
    inductor_config.compile_threads = 1  # else others work, whose time is not seen
    torch.manual_seed(0)
    model, x, y = subject(options.model)

    steps: dict[str, Callable[[], Any]] = {}
    for name in options.variants:
        torch._dynamo.config.allow_rnn = name == "graphc"  # without its backend it is not
        begin, before = time.perf_counter(), processor()
        own = copy.deepcopy(model)
        plan = name == "plan"
        steps[name] = planned(own, x, y, options.threads) if plan else in_pytorch(own, name, x, y)
        steps[name]()
        spent = time.perf_counter() - begin, processor() - before
        print(f"{name}: first step after {spent[0]:.1f} s, {spent[1]:.1f} s of work", flush=True)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    losses = {}
    for _ in range(options.rounds):
        for name, step in steps.items():
            for _ in range(STEPS):
                begin, before = time.perf_counter(), time.process_time()
                losses[name] = step()
                times[name].append((time.perf_counter() - begin, time.process_time() - before))
    for name, found in times.items():
        clock, work = zip(*found, strict=True)
        tenths = [1000 * t for t in statistics.quantiles(work, n=10)]
        print(
            f"{name}: {1000 * statistics.median(clock):.1f} ms per step, "
            f"{1000 * statistics.median(work):.1f} ms of work "
            f"(p10 {tenths[0]:.1f}, p90 {tenths[-1]:.1f}), loss {losses[name]:.4f}"
        )


if __name__ == "__main__":
    main()
