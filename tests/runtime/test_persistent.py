"""Loops whose blocks hold the weights of some units: one wait of all blocks in an iteration, the
same bits however they are played, and what finds a wait that is missing."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base import target
from graphc.base.errors import PlanError
from graphc.kernels.cuda.joined import joined_launch as text
from graphc.kernels.cuda.recurrent import resident as tiles
from graphc.kernels.cuda.recurrent.resident import persistent_tile
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.program import Program
from graphc.runtime.plan.plan import LaunchPart, Plan, RepeatedParts
from graphc.runtime.planner.joined.join_launches import joined
from graphc.runtime.sim import LaunchError
from tests.kernels.cuda_harness import KERNELS
from tests.tools import first_quick, need_command

STEPS = 8


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self, cell: str, width: int) -> None:
        self.cells = getattr(nn, cell)(6, width, 1)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        return self.cells(x)[0]


def step_of(
    cell: str, device: str, batch: int = 40, width: int = 36, **options: Any
) -> tuple[Program, Any]:
    """The training step of a layer, and the layer."""
    graphc.seed(0)
    model = Recurrent(cell, width)
    specs = graphc.spec((STEPS, batch, 6)), graphc.spec((STEPS, batch, width))

    def loss_of(model: Any, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
        return graphc.mse_loss(model(x), y)

    options = {"streams": 1, "update": optim.SGD(lr=0.5), "precision": "tf32", **options}
    return graphc.compile(loss_of, model, *specs, device=device, **options), model


def loops(plan: Plan | None) -> list[RepeatedParts]:
    assert plan is not None
    return [part for run in plan.joined for part in run.parts if isinstance(part, RepeatedParts)]


def waits(loop: RepeatedParts) -> list[bool]:
    return [part.waits for part in loop.parts if isinstance(part, LaunchPart)]


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


def test_all_blocks_wait_once_in_an_iteration(plan: Plan) -> None:
    """Forward before the product; backward before the partial sums of the product are added, so not
    between those sums and the gates' gradients."""
    forward, backward = loops(plan)
    assert (waits(forward), waits(backward)) == ([True], [False, False, True])
    assert not forward.waits and not backward.waits  # each is the first part of its launch
    held = [kernel for kernel in plan.kernels.values() if kernel.resident_bytes]
    assert [kernel.double_buffered for kernel in held] == [False, True]
    plan.verify()


@pytest.mark.parametrize("which", [0, 1])
def test_no_wait_is_redundant(plan: Plan, which: int) -> None:
    run = [r for r in plan.joined if isinstance(r.parts[0], RepeatedParts)][which]
    (loop,) = run.parts
    assert isinstance(loop, RepeatedParts)
    less = replace(loop, parts=tuple(replace(p, waits=False) for p in loop.parts))
    runs = tuple(replace(r, parts=(less,)) if r is run else r for r in plan.joined)
    with pytest.raises(PlanError, match="no block waits between"):
        replace(plan, joined=runs).verify()


@pytest.mark.parametrize("lacks", ["owned", "patches"])
def test_what_blocks_do_not_own_makes_all_wait(plan: Plan, lacks: str) -> None:
    """Without what the kernels say of their arguments a plan that waits as this one is refused, and
    another one waits more."""
    kernels = {
        name: replace(k, launches=tuple(replace(x, **{lacks: ()}) for x in k.launches))
        if lacks == "owned" or k.template == "pointwise"
        else k
        for name, k in plan.kernels.items()
    }
    with pytest.raises(PlanError, match="no block waits between"):
        replace(plan, kernels=kernels).verify()
    again = joined(replace(plan, kernels=kernels, joined=()))
    again.verify()
    assert sum(waits(loops(again)[1])) > 1


