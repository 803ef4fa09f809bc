"""Loops of joined launches whose blocks own rows: no wait within, the same bits, and what finds a
barrier that is missing or a row that another block plays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base import target
from graphc.base.errors import PlanError
from graphc.base.target import Target
from graphc.kernels.cuda.joined import joined_launch as text
from graphc.kernels.cuda.recurrent.resident import RowTile, row_tile
from graphc.kernels.lower import lower
from graphc.ops.fused import kernels_in
from graphc.program import Program
from graphc.runtime.cuda.compile import compile_cuda
from graphc.runtime.plan.plan import JoinedLaunch, Launch, LaunchPart, Loop, Plan, RepeatedParts
from graphc.runtime.planner.joined import join_launches
from graphc.runtime.planner.joined.join_launches import joined
from graphc.runtime.sim import LaunchError
from tests.kernels.cuda_harness import build_device
from tests.tools import first_quick, need_command, need_nvrtc

STEPS, BATCH, WIDTH = 3, 16, 32
"""A block of 256 threads could own 8 rows of a width of 32; so few are dealt out one by one."""


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self, cell: str, width: int) -> None:
        self.cells = getattr(nn, cell)(6, width, 1)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        return self.cells(x)[0]


def step_of(
    cell: str, device: str, batch: int = BATCH, width: int = WIDTH, **options: Any
) -> tuple[Program, Any]:
    """The training step of a layer, and the layer."""
    graphc.seed(0)
    model = Recurrent(cell, width)
    specs = graphc.spec((STEPS, batch, 6)), graphc.spec((STEPS, batch, width))

    def loss_of(model: Any, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
        return graphc.mse_loss(model(x), y)

    options = {"streams": 1, "update": optim.SGD(lr=0.1), **options}
    return graphc.compile(loss_of, model, *specs, device=device, **options), model


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x, y = (random.standard_normal((STEPS, BATCH, n)).astype(np.float32) for n in (6, WIDTH))
    return x, y


@pytest.fixture
def joins(clean_environment: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The simulated GPU joins what a GPU would."""
    clean_environment.setitem(target.KINDS, "sim", target.GPU)
    return clean_environment


@pytest.fixture(scope="module")
def plan() -> Plan:
    found = step_of("LSTM", "cuda")[0].plan
    assert found is not None
    return found


def loops(run: JoinedLaunch) -> list[RepeatedParts]:
    return [part for part in run.parts if isinstance(part, RepeatedParts)]


def changed(plan: Plan, change: Callable[[RepeatedParts], RepeatedParts]) -> Plan:
    """`plan` with loops of its joined launch that are another's."""
    (run,) = plan.joined
    parts = tuple(change(p) if isinstance(p, RepeatedParts) else p for p in run.parts)
    return replace(plan, joined=(replace(run, parts=parts),))


def test_no_block_waits_for_another_within_loops(plan: Plan) -> None:
    (run,) = plan.joined
    forward, backward = loops(run)
    assert (len(forward.parts), len(backward.parts)) == (1, 2)
    for loop in (forward, backward):
        assert loop.waits
        assert all(isinstance(p, LaunchPart) and p.owns_rows and not p.waits for p in loop.parts)
    plan.verify()


def test_all_wait_before_such_a_loop(plan: Plan) -> None:
    with pytest.raises(PlanError, match="no block waits between"):
        changed(plan, lambda loop: replace(loop, waits=False)).verify()


@pytest.mark.parametrize("which", [0, 1])
def test_parts_that_other_blocks_play_must_wait(plan: Plan, which: int) -> None:
    def apart(loop: RepeatedParts) -> RepeatedParts:
        own = tuple(replace(p, owns_rows=n != which) for n, p in enumerate(loop.parts))
        return replace(loop, parts=own)

    with pytest.raises(PlanError, match="no block waits between"):
        changed(plan, apart).verify()


def test_what_a_block_does_not_own_makes_all_wait(plan: Plan) -> None:
    """Without what the kernels say of their arguments loops wait as they did, and a plan that does
    not is refused."""
    kernels = {
        name: replace(k, launches=tuple(replace(x, owned=x.owned[:-1]) for x in k.launches))
        for name, k in plan.kernels.items()
    }
    with pytest.raises(PlanError, match="no block waits between"):
        replace(plan, kernels=kernels).verify()
    again = joined(replace(plan, kernels=kernels, joined=()))
    (run,) = again.joined
    assert not any(loop.waits for loop in loops(run))
    again.verify()


@pytest.mark.parametrize("cell", first_quick(1, ["LSTM", "GRU"]))
def test_it_leaves_the_same_bits(cell: str, joins: pytest.MonkeyPatch) -> None:
    joins.setenv("GRAPHC_CHECK", "race")
    (together, one), (apart, other), (host, third) = (
        step_of(cell, "sim"),
        step_of(cell, "sim", disable=("join_launches",)),
        step_of(cell, "cpu"),
    )
    assert together.plan is not None and apart.plan is not None
    assert any(p.waits for run in together.plan.joined for p in loops(run))
    assert not apart.plan.joined
    losses = [step(*data()) for step in (together, apart, host)]
    assert losses[0] == losses[1] and np.isclose(losses[0], losses[2], rtol=1e-5)
    states = [m.state_dict() for m in (one, other, third)]
    for name, value in states[0].items():
        assert np.array_equal(value, states[1][name])
        np.testing.assert_allclose(value, states[2][name], rtol=1e-4, atol=1e-6)


