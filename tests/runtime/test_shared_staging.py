"""Rows that the blocks of a loop have in shared memory: which lines move, and when."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from graphc.kernels.program.joined import StagingTime
from graphc.runtime.plan.plan import Launch, Loop, Plan, Range
from graphc.runtime.planner.joined.shared_staging import is_constant, staged_rows
from tests.support.recurrent_loops import step_of


def plan_of(cell: str, precision: str = "float32") -> Plan:
    plan = step_of(cell, "cuda", 32, 16, 5, precision=precision)[0].plan
    assert plan is not None
    return plan


def moves_of(plan: Plan) -> list[Counter[str]]:
    """Of each loop, how many lines move in each way."""
    texts = [run.kernel.source for run in plan.joined]
    found = [part.split("};")[0] for text in texts for part in text.split("const Line lines[]")[1:]]
    return [Counter(re.findall(r"Moves::(\w+)", part)) for part in found]


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_an_lstm_hands_on_its_state_near(precision: str) -> None:
    forward, backward = moves_of(plan_of("LSTM", precision))
    # The sums of the input come; cell, state and gates go; the first cell and state are read.
    assert forward == {"ahead": 1, "behind": 3, "before": 2}
    # Gates, cell and the gradient from above come; gates' gradients go; two gradients stay.
    assert backward == {"ahead": 3, "behind": 1, "before": 2, "after": 2}


@pytest.mark.parametrize("cell", ["GRU", "Peephole", "Gated"])
def test_other_cells_have_their_rows_near(cell: str) -> None:
    found = moves_of(plan_of(cell))
    assert found and all(moves["before"] and moves["behind"] for moves in found)


def test_small_constants_come_whole_before_the_loop() -> None:
    """A bias that the epilogue adds in each iteration; not what the loop itself changes."""
    plan = plan_of("GRU")
    loop = next(step for step in plan.steps if isinstance(step, Loop))
    steps = [step for step in loop.steps if isinstance(step, Launch)]
    near = staged_rows(plan, steps, loop.count, lambda place: 0)
    assert near is not None
    (whole,) = [line for line in near.lines if line.replicated]
    assert (whole.moves, whole.step, whole.nbytes) == (StagingTime.BEFORE, 0, 4 * 96)
    (step,) = steps
    (place,) = [x for x, near in zip(step.arguments, near.places[0], strict=True)
                if near and near.replicated]  # fmt: skip
    over = replace(step.arguments[-1], segment=place.segment, start=place.start, moves=())
    assert not is_constant(place, [replace(step, writes=(*step.writes, over))])
    assert is_constant(place, steps) and not is_constant(replace(place, stop=place.stop + 4096), [])


def test_what_is_read_two_iterations_later_stays_in_memory() -> None:
    """A carry whose reader comes late: its line would be written over."""
    plan = plan_of("LSTM")
    loop = next(step for step in plan.steps if isinstance(step, Loop))
    steps = [step for step in loop.steps if isinstance(step, Launch)]
    assert staged_rows(plan, steps, loop.count, lambda place: 0) is not None
    late = [_later(step) for step in steps]
    assert staged_rows(plan, late, loop.count, lambda place: 0) is None


def _later(step: Launch) -> Launch:
    """The step, with what it writes one place further in each stack."""

    def moved(place: Range) -> Range:
        stride = place.moves[0].stride if place.moves else 0
        return replace(place, start=place.start + stride, stop=place.stop + stride)

    reads = len(step.reads)
    arguments = (*step.arguments[:reads], *(moved(x) for x in step.arguments[reads:]))
    return replace(step, arguments=arguments)
