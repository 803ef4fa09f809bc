"""One stream against two with two workers in all, and what `auto` makes of it.

    python -m benchmarks.streams [--seconds 20]

Trains on the CPU with two workers in all: layers of convolutions, whose backward pass has two
kernels for each, and blocks of branches as in Inception. The programs take turns; a row has the
lowest tenth of each one's times, and the median of the ratios to one stream in the same turn. The
column A/A is that of one stream's second program, which differs from the first by noise alone.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.program import Program

COLUMNS: dict[str, int | str] = {"1 stream": 1, "A/A": 1, "2 streams": 2, "auto": "auto"}


class Convolutions(nn.Module):
    """Four convolutions of 64 channels on 14 x 14."""

    channels = 64

    def __init__(self) -> None:
        self.convolutions = [nn.Conv2d(64, 64, 3, padding=1) for _ in range(4)]
        self.head = nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        for convolution in self.convolutions:
            x = graphc.relu(convolution(x))
        return self.head(graphc.mean(x, (2, 3)))


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        def layers(*widths: int, kernel: int = 1) -> nn.Sequential:
            made: list[nn.Module] = []
            for n, (a, b) in enumerate(itertools.pairwise(widths)):
                size = kernel if n == len(widths) - 2 else 1
                made += [nn.Conv2d(a, b, size, padding=size // 2), nn.ReLU()]
            return nn.Sequential(*made)

        self.point, self.small = layers(channels, 16), layers(channels, 24, 32, kernel=3)
        self.large = layers(channels, 4, 8, kernel=5)
        self.pooled = layers(channels, 8)

    def forward(self, x: Any) -> Any:
        pooled = graphc.max_pool2d(x, 3, 1, 1)
        branches = [self.point(x), self.small(x), self.large(x), self.pooled(pooled)]
        return graphc.concat(branches, 1)


class Inception(nn.Module):
    """Two blocks of four branches on 14 x 14."""

    channels = 48

    def __init__(self) -> None:
        self.blocks, self.head = nn.Sequential(Block(48), Block(64)), nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        return self.head(graphc.mean(self.blocks(x), (2, 3)))


def loss(model: Any, x: Any, y: Any) -> Any:
    return graphc.cross_entropy(model(x), y)


def trainer(model: type[Any], batch: int, streams: int | str) -> Program:
    graphc.seed(0)
    specs = graphc.spec((batch, model.channels, 14, 14)), graphc.spec((batch,), "int32")
    options: dict[str, Any] = {"device": "cpu", "threads": 2, "streams": streams, "wait": True}
    return graphc.compile(loss, model(), *specs, update=optim.SGD(lr=0.01), **options)


def row(name: str, model: type[Any], batch: int, seconds: float) -> str:
    programs = {column: trainer(model, batch, n) for column, n in COLUMNS.items()}
    x = np.random.default_rng(0).standard_normal((batch, model.channels, 14, 14))
    inputs = x.astype(np.float32), np.zeros(batch, np.int32)
    for program in programs.values():
        program(*inputs)
    times: dict[str, list[float]] = {column: [] for column in programs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["auto"]) < 10:
        for column, program in list(programs.items())[:: -1 if len(times["auto"]) % 2 else 1]:
            begin = time.perf_counter()
            program(*inputs)
            times[column].append(time.perf_counter() - begin)

    def figure(column: str) -> str:
        ratio = median(t / one for t, one in zip(times[column], times["1 stream"], strict=True))
        return f"{1e6 * quantiles(times[column], n=10)[0]:.0f} us ({ratio:.3f})"

    plans = [programs[column].plan for column in ("1 stream", "2 streams", "auto")]
    one, two, chosen = (plan for plan in plans if plan is not None)
    gain = two.estimate.serial / two.estimate.microseconds
    cells = [f"{name}, batch {batch}", str(len(times["auto"])), *map(figure, list(COLUMNS)[:3])]
    cells += [f"{gain:.2f}", f"{two.peak_bytes / one.peak_bytes - 1:+.1%}"]
    cells += [f"{chosen.streams}: {figure('auto')}"]
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each row")
    seconds = parser.parse_args(arguments).seconds
    heads = ["training", "turns", "1 stream", "A/A", "2 streams", "gain by the model", "memory"]
    print(f"| {' | '.join([*heads, 'auto'])} |\n|{' --- |' * 8}", flush=True)
    for batch in (1, 4, 16, 64):
        print(row("convolutions", Convolutions, batch, seconds), flush=True)
    for batch in (1, 4):
        print(row("Inception", Inception, batch, seconds), flush=True)


if __name__ == "__main__":
    main()
