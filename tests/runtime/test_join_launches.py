"""Joined launches: their steps, that they leave the same bits, and what nvcc makes of them."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base import target
from graphc.base.errors import PlanError
from graphc.runtime.plan.plan import (
    Launch,
    LaunchPart,
    Loop,
    Plan,
    Record,
    RepeatedParts,
    all_steps,
)
from graphc.runtime.planner.joined.join_launches import joined
from graphc.runtime.proof.joined_proof import check_joined
from graphc.runtime.sim import LaunchError
from tests.kernels.cuda_harness import KERNELS
from tests.support.join_launches import (
    BATCH,
    MODELS,
    STEPS,
    joins,
    step_of,
    unrolled,
    waiting,
    without,
)
from tests.tools import first_quick, need_command

__all__ = ["joins"]


def plan_of(name: str) -> Plan:
    plan = step_of(name)[0].plan
    assert plan is not None
    return plan


@pytest.mark.parametrize("name", MODELS)
def test_a_small_training_step_is_one_launch(name: str) -> None:
    plan = plan_of(name)
    (run,) = plan.joined
    assert (run.first, run.stop) == (0, len(all_steps(plan.steps)))
    assert len(run.kernel.launches) == 1
    assert f"joined: steps 0 to {run.stop - 1} as one launch" in "\n".join(plan.notes)


@pytest.mark.parametrize("name", first_quick(3, MODELS))
@pytest.mark.parametrize("check", ["", "race"])
def test_it_leaves_the_same_bits(name: str, check: str, joins: pytest.MonkeyPatch) -> None:
    if check:
        joins.setenv("GRAPHC_CHECK", check)
    random = np.random.default_rng(0)
    (together, one), (apart, other) = (
        step_of(name, "sim", disable=disable) for disable in ((), ("join_launches",))
    )
    assert together.plan is not None and together.plan.joined
    assert apart.plan is not None and not apart.plan.joined
    _, specs, _ = MODELS[name]()
    for _ in range(3):
        x, y = (
            random.integers(0, 9, s.shape).astype(np.int32)
            if s.dtype == "i32"
            else random.standard_normal(s.shape).astype(np.float32)
            for s in specs
        )
        assert np.array_equal(together(x, y), apart(x, y))
    states = one.state_dict(), other.state_dict()
    assert all(np.array_equal(states[0][k], states[1][k]) for k in states[0])


def test_steps_that_differ_by_the_place_of_a_row_share_functions(
    clean_environment: pytest.MonkeyPatch,
) -> None:
    """So the text of the launch grows by calls alone."""

    def text(steps: int) -> str:
        clean_environment.setitem(MODELS, "unrolled", lambda: unrolled(steps))
        (run,) = plan_of("unrolled").joined
        return run.kernel.source

    short, long = text(8), text(14)
    assert short.count("GRAPHC_INLINE void") == long.count("GRAPHC_INLINE void")
    assert len(re.findall(r"Argument\{p\d+ \+ 6656ll\}", long)) == 2  # x[13], both ways


def test_no_wait_of_a_straight_run_is_redundant() -> None:
    plan = plan_of("mlp")
    plan.verify()
    assert len(waiting(plan)) > 4
    for part in waiting(plan):
        with pytest.raises(PlanError, match=r": no block waits between step .* which both touch "):
            without(plan, part).verify()


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_waits_within_loops_are_proved(cell: str) -> None:
    """Only where a loop begins or ends may one be more than is needed."""
    plan = plan_of(cell)
    plan.verify()
    steps, found = all_steps(plan.steps), 0
    for part in waiting(plan):
        try:
            without(plan, part).verify()
        except PlanError:
            found += 1
    inside = {n for s in plan.steps if isinstance(s, Loop) for n in _numbers(plan, s)}
    within = [p for p in waiting(plan) if p.step in inside]
    assert found >= len(waiting(plan)) - 2 * sum(isinstance(s, Loop) for s in steps)
    assert len(within) > 2
    for part in within:
        with pytest.raises(PlanError):
            without(plan, part).verify()


def _numbers(plan: Plan, loop: Loop) -> range:
    first = next(n for n, step in enumerate(all_steps(plan.steps)) if step is loop)
    return range(first + 1, first + 1 + len(all_steps(loop.steps)))


def test_parts_in_another_order_are_refused() -> None:
    """One that another one waits for; one that is missing; one on the other side of a loop."""
    plan = plan_of("mlp")
    (run,) = plan.joined
    turned = replace(run, parts=(*run.parts[1:], run.parts[0]))
    with pytest.raises(PlanError, match=r" plays step \d+ .* before step 0 .*, which both touch "):
        replace(plan, joined=(turned,)).verify()
    short = replace(run, parts=run.parts[1:])
    with pytest.raises(PlanError, match="does not play its steps in their order"):
        replace(plan, joined=(short,)).verify()
    plan = plan_of("LSTM")
    (run,) = plan.joined
    loop = next(n for n, part in enumerate(run.parts) if isinstance(part, RepeatedParts))
    found = [*run.parts]
    found[loop : loop + 2] = found[loop + 1], found[loop]
    with pytest.raises(PlanError, match="does not play its steps in their order"):
        replace(plan, joined=(replace(run, parts=tuple(found)),)).verify()


def test_parts_share_a_wait_that_several_need() -> None:
    """Second launches come behind one wait, where first ones need none of each other."""
    plan = plan_of("LSTM that draws")
    (run,) = plan.joined
    keys = [(p.step, p.launch) for p in run.parts if isinstance(p, LaunchPart)]
    assert keys != sorted(keys)
    plan.verify()
    second = [p for p in run.parts if isinstance(p, LaunchPart) and p.launch]
    assert 0 < sum(p.waits for p in second) < len(second)


def test_runs_of_the_same_steps_are_refused() -> None:
    plan = plan_of("mlp")
    (run,) = plan.joined
    message = f"begins before step {run.stop}, with which another one ends"
    with pytest.raises(PlanError, match=message):
        check_joined(replace(plan, joined=(run, run)))


def test_only_what_computes_or_copies_is_part_of_a_run() -> None:
    plan = plan_of("mlp")
    steps = (Record(0, 0), *plan.steps[1:])
    with pytest.raises(PlanError, match=r"step 0 .* is part of a joined launch$"):
        check_joined(replace(plan, steps=steps))


def test_a_wait_that_the_text_lacks_is_a_race(joins: pytest.MonkeyPatch) -> None:
    """The check build compares what blocks touch, whatever the plan says."""
    joins.setenv("GRAPHC_CHECK", "race")
    from graphc.kernels.cuda.joined import joined_launch as text

    whole = text._JoinedText.part

    def part(self: Any, part: Any, depth: int) -> list[str]:
        lines = whole(self, part, depth)
        if lines[0].startswith("grid_barrier") and depth:
            lines[0] = "__syncthreads();"
        return lines

    joins.setattr(text._JoinedText, "part", part)
    train, _ = step_of("LSTM", "sim")
    x = np.zeros((STEPS, BATCH, 6), np.float32)
    with pytest.raises(LaunchError, match="with no barrier between"):
        train(x, x[..., :1])


def test_several_streams_have_none() -> None:
    plan = step_of("mlp", streams=2)[0].plan
    assert plan is not None and plan.streams == 2 and not plan.joined


def test_what_gains_little_stays_alone(clean_environment: pytest.MonkeyPatch) -> None:
    """With launches as cheap as a wait nothing is joined; large kernels stand between runs."""
    plan = plan_of("mlp")
    cheap = replace(target.GPU, rates=replace(target.GPU.rates, launch=1.0))
    clean_environment.setitem(target.KINDS, "cuda", cheap)
    assert not joined(replace(plan, joined=())).joined


def test_what_reduces_behind_a_product_has_blocks_of_its_own(joins: pytest.MonkeyPatch) -> None:
    """A projection in blocks of 128 threads, and the layer norm of its rows in others of 256."""
    joins.setenv("GRAPHC_CHECK", "race")

    def build(x: graphc.Tensor, w: graphc.Tensor, shift: graphc.Tensor) -> graphc.Tensor:
        y = graphc.matmul(graphc.tanh(x), graphc.tanh(w)) + shift
        return graphc.tanh(graphc.layer_norm(y, (64,)))

    shapes = [(1024, 512), (512, 64), (64,)]
    specs = [graphc.spec(s) for s in shapes]
    together, apart = (
        graphc.compile(build, *specs, device="sim", streams=1, disable=disable)
        for disable in ((), ("join_launches",))
    )
    assert together.plan is not None and together.plan.joined
    threads = [[x.block[0] for x in k.launches] for k in together.plan.kernels.values()]
    assert [128, 256] in threads
    random = np.random.default_rng(0)
    values = [random.standard_normal(s).astype(np.float32) for s in shapes]
    assert np.array_equal(together(*values), apart(*values))


def test_a_large_kernel_stays_alone(clean_environment: pytest.MonkeyPatch) -> None:
    def build(x: graphc.Tensor, w: graphc.Tensor) -> graphc.Tensor:
        small = [graphc.sum(graphc.tanh(x[:16] * i), axis=1) for i in range(1, 4)]
        return graphc.matmul(x, w), graphc.sum(graphc.tanh(sum(small)))

    specs = graphc.spec((4096, 1024)), graphc.spec((1024, 1024))
    plan = graphc.compile(build, *specs, device="cuda", streams=1).plan
    assert plan is not None
    steps = all_steps(plan.steps)
    large = [n for n, s in enumerate(steps) if isinstance(s, Launch) and "matmul" in s.kernel]
    assert large and not any(r.first <= n < r.stop for r in plan.joined for n in large)


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
@pytest.mark.parametrize("name", first_quick(1, ["LSTM that draws", "LSTM", "mlp"]))
def test_nvcc_takes_them_and_spills_nothing(name: str, arch: str, tmp_path: Path) -> None:
    """Two blocks fit on a multiprocessor. No load goes by the cache that sees no other block's
    writes."""
    compiler = need_command("nvcc")
    (run,) = plan_of(name).joined
    text = tmp_path / "joined.cu"
    text.write_text(run.kernel.source)
    command = [compiler, "-std=c++20", f"-arch={arch}", f"-I{KERNELS}", "-Xptxas", "-v", str(text)]
    done = subprocess.run(
        [*command, "-cubin", "-o", str(tmp_path / "cubin")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "0 bytes spill stores" in done.stderr
    registers = re.search(r"Used (\d+) registers", done.stderr)
    assert registers is not None and int(registers[1]) <= 128
    ptx = tmp_path / "joined.ptx"
    subprocess.run([*command, "-ptx", "-o", str(ptx)], capture_output=True, check=True)
    assert "ld.global" in ptx.read_text() and "ld.global.nc" not in ptx.read_text()