def turning(x: graphc.Tensor) -> graphc.Tensor:
    """Each iteration reads what other threads of a block wrote, of the block's own rows."""

    def body(h: graphc.Tensor, x: graphc.Tensor) -> tuple[graphc.Tensor, graphc.Tensor]:
        new = graphc.flip(h, axis=1) + x
        return new, new

    return graphc.scan(body, x[0], x)[1]


@pytest.mark.parametrize("lacks", ["", "barrier", "place", "near"])
def test_a_race_is_found(lacks: str, joins: pytest.MonkeyPatch) -> None:
    """Without the barrier of a block's threads, or where another block plays some iterations; or
    where rows in shared memory are read before they are there."""
    joins.setenv("GRAPHC_CHECK", "race")
    whole, loop = text._JoinedText.part, text.loop_text
    if lacks in ("barrier", "place"):
        joins.setattr(join_launches, "staged_rows", lambda *_: None)
    if lacks == "near":
        early = "near.begin(t0);", "if (t0 == 0) near.begin(t0);"
        joins.setattr(text, "loop_text", lambda *x: [line.replace(*early) for line in loop(*x)])

    def part(self: Any, part: Any, depth: int) -> list[str]:
        lines = whole(self, part, depth)
        if not part.owns_rows or lacks in ("", "near"):
            return lines
        if lacks == "barrier":
            return [line for line in lines if line != "__syncthreads();"]
        return [line.replace("(0, dynamic_shared", "(t0, dynamic_shared") for line in lines]

    joins.setattr(text._JoinedText, "part", part)
    x = np.random.default_rng(0).integers(-9, 9, (8, BATCH, WIDTH)).astype(np.float32)
    turns = graphc.compile(turning, graphc.spec(x.shape), device="sim", streams=1)
    assert turns.plan is not None and any(p.waits for run in turns.plan.joined for p in loops(run))
    if lacks:
        with pytest.raises(LaunchError, match="with no barrier between"):
            turns(x)
        return
    h, found = x[0], turns(x)
    for t in range(len(x)):
        h = h[:, ::-1] + x[t]
        assert np.array_equal(found[t], h)


@pytest.mark.parametrize(
    ("fn", "own"),
    [
        (lambda x, w, y: graphc.matmul(x, w) * y, (0, 2, 3)),
        (lambda x, w, y: graphc.matmul(x, w) * y[0], (0, 3)),
        (lambda x, w, y: graphc.matmul(x, w) + graphc.transpose(y), (0, 3)),
        (lambda x, w, y: (graphc.matmul(x, w) + y) * w, (0, 2, 3)),
        (lambda x, w, y: graphc.matmul(x, w) + x * y, (0, 2, 3)),
    ],
)
def test_which_arguments_blocks_of_a_product_own(fn: Callable[..., Any], own: object) -> None:
    specs = [graphc.spec((64, 64)) for _ in range(3)]
    program = graphc.compile(fn, *specs, device="reference", streams=1)
    (node,) = kernels_in(program.graph)
    kernel = lower(node, Target("cuda", lanes=1, arch="sm_90a"), in_loop=True)
    assert "blocks that own 1 rows" in kernel.choice
    assert kernel.launches[0].owned == own


@pytest.mark.parametrize("along_k", [True, False])
def test_products_whose_weights_stay_near_are_cut_by_rows(along_k: bool) -> None:
    """Into as many blocks as are on multiprocessors at once; which hold weights of
    64 KB, and read larger ones again."""
    for m, n, k, rows, holds in ((256, 64, 64, 1, True), (600, 64, 64, 3, True)):
        found = row_tile(m, n, k, 4, along_k)
        assert found is not None and found[1] == RowTile(rows, 4 * n, holds)
    found = row_tile(64, 64, 96, 4, along_k)
    assert found is not None and found[1] == RowTile(1, 256, False)
    for m, n, k in ((256, 48, 64), (256, 64, 66), (256, 64, 256), (256, 16, 64)):
        assert row_tile(m, n, k, 4, along_k) is None


def test_blocks_hold_weights_in_registers(plan: Plan) -> None:
    """They are read before each loop; pointwise parts have as many blocks as the product."""
    (run,) = plan.joined
    held = [kernel for kernel in plan.kernels.values() if kernel.resident_bytes]
    assert len(held) == 2 and not any(kernel.fills_multiprocessor for kernel in held)
    for kernel in held:
        before, loop = run.kernel.source.split(f"{kernel.launches[0].symbol}_hold(held")
        assert before.rstrip().endswith("Held held;\n" + " " * 4 + f"{kernel.name}_part::")
        assert loop.index("for (int t0") < loop.index("HoldingBlock(block, held)")
    _, backward = [loop for loop in plan.steps if isinstance(loop, Loop)]
    grids = [plan.kernels[s.kernel].launches[0] for s in backward.steps if isinstance(s, Launch)]
    assert [(x.grid[0], x.block[0]) for x in grids] == [(BATCH, WIDTH), (BATCH, 256)]


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
def test_none_spills_where_two_blocks_share_the_registers(
    compiler: str, arch: str, tmp_path: Path
) -> None:
    """Of the largest weights that are held, 64 units of four gates, beside the other parts."""
    step, _ = step_of("LSTM", "cuda", batch=256, width=64)
    assert step.plan is not None
    assert sum(len(loops(run)) for run in step.plan.joined) == 2
    for run in step.plan.joined:
        used: Any
        if compiler == "nvrtc":
            need_nvrtc()
            (used,) = compile_cuda(run.kernel.source, "lstm", arch).usage.values()
        else:
            (used,) = build_device([run.kernel], tmp_path, need_command(compiler), arch).values()
        assert used.spilled == 0 and used.registers <= 128
