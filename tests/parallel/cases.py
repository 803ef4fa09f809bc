"""What a rank trains in tests: `python -m tests.parallel.cases CASES [SHARDS]` prints JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim

BATCH, STEPS = 24, 4


class Images(nn.Module):
    """Two convolutions with batch normalization, and a layer."""

    def __init__(self) -> None:
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * 3 * 3, 5),
        )

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def dense(*middle: Any) -> Any:
    """A network of three layers for 20 features and 5 classes."""
    return nn.Sequential(
        nn.Linear(20, 33), nn.Tanh(), *middle, nn.Linear(33, 17), nn.ReLU(), nn.Linear(17, 5)
    )


CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], dict[str, Any]]] = {
    "sgd": (dense, lambda: optim.SGD(lr=0.1, momentum=0.9), {}),
    "adam": (dense, lambda: optim.Adam(lr=0.01), {}),
    "clipped": (dense, lambda: optim.SGD(lr=0.5, clip_grad_norm=0.1), {}),
    "accumulated": (dense, lambda: optim.Adam(lr=0.01), {"accumulate": 2}),
    "narrow": (dense, lambda: optim.Adam(lr=0.01), {"mixed": "float16"}),
    "streams": (dense, lambda: optim.Adam(lr=0.01), {"streams": 2, "threads": 2}),
    "dropout": (lambda: dense(nn.Dropout(0.5)), lambda: optim.SGD(lr=0.1), {"seed": 5}),
    "images": (Images, lambda: optim.SGD(lr=0.1), {}),
    "synchronized": (Images, lambda: optim.SGD(lr=0.1), {}),
}
"""The network, the optimizer and the options of `compile`, by the name of the case."""


def random_case(seed: int) -> tuple[Callable[[], Any], Callable[[], Any], dict[str, Any]]:
    """A random network of layers of odd widths, with a random optimizer and options."""
    rng = np.random.default_rng(seed)
    widths = [20, *rng.integers(1, 40, rng.integers(1, 5)).tolist()]
    middle = [nn.ReLU, nn.Tanh, nn.GELU, nn.Sigmoid, lambda: nn.Dropout(0.3)]
    chosen = [middle[n] for n in rng.integers(0, len(middle), len(widths))]

    def make() -> Any:
        layers: list[Any] = []
        for inputs, outputs, other in zip(widths, widths[1:], chosen, strict=False):
            layers += [nn.Linear(inputs, outputs, bias=bool(outputs % 3)), other()]
            layers += [nn.LayerNorm(outputs)] * (outputs % 4 == 0)
        return nn.Sequential(*layers, nn.Linear(widths[-1], 5))

    clip = [None, 0.5][seed % 2]
    rules: list[Callable[[], Any]] = [
        lambda: optim.SGD(lr=0.1, momentum=0.9, clip_grad_norm=clip),
        lambda: optim.Adam(lr=0.01, clip_grad_norm=clip),
        lambda: optim.AdamW(lr=0.01, ema=0.9),
        lambda: optim.RMSprop(lr=0.01),
    ]
    return make, rules[rng.integers(0, len(rules))], {"seed": seed, "streams": 1 + seed % 3}


def found(case: str) -> tuple[Callable[[], Any], Callable[[], Any], dict[str, Any]]:
    """The network, the optimizer and the options of a case; `random-N` is a random one."""
    name, _, seed = case.partition("-")
    return random_case(int(seed)) if name == "random" else CASES[case]


def batch(case: str) -> tuple[Any, Any]:
    """The whole batch."""
    rng = np.random.default_rng(0)
    shape = (3, 8, 8) if case in ("images", "synchronized") else (20,)
    x = rng.standard_normal((BATCH, *shape)).astype(np.float32)
    return x, rng.integers(0, 5, BATCH).astype(np.int32)


def loss_of(model: Any, x: Any, y: Any) -> Any:
    """The loss of samples."""
    return graphc.cross_entropy(model(x), y)


def program(case: str, parallel: Any) -> tuple[Any, Any]:
    """The step of a case, and its model, which other ranks than 0 begin with other weights."""
    make, rule, options = found(case)
    rank = 0 if parallel is None else parallel.rank
    graphc.seed(1 + rank)
    model = make()
    part = slice(0, BATCH) if parallel is None else parallel.part(BATCH)
    x, y = (graphc.spec(a[part].shape, a.dtype.name) for a in batch(case))
    step = graphc.compile(loss_of, model, x, y, update=rule(), parallel=parallel, **options)
    return step, model


def trained(case: str, parallel: Any = None, steps: int = STEPS) -> dict[str, Any]:
    """The losses of some steps, the trained model's state and its digest."""
    step, model = program(case, parallel)
    part = slice(0, BATCH) if parallel is None else parallel.part(BATCH)
    x, y = (a[part] for a in batch(case))
    losses = [float(step(x, y)) for _ in range(steps)]
    state = {n: a for n, a in step.state_dict().items() if n != "random.rank"}
    digest = hashlib.sha256(b"".join(state[n].tobytes() for n in sorted(state))).hexdigest()
    weights = {name: array.ravel().tolist() for name, array in model.state_dict().items()}
    return {"losses": losses, "digest": digest, "weights": weights}


def main(case: str, shards: str = "0", transport: str = "") -> None:
    """Print what this rank has trained; of several cases, with commas, by their names."""
    results = {}
    for name in case.split(","):
        parallel = graphc.DataParallel(
            shards=int(shards) or None,
            sync_batch_norm=name == "synchronized",
            transport=transport or None,
            timeout=60,
        )
        results[name] = trained(name, parallel)
    print(json.dumps(results if "," in case else results[case]))


if __name__ == "__main__":
    main(*sys.argv[1:])
