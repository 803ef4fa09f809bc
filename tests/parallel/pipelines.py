"""What a rank of a pipeline trains: `python -m tests.parallel.pipelines CASES BATCHES`."""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim

BATCH, STEPS = 24, 3


def dense(*middle: Any) -> Any:
    """A network of five layers for 20 features and 5 classes."""
    return nn.Sequential(
        nn.Linear(20, 33),
        nn.Tanh(),
        nn.Linear(33, 29),
        nn.GELU(),
        *middle,
        nn.Linear(29, 31),
        nn.LayerNorm(31),
        nn.ReLU(),
        nn.Linear(31, 17),
        nn.ReLU(),
        nn.Linear(17, 5),
    )


def lenet() -> Any:
    """LeNet for 1 x 16 x 16 images, with batch normalization."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(144, 40),
        nn.ReLU(),
        nn.Linear(40, 5),
    )


class Shortcut(nn.Module):
    """Two convolutions with batch normalization beside a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Any) -> Any:
        return graphc.relu(self.layers(x) + self.shortcut(x))


def residual() -> Any:
    """Three blocks for 1 x 16 x 16 images."""
    blocks = [Shortcut(*channels) for channels in ((1, 6), (6, 8), (8, 9))]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(36, 5))


class Block(nn.Module):
    """Attention and two layers, each beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        self.norms = [nn.LayerNorm(width), nn.LayerNorm(width)]
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Any, mask: Any) -> Any:
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, attn_mask=mask)[0]
        return x + self.narrow(graphc.gelu(self.wide(self.norms[1](x))))


class GPT(nn.Module):
    """A small language model, whose embedding is also its last layer if it is tied."""

    def __init__(self, tied: bool, tokens: int = 11, length: int = 7, width: int = 16) -> None:
        self.embedding = nn.Embedding(tokens, width)
        self.places = nn.Parameter(np.zeros((length, width), np.float32))
        self.blocks = nn.ModuleList([Block(width, 2) for _ in range(3)])
        self.norm = nn.LayerNorm(width)
        self.tied = tied
        if not tied:
            self.last = nn.Linear(width, tokens, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.embedding(ids) + self.places
        mask = np.triu(np.ones((ids.shape[1], ids.shape[1]), bool), 1)
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x)
        return x @ self.embedding.weight.mT if self.tied else self.last(x)


class Recurrent(nn.Module):
    """Two recurrent layers between an embedding and a linear layer."""

    def __init__(self) -> None:
        self.embedding = nn.Embedding(11, 12)
        self.first = nn.GRU(12, 16, batch_first=True)
        self.second = nn.GRU(16, 10, batch_first=True)
        self.last = nn.Linear(10, 11)

    def forward(self, ids: Any) -> Any:
        return self.last(self.second(self.first(self.embedding(ids))[0])[0])


SEQUENCES = ("gpt", "tied", "recurrent")
"""The cases whose samples are sequences."""


def gpt_loss(model: Any, ids: Any, targets: Any) -> Any:
    """The loss of sequences."""
    logits = model(ids)
    return graphc.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def loss_of(model: Any, x: Any, y: Any) -> Any:
    """The loss of samples, and their classes."""
    logits = model(x)
    return graphc.cross_entropy(logits, y), graphc.argmax(logits, axis=1)


Case = tuple[Callable[[], Any], Callable[[], Any], dict[str, Any]]
CASES: dict[str, Case] = {
    "sgd": (dense, lambda: optim.SGD(lr=0.1, momentum=0.9), {}),
    "adam": (dense, lambda: optim.Adam(lr=0.01), {}),
    "clipped": (dense, lambda: optim.SGD(lr=0.5, clip_grad_norm=0.1), {}),
    "ema": (dense, lambda: optim.AdamW(lr=0.01, ema=0.9, clip_grad_norm=1.0), {}),
    "dropout": (lambda: dense(nn.Dropout(0.5)), lambda: optim.SGD(lr=0.1), {"seed": 5}),
    "narrow": (dense, lambda: optim.Adam(lr=0.01), {"mixed": "bfloat16"}),
    "streams": (dense, lambda: optim.Adam(lr=0.01), {"streams": 2, "threads": 2}),
    "lean": (dense, lambda: optim.Adam(lr=0.01), {"memory": "lean"}),
    "lenet": (lenet, lambda: optim.SGD(lr=0.1), {}),
    "residual": (residual, lambda: optim.SGD(lr=0.1), {}),
    "gpt": (lambda: GPT(False), lambda: optim.Adam(lr=0.01, clip_grad_norm=0.5), {}),
    "recurrent": (Recurrent, lambda: optim.SGD(lr=0.1), {}),
    "tied": (lambda: GPT(True), lambda: optim.Adam(lr=0.01), {}),
}
"""The network, the optimizer and the options of `compile`, by the name of the case."""


def random_case(seed: int) -> Case:
    """A random chain of layers of odd widths, with a random optimizer."""
    rng = np.random.default_rng(seed)
    widths = [20, *rng.integers(3, 40, rng.integers(6, 9)).tolist(), 5]
    middle = [nn.ReLU, nn.Tanh, nn.GELU, nn.Sigmoid, lambda: nn.Dropout(0.3)]
    chosen = [middle[n] for n in rng.integers(0, len(middle), len(widths))]

    def make() -> Any:
        layers: list[Any] = []
        for inputs, outputs, other in zip(widths, widths[1:], chosen, strict=False):
            layers += [nn.Linear(inputs, outputs, bias=bool(outputs % 3))]
            layers += [] if outputs == 5 else [other()]
            layers += [nn.LayerNorm(outputs)] * (outputs % 4 == 0)
        return nn.Sequential(*layers)

    rules: list[Callable[[], Any]] = [
        lambda: optim.SGD(lr=0.1, momentum=0.9, clip_grad_norm=0.5),
        lambda: optim.Adam(lr=0.01),
        lambda: optim.AdamW(lr=0.01, ema=0.9, clip_grad_norm=[None, 0.1][seed % 2]),
    ]
    return make, rules[rng.integers(0, len(rules))], {"seed": seed}


def random_stages(case: str, ranks: int) -> list[str] | None:
    """Where stages of a random chain begin, at random: for even seeds at layers that no
    normalization stands before, where one process begins kernels too. Else None."""
    name, _, seed = case.partition("-")
    if name != "random":
        return None
    layers = [*found(case)[0]()]
    linear = [0]
    linear += [
        n
        for n, (one, other) in enumerate(itertools.pairwise(layers), 1)
        if isinstance(other, nn.Linear) and not isinstance(one, nn.LayerNorm)
    ]
    rng = np.random.default_rng([int(seed), ranks])
    chosen = sorted(rng.choice(np.arange(1, len(linear)), ranks - 1, replace=False))
    ends = [linear[n] for n in chosen]
    if int(seed) % 2:  # some modules before or behind that
        ends = [int(rng.integers(linear[n - 1] + 1, linear[n] + 1)) for n in chosen]
    return [str(n) for n in ends]


def found(case: str) -> Case:
    """The network, the optimizer and the options of a case; `random-N` is a random one."""
    name, _, seed = case.partition("-")
    return random_case(int(seed)) if name == "random" else CASES[case]


def batch(case: str) -> tuple[Any, Any]:
    """The whole batch."""
    rng = np.random.default_rng(0)
    if case in SEQUENCES:
        ids = rng.integers(0, 11, (BATCH, 8)).astype(np.int32)
        return np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])
    shape = (1, 16, 16) if case in ("lenet", "residual") else (20,)
    x = rng.standard_normal((BATCH, *shape)).astype(np.float32)
    return x, rng.integers(0, 5, BATCH).astype(np.int32)


def program(case: str, batches: int, parallel: Any = None) -> tuple[Any, Any]:
    """The step of a case, by a pipeline or by one process, and its model."""
    make, rule, options = found(case)
    graphc.seed(1)
    model = make()
    loss = gpt_loss if case in SEQUENCES else loss_of
    specs = [graphc.spec(a.shape, a.dtype.name) for a in batch(case)]
    how = {"accumulate": batches} if parallel is None else {"parallel": parallel}
    return graphc.compile(loss, model, *specs, update=rule(), **how, **options), model


def trained(case: str, batches: int, parallel: Any = None) -> dict[str, Any]:
    """The results of some steps, and digests of all state by name."""
    step, _ = program(case, batches, parallel)
    results = [step(*batch(case)) for _ in range(STEPS)]
    losses = [r[0] if isinstance(r, tuple) else r for r in results]
    last = results[-1][1].tolist() if isinstance(results[-1], tuple) else []
    arrays = step.state_dict()
    weights = {n: arrays[n].ravel().tolist() for n in arrays if n.endswith(("weight", "bias"))}
    state = {n: hashlib.sha256(a.tobytes()).hexdigest() for n, a in arrays.items()}
    losses = [float(x).hex() for x in losses]
    return {"losses": losses, "classes": last, "state": state, "weights": weights}


def main(cases: str, batches: str) -> None:
    """Print what this rank has trained of each case, with each number of micro-batches."""
    results = {}
    for case in cases.split(","):
        for count in batches.split(","):
            ranks = graphc.PipelineParallel(1, timeout=60).ranks
            parallel = graphc.PipelineParallel(int(count), random_stages(case, ranks), timeout=60)
            results[f"{case} {count}"] = trained(case, int(count), parallel)
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
