"""What ranks that have a part of the optimizer's state train, save and load.

`python -m tests.parallel.sharded NAME FOLDER` prints JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.base.errors import RunError
from tests.parallel.cases import BATCH, batch, dense, loss_of, random_case, trained

CASES = ("sgd", "adam", "accumulated", "streams", "dropout", "images", "synchronized")
"""Of `cases.py`."""
RULES: dict[str, Callable[[], Any]] = {
    "adamw": lambda: optim.AdamW(
        groups=[
            {"params": lambda name: name.endswith("bias"), "weight_decay": 0.0},
            {"params": lambda name: True},
        ]
    ),
    "lion": lambda: optim.Lion(lr=1e-3, weight_decay=0.1),
    "rmsprop": lambda: optim.RMSprop(lr=0.01, momentum=0.9, weight_decay=0.01),
    "rprop": optim.Rprop,
    "nesterov": lambda: optim.SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
}


class Scaled(nn.Module):
    """A network whose results are scaled by a parameter without axes."""

    def __init__(self) -> None:
        self.layers, self.scale = dense(), nn.Parameter(np.float32(1.5))

    def forward(self, x: Any) -> Any:
        return self.layers(x) * self.scale


def step_of(rule: Any, sharded: bool, mixed: str | None = None, model: Any = None) -> Any:
    """The step of a network by a rule."""
    parallel = graphc.DataParallel(shard_optimizer_state=sharded, timeout=60)
    if model is None:
        graphc.seed(1)
        model = Scaled()
    part = parallel.part(BATCH)
    x, y = (graphc.spec(a[part].shape, a.dtype.name) for a in batch(""))
    step = graphc.compile(loss_of, model, x, y, update=rule, parallel=parallel, mixed=mixed)
    arrays = [a[part] for a in batch("")]
    return lambda: float(step(*arrays)), step, model


def alike(a: Any, b: Any) -> bool:
    """Whether two dicts have the same arrays."""
    return list(a) == list(b) and all(np.array_equal(a[n], b[n]) for n in a)


def cases(folder: str) -> dict[str, bool]:
    """Whether the losses and all state are those of ranks with all of the state."""

    def found(case: str, sharded: bool) -> Any:
        synchronized = case == "synchronized"
        return trained(
            case,
            graphc.DataParallel(
                sync_batch_norm=synchronized, shard_optimizer_state=sharded, timeout=60
            ),
        )

    return {case: found(case, True) == found(case, False) for case in CASES}


def rules(folder: str) -> dict[str, bool]:
    """The same for other rules, and for products of bfloat16."""
    same = {}
    for name, rule in [*RULES.items(), ("mixed", optim.Adam)]:
        results = []
        for sharded in (True, False):
            mixed = "bfloat16" if name == "mixed" else None
            train, step, _ = step_of(rule(), sharded, mixed)
            losses = [train() for _ in range(3)]
            results.append((losses, step.state_dict(), step.update.state_dict()))
        (losses, state, moments), (losses_2, state_2, moments_2) = results
        same[name] = losses == losses_2 and alike(state, state_2) and alike(moments, moments_2)
    return same


def randoms(folder: str) -> dict[str, bool]:
    """The same for random networks of odd widths, by rules in turn."""
    same = {}
    rules = [lambda: optim.Adam(lr=0.01), RULES["nesterov"], RULES["rmsprop"]]
    for seed in range(3):
        results = []
        for sharded in (True, False):
            graphc.seed(seed)
            train, step, _ = step_of(rules[seed](), sharded, model=random_case(seed)[0]())
            results.append(([train() for _ in range(3)], step.state_dict()))
        (losses, state), (losses_2, state_2) = results
        same[str(seed)] = losses == losses_2 and alike(state, state_2)
    return same


def saved(folder: str) -> dict[str, bool]:
    """Whether training goes on from what was saved, by each way to save and load."""
    train, step, model = step_of(optim.Adam(lr=0.01), True)
    first, before = train(), [train() for _ in range(2)][-1]
    program, rule, weights = step.state_dict(), step.update.state_dict(), model.state_dict()
    graphc.save_checkpoint(folder, 3, step)
    after = [train() for _ in range(2)]
    assert first != before != after[0]

    step.load_state_dict(program)
    same = {"program": [train() for _ in range(2)] == after}
    model.load_state_dict(weights)
    step.update.load_state_dict(rule)
    same["rule"] = [train() for _ in range(2)] == after
    for name, sharded in (("before compile", True), ("not sharded", False)):
        fresh = Scaled()
        fresh.load_state_dict(weights)
        early = optim.Adam()
        early.load_state_dict(rule)
        train_2, _, _ = step_of(early, sharded, model=fresh)
        same[name] = [train_2() for _ in range(2)] == after
    for name, sharded in (("checkpoint", True), ("checkpoint not sharded", False)):
        train_2, step_2, _ = step_of(optim.Adam(lr=0.01), sharded, model=Scaled())
        graphc.load_checkpoint(folder, step_2)
        same[name] = [train_2() for _ in range(2)] == after
    types = {name: str(kind) for name, kind in step.state_types().items()}
    same["types"] = types["exp_avg.layers.0.weight"] == types["layers.0.weight"] == "f32[33,20]"
    return same


def one(folder: str) -> dict[str, bool]:
    """The same as `rules` for one rule."""
    losses = [step_of(RULES["lion"](), sharded)[0]() for sharded in (True, False)]
    return {"lion": losses[0] == losses[1]}


def unloaded(folder: str) -> dict[str, bool]:
    """Whether ranks refuse to start where not all of them have loaded their slices."""
    train, step, _ = step_of(optim.Adam(lr=0.01), True)
    state = step.state_dict()
    if graphc.DataParallel().rank == 1:
        step.load_state_dict(state)
    try:
        train()
    except RunError as error:
        said = "rank 1 differs from rank 0 in sharded state: loaded, not new"
        return {"refused": said in str(error)}
    return {"refused": False}


FOUND = {each.__name__: each for each in (cases, rules, randoms, saved, one, unloaded)}

if __name__ == "__main__":
    print(json.dumps(FOUND[sys.argv[1]](sys.argv[2])), flush=True)
