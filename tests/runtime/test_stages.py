"""In a loop of several stages nothing that a plan says of values may belong to another stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphc.base.errors import PlanError
from graphc.runtime.plan.plan import Link, LoopCarry, Move, Plan, Range, Stack, Step
from graphc.runtime.proof.verify import verify
from tests.support.loop_proof import (
    DOWN,
    FIRST,
    IN,
    LAST,
    OUT,
    PAIR,
    SLOTS,
    launch,
    looped,
    moved,
)

BETWEEN = Range("work", 128, 384, "between")
AHEAD = launch("cell", [moved(PAIR[0], Move(64, 2)), moved(DOWN, Move(64, 5))],
               [PAIR[1], Range("work", 128, 192, "v", (Move(64, 5),))])  # fmt: skip
BEHIND = replace(
    launch("show", [Range("work", 64, 128, "u", (Move(64, 5),))],
           [Range("io", 256, 320, "out", (Move(64, 5),))]),
    stage=1,
)  # fmt: skip


def staged(*steps: Step, **changes: object) -> Plan:
    """h, v = cell(h, x[t]); y[t] = show(v), an iteration behind."""
    options: dict[str, object] = {
        "count": 5,
        "stages": 2,
        "writes": (SLOTS, LAST, BETWEEN, OUT),
        "stacks": (Stack("v", BETWEEN), Stack("out", OUT, 1)),
        "links": (Link("u", "v", 1),),
    }
    return replace(looped(*steps, **{**options, **changes}), peak_bytes=384)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            staged(AHEAD, BEHIND, links=(Link("u", "v", 0),)),
            "its step 1 (s0 launch show) reads u=work+64..128, which does not hold that value in "
            "every iteration",
        ),
        (
            staged(AHEAD, replace(BEHIND, stage=0)),
            "its step 1 (s0 launch show) writes out=io+256..320, which the loop does not",
        ),
        (
            staged(AHEAD, BEHIND, scanned=(Stack("e", IN, 1),)),
            "its step 0 (s0 launch cell) reads e=io+0..64, which does not hold that value in "
            "every iteration",
        ),
        (
            staged(AHEAD, BEHIND, carries=(LoopCarry("old", "new", FIRST, LAST, 1),)),
            "its step 0 (s0 launch cell) reads old=work+0..64, which does not hold that value in "
            "every iteration",
        ),
        (
            staged(AHEAD, BEHIND, stacks=(Stack("v", BETWEEN, 1), Stack("out", OUT, 1))),
            "between=work+128..384 does not hold each %v",
        ),
        (
            staged(AHEAD, BEHIND, stacks=(Stack("v", BETWEEN), Stack("out", OUT, 0))),
            "y=io+320..576 does not hold each %out",
        ),
    ],
    ids=["link", "step", "scanned", "carry", "stack of the first", "stack of the second"],
)
def test_nothing_belongs_to_another_stage(plan: Plan, message: str) -> None:
    verify(staged(AHEAD, BEHIND))
    with pytest.raises(PlanError) as error:
        verify(plan)
    assert str(error.value) == f"plan p: step 1 (s0 loop l): {message}"
