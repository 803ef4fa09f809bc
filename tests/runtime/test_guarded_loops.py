"""Loops that leave steps out: what is planned, that it is proved, and that nothing else counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import PlanError, RunError
from graphc.runtime.cpu import addresses
from graphc.runtime.plan.plan import Launch, Loop, Plan, Range, all_steps
from tests.test_control_flow import random_program
from tests.tools import first_quick

W = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32) / 4
MATRIX = graphc.spec((8, 8))


def doubled(x: Any, w: Any) -> Any:
    """A loop whose carries stay in their places."""
    return graphc.while_loop(
        lambda c: graphc.sum(c) < 10, lambda c: graphc.tanh(c @ w) + c + 1, x, 30
    )


def stacking(x: Any, w: Any) -> Any:
    """A loop whose stack is zeros where it does not run."""
    return graphc.scan(
        lambda c, a: (graphc.tanh(c @ w) + a, c), x, w, until=lambda c: graphc.sum(c) > 9
    )


def compiled(fn: Callable[..., Any], device: str = "cpu", **more: Any) -> Any:
    return graphc.compile(fn, MATRIX, MATRIX, device=device, **more)


def loop_of(plan: Plan) -> Loop:
    (loop,) = (step for step in plan.steps if isinstance(step, Loop))
    return loop


def with_loop(plan: Plan, loop: Loop) -> Plan:
    return replace(plan, steps=tuple(loop if isinstance(s, Loop) else s for s in plan.steps))


def test_a_loop_that_has_ended_leaves_all_steps_out() -> None:
    program = compiled(doubled)
    loop = loop_of(program.plan)
    assert loop.guard is not None and loop.guard.stop - loop.guard.start == 1
    assert all(step.guarded for step in loop.steps if isinstance(step, Launch))
    assert "times 30  guard while_loop.carry.0=work+0..1  reads" in str(program.plan)
    assert "matmul_tanh_add  if guard  reads" in str(program.plan).replace("_1 ", " ")


def test_kernels_that_fill_a_stack_are_not_left_out() -> None:
    loop = loop_of(compiled(stacking).plan)
    guarded = {s.kernel: s.guarded for s in loop.steps if isinstance(s, Launch)}
    assert any(guarded.values()) and not all(guarded.values())
    stacks = {stack.element for stack in loop.stacks}
    for step in loop.steps:
        if isinstance(step, Launch) and {w.value for w in step.writes} & stacks:
            assert not step.guarded


def test_a_gpu_computes_everything_and_drops_it() -> None:
    program = compiled(doubled, "sim")
    loop = loop_of(program.plan)
    assert loop.guard is None and not any(getattr(s, "guarded", False) for s in loop.steps)
    np.testing.assert_allclose(program(W, W), compiled(doubled, "reference")(W, W), rtol=1e-5)


def poison() -> None:
    """Fill the work memory with NaN."""
    addresses.ARENA.memory[...] = 0xFF


@pytest.mark.parametrize("fn", [doubled, stacking])
@pytest.mark.parametrize("streams", [1, 2])
def test_what_is_left_out_is_never_written(fn: Callable[..., Any], streams: int) -> None:
    program, expected = compiled(fn, streams=streams, threads=2), compiled(fn, "reference")
    loop = loop_of(program.plan)
    inner = next(
        w
        for s in loop.steps
        if isinstance(s, Launch) and s.guarded
        for w in s.writes
        if w.segment == "work" and w.stop - w.start == 256 and not w.moves
    )
    large = np.full((8, 8), 5, np.float32)
    for x, runs in ((W, True), (large, fn is stacking)):
        program(x, W)  # the arena is as large as it will be
        poison()
        found, wanted = program(x, W), expected(x, W)
        for got, want in zip(_flat(found), _flat(wanted), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        touched = (addresses.ARENA.memory[inner.start : inner.stop] != 0xFF).any()
        assert touched == runs


def _flat(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("seed", first_quick(4, range(40)))
def test_what_lies_in_memory_has_no_part_in_random_programs(seed: int) -> None:
    traced = random_program(seed, False)

    def step(x: Any, y: Any) -> Any:
        return graphc.value_and_grad(lambda a, b: traced(a, b)[0], (0, 1))(x, y)

    specs = graphc.spec(()), graphc.spec(())
    program = graphc.compile(step, *specs, device="cpu", streams=1 + seed % 2)
    expected = graphc.compile(step, *specs, device="reference")
    for x, y in np.random.default_rng(seed).uniform(-1, 1, (4, 2)).astype(np.float32):
        program(x, y)
        poison()
        (value, slopes), (want, wanted) = program(x, y), expected(x, y)
        np.testing.assert_allclose(value, want, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(slopes, wanted, rtol=1e-4, atol=1e-5)


def test_loops_within_a_branch_are_left_out_with_it() -> None:
    def fn(p: Any, x: Any, w: Any) -> Any:
        def inner() -> Any:
            return graphc.scan(lambda c, a: (graphc.tanh(c @ w) + a, None), x, w)[0]

        return graphc.cond(p, inner, lambda: 2 * x)

    program = graphc.compile(fn, graphc.spec((), "bool"), MATRIX, MATRIX, device="cpu")
    nested = [s for s in all_steps(program.plan.steps) if isinstance(s, Loop) and s.count == 8]
    assert [loop.guarded for loop in nested] == [True]
    np.testing.assert_array_equal(program(np.bool_(False), W, W), 2 * W)
    expected = graphc.compile(
        fn, graphc.spec((), "bool"), MATRIX, MATRIX, device="reference"
    )(np.bool_(True), W, W)  # fmt: skip
    np.testing.assert_allclose(program(np.bool_(True), W, W), expected, rtol=1e-5, atol=1e-6)
    assert str(program.profile(np.bool_(False), W, W, repeats=1))


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_nan_of_a_branch_that_is_not_taken_is_no_finding(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_CHECK", "nan")
    program = graphc.compile(
        lambda x: graphc.cond(x > 0, lambda: graphc.log(x), lambda: x - 1),
        graphc.spec(()), device=device,
    )  # fmt: skip
    assert program(np.float32(-1)) == -2
    wrong = graphc.compile(
        lambda x: graphc.cond(x > 0, lambda: graphc.log(x - 9), lambda: x - 1),
        graphc.spec(()), device=device,
    )  # fmt: skip
    assert wrong(np.float32(-1)) == -2
    with pytest.raises(RunError, match=r"^NaN in .*log"):
        wrong(np.float32(1))


def rejected(plan: Plan, problem: str) -> None:
    with pytest.raises(PlanError) as error:
        plan.verify()
    assert problem in str(error.value)


def test_a_plan_that_leaves_out_what_counts_is_rejected() -> None:
    plan = compiled(stacking).plan
    loop = loop_of(plan)
    plan.verify()
    kept = [n for n, s in enumerate(loop.steps) if isinstance(s, Launch) and not s.guarded]
    for number in kept:
        steps = list(loop.steps)
        steps[number] = replace(steps[number], guarded=True)  # type: ignore[call-arg]
        mutant = with_loop(plan, replace(loop, steps=tuple(steps)))
        rejected(mutant, "may leave out what writes %")


def test_a_plan_that_reads_what_is_left_out_is_rejected() -> None:
    plan = graphc.compile(
        lambda p, x: graphc.cond(p, lambda: x @ x, lambda: x), graphc.spec((), "bool"), MATRIX,
        device="cpu",
    ).plan  # fmt: skip
    plan.verify()
    without = {name: replace(k, choices=()) for name, k in plan.kernels.items()}
    rejected(replace(plan, kernels=without), ", which may be left out")


def test_a_plan_whose_guard_is_another_value_is_rejected() -> None:
    plan = compiled(doubled).plan
    loop = loop_of(plan)
    guard = loop.guard
    assert guard is not None
    rejected(with_loop(plan, replace(loop, guard=None)), "leaves steps out without a guard")
    for wrong in (
        replace(guard, value="less"),
        replace(guard, start=guard.start + 64, stop=guard.stop + 64),
        Range("io", 0, 1, guard.value),
    ):
        rejected(with_loop(plan, replace(loop, guard=wrong)), "does not hold that value")
    late = replace(loop, stages=2, count=loop.count + 1)
    rejected(with_loop(plan, late), "does not stay in its place")


def test_a_step_that_keeps_carries_does_so_by_the_guard_alone() -> None:
    plan = compiled(doubled).plan
    without = {name: replace(k, keeps=()) for name, k in plan.kernels.items()}
    rejected(replace(plan, kernels=without), "may leave out what writes %")