def test_partial_sums_take_turns(plan: Plan) -> None:
    """In one place the next iteration's would be written while others still read the last one's."""
    (step,) = (s for s in loops(plan)[1].parts if isinstance(s, LaunchPart) and s.waits)
    launch = next(s for loop in plan.steps for s in getattr(loop, "steps", ())
                  if plan.kernels[s.kernel].double_buffered)  # fmt: skip
    assert step.launch == 1 and [m.period for m in launch.writes[-1].moves] == [2]
    still = replace(launch.writes[-1], moves=())
    changed = replace(launch, writes=(*launch.writes[:-1], still))
    changed = replace(changed, arguments=changed.reads + changed.writes)
    steps = tuple(
        replace(s, steps=tuple(changed if x is launch else x for x in s.steps))
        if hasattr(s, "steps") and launch in s.steps
        else s
        for s in plan.steps
    )
    with pytest.raises(PlanError, match="no block waits between"):
        replace(plan, steps=steps).verify()


@pytest.mark.parametrize("size", first_quick(2, [(40, 36), (5, 128), (9, 33)]))
@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
def test_it_leaves_the_same_bits(
    cell: str, size: tuple[int, int], joins: pytest.MonkeyPatch
) -> None:
    """Joined, apart, on four streams; and what float32 leaves but for what tf32 rounds."""
    joins.setenv("GRAPHC_CHECK", "race")
    batch, width = size
    made = [
        step_of(cell, "sim", batch, width),
        step_of(cell, "sim", batch, width, disable=("join_launches",)),
        step_of(cell, "sim", batch, width, streams=4),
        step_of(cell, "cpu", batch, width, precision="float32"),
    ]
    plans = [step.plan for step, _ in made]
    assert loops(plans[0]) and not any(loops(plan) for plan in plans[1:3])
    assert plans[0] is not None and any(k.resident_bytes for k in plans[0].kernels.values())
    random = np.random.default_rng(0)
    x, y = (random.standard_normal((STEPS, batch, n)).astype(np.float32) for n in (6, width))
    losses = [[step(x, y) for _ in range(2)] for step, _ in made]
    assert losses[0] == losses[1] == losses[2]
    np.testing.assert_allclose(losses[0], losses[3], rtol=1e-4)
    states = [model.state_dict() for _, model in made]
    for name, value in states[0].items():
        assert np.array_equal(value, states[1][name]) and np.array_equal(value, states[2][name])
        np.testing.assert_allclose(value, states[3][name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("precision", ["tf32", "float32"])
@pytest.mark.parametrize("rows, k, strips", [(7, 24, 1), (20, 130, 1), (20, 130, 5), (20, 162, 3)])
def test_products_of_whole_numbers_are_exact(
    rows: int, k: int, strips: int, precision: str, joins: pytest.MonkeyPatch
) -> None:
    """Every row, column and k has its place: numbers up to 2048 are no rounded ones. On a device of
    few multiprocessors a block has strips of the columns."""
    joins.setenv("GRAPHC_CHECK", "race")
    joins.setattr(tiles, "NEAR_BYTES", 0)
    if strips > 1:
        few = 2 * -(-k // strips // 16)
        joins.setattr(tiles, "GPU", replace(GPU, multiprocessors=few))
    random = np.random.default_rng(k)
    h = random.integers(-1, 2, (rows, k)).astype(np.float32)
    w = random.integers(-1, 2, (k, k)) * (random.random((k, k)) < 12 / k)
    w = w.astype(np.float32)

    def turned(h: graphc.Tensor, w: graphc.Tensor) -> graphc.Tensor:
        return graphc.scan(lambda h, _: (graphc.matmul(h, w) * -1.0,) * 2, h, np.zeros(2, "f4"))[1]

    program = graphc.compile(
        turned, graphc.spec(h.shape), graphc.spec(w.shape), device="sim", precision=precision
    )
    assert program.plan is not None
    (held,) = (x for x in program.plan.kernels.values() if x.resident_bytes)
    assert f"Product<Problem, {strips}>" in held.source
    first, second = program(h, w)
    assert np.array_equal(first, -h @ w) and np.array_equal(second, h @ w @ w)
    assert np.abs(second).max() < 2048


def test_a_race_is_found(joins: pytest.MonkeyPatch) -> None:
    joins.setenv("GRAPHC_CHECK", "race")
    whole = text._JoinedText.part

    def part(self: Any, part: Any, depth: int) -> list[str]:
        return [x for x in whole(self, part, depth) if not (depth and x.startswith("grid_barrier"))]

    joins.setattr(text._JoinedText, "part", part)
    train, _ = step_of("LSTM", "sim", 32, 36)
    x = np.zeros((STEPS, 32, 36), np.float32)
    with pytest.raises(LaunchError, match="with no barrier between"):
        train(x[..., :6], x)


def test_a_device_that_holds_too_few_blocks_plays_steps(joins: pytest.MonkeyPatch) -> None:
    """The simulated one holds eight; all columns of 16 rows take ten."""
    made = [step_of("RNN", "sim", 16, 160, disable=d) for d in ((), ("join_launches",))]
    together = made[0][0]
    assert together.plan is not None and loops(together.plan)
    assert max(r.kernel.launches[0].multiple for r in together.plan.joined) == 10
    x = np.ones((STEPS, 16, 160), np.float32)
    assert together(x[..., :6], x) == made[1][0](x[..., :6], x)


@pytest.mark.parametrize("products", [1, 2])
def test_what_does_not_fit_beside_is_played_apart(products: int) -> None:
    """Of 2048 units blocks hold all that they can."""

    def body(h: graphc.Tensor, x: graphc.Tensor, *weights: graphc.Tensor) -> Any:
        for w in weights:
            h = graphc.tanh(graphc.matmul(h, w) + x)
        return h, h

    def build(x: graphc.Tensor, *weights: graphc.Tensor) -> graphc.Tensor:
        return graphc.scan(lambda h, x: body(h, x, *weights), x[0], x)[1]

    specs = [graphc.spec((STEPS, 16, 2048)), *[graphc.spec((2048, 2048))] * products]
    plan = graphc.compile(build, *specs, device="cuda", streams=1, precision="tf32").plan
    assert plan is not None and sum(k.resident_bytes > 0 for k in plan.kernels.values()) == products
    assert len(loops(plan)) == (products == 1)


def test_which_products_hold_their_weights() -> None:
    found = persistent_tile(64, 512, 512, 4)
    assert found is not None and (found[1].parts, found[1].workspace(64)) == (1, 0)
    found = persistent_tile(64, 512, 2048, 1)
    assert found is not None and (found[1].parts, found[1].workspace(64)) == (4, 4 << 20)
    assert persistent_tile(64, 512, 520, 4) is None  # too many registers
    for element, found in (("bfloat", True), ("half", True), ("as_bfloat", True), ("tf32", False)):
        for sections, k in ((4, 1024), (1, 4096)):
            assert (persistent_tile(32, 1024, k, sections, element) is not None) == found
    assert persistent_tile(64, 528, 2112, 1) is None
    for n, strips in ((512, 1), (2048, 4), (2044, 4)):  # as many as let all blocks be there at once
        found = persistent_tile(64, n, 512, 1)
        assert found is not None and found[1].strips == strips
    assert persistent_tile(64, 8, 8, 6) is None
    assert persistent_tile(64, 2113, 64, 1) is None  # too many columns, in no whole strips


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_nvcc_spills_nothing(arch: str, tmp_path: Path) -> None:
    """Of the largest weights that blocks hold, 512 units of four gates. No load goes by the cache
    that sees no other block's writes."""
    compiler = need_command("nvcc")
    plan = step_of("LSTM", "cuda", 64, 512)[0].plan
    assert plan is not None
    runs = [r for r in plan.joined if isinstance(r.parts[0], RepeatedParts)]
    assert len(runs) == 2
    for run in runs:
        file = tmp_path / "joined.cu"
        file.write_text(run.kernel.source)
        command = [compiler, "-std=c++20", f"-arch={arch}", f"-I{KERNELS}", "-Xptxas", "-v"]
        done = subprocess.run(
            [*command, str(file), "-cubin", "-o", str(tmp_path / "cubin")],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "0 bytes spill stores" in done.stderr
        registers = re.search(r"Used (\d+) registers", done.stderr)
        assert registers is not None and 128 < int(registers[1]) <= 255
        ptx = tmp_path / "joined.ptx"
        subprocess.run([*command, str(file), "-ptx", "-o", str(ptx)], check=True)
        assert "ld.global" in ptx.read_text() and "ld.global.nc" not in ptx.read_text()
