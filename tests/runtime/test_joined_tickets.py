"""Joined launches of kernels whose last blocks draw tickets: as parts they draw none, leave the
same bits, and cut no run of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import PlanError
from graphc.kernels.cuda.contract import split_k
from graphc.kernels.cuda.contract.column_sums import FusedReduction
from graphc.kernels.cuda.contract.tiles.register_tiles import TILES
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.program.kernel import Kernel
from graphc.passes.fuse import rows
from graphc.program import Program
from graphc.runtime.plan.plan import (
    Copy,
    Launch,
    LaunchPart,
    Loop,
    Plan,
    RepeatedParts,
    Step,
    all_steps,
)
from tests.support.cuda_clusters import take
from tests.support.join_launches import joins, step_of, waiting, without
from tests.tools import first_quick, need_command

__all__ = ["joins"]
Build = tuple[Any, tuple[Any, ...], Any]


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self, cell: str) -> None:
        self.cells = getattr(nn, cell)(64, 64, 2)
        self.head = nn.Linear(64, 1)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        return self.head(self.cells(x)[0])


def recurrent(cell: str) -> Build:
    specs = graphc.spec((30, 256, 64)), graphc.spec((30, 256, 1))
    return Recurrent(cell), specs, graphc.mse_loss


def mlp() -> Build:
    layers = [layer for _ in range(3) for layer in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(256, 10))
    return model, (graphc.spec((16, 256)), graphc.spec((16,), "int32")), graphc.cross_entropy


SIZES = {"LSTM": lambda: recurrent("LSTM"), "GRU": lambda: recurrent("GRU"), "MLP": mlp}
NODES = [
    ("LSTM", "float32", 1, 16),
    ("GRU", "float32", 1, 15),
    ("MLP", "float32", 1, 8),
    ("LSTM", "tf32", 14, 9),
    ("GRU", "tf32", 13, 6),
]
"""Training steps of the sizes that docs/gpu-performance.md speaks of, the nodes of their graphs,
and the waits of all blocks of joined launches."""


def nodes(plan: Plan) -> int:
    """The nodes of a CUDA graph of `plan`: launches, of which joined ones are one, and copies."""
    within = {n for run in plan.joined for n in range(run.first, run.stop)}

    def count(steps: Sequence[Step], number: int) -> int:
        found = 0
        for step in steps:
            if isinstance(step, Loop):
                found += step.count * count(step.steps, number + 1)
            elif isinstance(step, Launch) and number not in within:
                found += len(plan.kernels[step.kernel].launches)
            elif isinstance(step, Copy):
                found += number not in within
            number += len(all_steps([step]))
        return found

    return len(plan.joined) + count(plan.steps, 0)


def waits(plan: Plan) -> int:
    """How often all blocks of its joined launches wait for each other."""
    steps = all_steps(plan.steps)

    def count(parts: Sequence[LaunchPart | RepeatedParts]) -> int:
        found = 0
        for part in parts:
            step = steps[part.step]
            found += part.waits
            if isinstance(part, RepeatedParts) and isinstance(step, Loop):
                found += step.count * count(part.parts)
        return found

    return sum(count(run.parts) for run in plan.joined)


def drawing(plan: Plan) -> list[Kernel]:
    return [kernel for kernel in plan.kernels.values() if kernel.draws_tickets]


@pytest.mark.parametrize(("name", "precision", "most", "late"), NODES)
def test_small_training_steps_are_few_nodes(
    name: str, precision: str, most: int, late: int
) -> None:
    model, specs, loss = SIZES[name]()
    program = graphc.compile(
        lambda model, x, y: loss(model(x), y),
        model,
        *specs,
        device="cuda",
        streams=1,
        precision=precision,
        update=optim.Adam(lr=0.001),
    )
    assert program.plan is not None
    assert nodes(program.plan) <= most
    assert waits(program.plan) <= late
    if precision == "float32" and name != "MLP":
        assert drawing(program.plan)


@pytest.mark.parametrize("check", ["race", ""])
@pytest.mark.parametrize("name", first_quick(1, ["GRU that draws", "LSTM that draws"]))
def test_it_leaves_the_bits_of_tickets(name: str, check: str, joins: pytest.MonkeyPatch) -> None:
    """Of separate launches, on one stream and on two."""
    joins.setenv("GRAPHC_CHECK", check)
    options: list[dict[str, Any]] = [{}, {"disable": ("join_launches",)}, {"streams": 2}]
    made = [step_of(name, "sim", **each) for each in options]
    plans = [program.plan for program, _ in made if program.plan]
    assert [nodes(plan) == 1 for plan in plans] == [True, False, False]
    assert all(map(drawing, plans))
    random = np.random.default_rng(0)
    for _ in range(2):
        x, y = (random.standard_normal((4, 512, n)).astype(np.float32) for n in (6, 1))
        losses = [program(x, y) for program, _ in made]
        assert np.array_equal(losses[0], losses[1]) and np.array_equal(losses[0], losses[2])
    wanted = made[0][1].state_dict()
    for _, model in made[1:]:
        state = model.state_dict()
        assert all(np.array_equal(wanted[key], state[key]) for key in wanted)


def product(a: Any, b: Any, c: Any) -> Any:
    return graphc.relu(graphc.matmul(a, b) + c) * 2


def normed(a: Any, b: Any, c: Any) -> Any:
    return graphc.layer_norm(graphc.matmul(a, b) + c, (b.shape[1],))


def deviation(x: Any, y: Any) -> Any:
    centred = graphc.tanh(x) - graphc.mean(graphc.tanh(x), axis=0, keepdims=True)
    return graphc.sum(centred * centred * y, axis=0), graphc.max(x, axis=0)


def of_rows(x: Any, a: Any, b: Any) -> Any:
    return graphc.sum(graphc.tanh(x), axis=1), graphc.matmul(a, b)


PROGRAMS: dict[str, tuple[Any, list[tuple[int, ...]], int]] = {
    "few parts of k": (product, [(40, 700), (700, 72), (72,)], 3),
    "many parts of k": (product, [(40, 1800), (1800, 72), (72,)], 27),
    "columns that are no runs": (product, [(37, 700), (700, 41), (41,)], 8),
    "rows behind": (normed, [(40, 1800), (1800, 72), (72,)], 27),
    "two stages": (deviation, [(2100, 8), (2100, 8)], 1),
    "rows": (of_rows, [(3, 40000), (40, 72), (72, 36)], 1),
}
"""What draws tickets, the shapes of its inputs, and the parts into which k is cut."""


def program_of(name: str, patch: pytest.MonkeyPatch, **options: Any) -> Program:
    """The program between others, with which it is joined."""
    function, shapes, splits = PROGRAMS[name]
    need_command("g++", "clang++")
    patch.setattr(split_k, "GPU", replace(GPU, launch=1e9))
    patch.setattr(FusedReduction, "adding", lambda *_: None)
    patch.setattr(rows, "LEAST_BYTES", 0)
    patch.setattr(rows, "LEAST_SUMMED", 0)
    take(TILES[6], splits, patch)

    def between(*arguments: Any) -> Any:
        found = function(*(graphc.exp(x * 0.25) for x in arguments))
        found = found if isinstance(found, tuple) else (found,)
        return tuple(graphc.sum(graphc.tanh(x), axis=-1) for x in found), found

    specs = [graphc.spec(s) for s in shapes]
    return graphc.compile(between, *specs, device="sim", **options)


def flat(results: Any) -> list[Any]:
    return [x for part in results for x in (part if isinstance(part, tuple) else (part,))]


@pytest.mark.parametrize("check", ["race", ""])
@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_leave_the_bits_of_tickets(name: str, check: str, joins: pytest.MonkeyPatch) -> None:
    joins.setenv("GRAPHC_CHECK", check)
    together = program_of(name, joins, streams=1)
    assert together.plan is not None and nodes(together.plan) == 1
    kernels = drawing(together.plan)
    assert kernels and all(len(k.joined_launches) == len(k.launches) + 1 for k in kernels)
    (run,) = together.plan.joined
    assert "draws_last" not in run.kernel.source and "DrawingBlock" not in run.kernel.source
    others = [
        program_of(name, joins, streams=1, disable="join_launches"),
        program_of(name, joins, streams=2),
    ]
    random = np.random.default_rng(0)
    _, shapes, _ = PROGRAMS[name]
    values = [random.standard_normal(s).astype(np.float32) for s in shapes]
    wanted = flat(together(*values))
    for other in others:
        assert other.plan is not None and not other.plan.joined
        for _ in range(2):
            for got, want in zip(flat(other(*values)), wanted, strict=True):
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["many parts of k", "two stages"])
def test_all_wait_where_a_ticket_was_drawn(name: str, joins: pytest.MonkeyPatch) -> None:
    plan = program_of(name, joins, streams=1).plan
    assert plan is not None
    launches = [(n, s) for n, s in enumerate(all_steps(plan.steps)) if isinstance(s, Launch)]
    draws = {n for n, step in launches if plan.kernels[step.kernel].draws_tickets}
    late = [p for p in waiting(plan) if p.step in draws and p.launch]
    assert late
    for part in late:
        with pytest.raises(PlanError, match=r": no block waits between step .* which both touch "):
            without(plan, part).verify()


@pytest.mark.parametrize(("lines", "stop"), [(8000, 5), (60000, 4)])
def test_a_run_that_gains_too_little_by_them_does_without(lines: int, stop: int) -> None:
    def build(x: Any, y: Any, w: Any) -> Any:
        for _ in range(4):
            y = graphc.tanh(graphc.matmul(y, w))
        return y, graphc.sum(graphc.tanh(x * y[0]), axis=0)

    specs = [graphc.spec(s) for s in ((lines, 64), (16, 64), (64, 64))]
    plan = graphc.compile(build, *specs, device="cuda", streams=1).plan
    assert plan is not None
    last = all_steps(plan.steps)[-1]
    assert isinstance(last, Launch) and plan.kernels[last.kernel].draws_tickets
    assert [(run.first, run.stop) for run in plan.joined] == [(0, stop)]
