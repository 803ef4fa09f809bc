"""Helpers of test_loop_proof.py and of tests beside it."""

from __future__ import annotations

from dataclasses import replace

from graphc.ir import Type, Value
from graphc.runtime.plan.plan import (
    Binding,
    Copy,
    Launch,
    Loop,
    LoopCarry,
    Move,
    Plan,
    Range,
    Stack,
    Step,
)  # fmt: skip
from tests.runtime.random_graphs import opaque_kernel

X = Value("x", Type((4, 16)))


Y = Value("y", Type((4, 16)))


H = Value("h", Type((16,)))


IN, START, OUT = Range("io", 0, 256, "x"), Range("io", 256, 320, "h"), Range("io", 320, 576, "y")


DOWN = Range("io", 0, 64, "e", (Move(64, 4),))


CARRY = Range("work", 0, 64, "old"), Range("work", 64, 128, "new")


PAIR = (
    replace(CARRY[0], moves=(Move(64, 2),)),
    replace(CARRY[1], moves=(Move(-64, 2),)),
)


UP = Range("io", 320, 384, "out", (Move(64, 4),))


def launch(name: str, reads: list[Range], writes: list[Range], stream: int = 0) -> Launch:
    return Launch(stream, name, (*reads, *writes), tuple(reads), tuple(writes))


CELL = launch("cell", [PAIR[0], DOWN], [PAIR[1]])


SHOW = launch("show", [PAIR[1]], [UP])


FIRST = Range("work", 0, 64, "h")


LAST = Range("work", 0, 64, "last")


SLOTS = Range("work", 0, 128, "slots")


def looped(*steps: Step, streams: int = 1, **changes: object) -> Plan:
    """y[t] = show(h = cell(h, x[t])), four times, with two buffers for h."""
    loop = Loop(
        0, "l", 4, steps, (FIRST, IN), (SLOTS, LAST, OUT),
        (LoopCarry("old", "new", FIRST, LAST),), (Stack("e", IN),), (Stack("out", OUT),),
    )  # fmt: skip
    loop = replace(loop, **changes)  # type: ignore[arg-type]
    kernels = {name: opaque_kernel(name) for name in ("cell", "show", "wide")}
    return Plan(
        name="p",
        device="cpu",
        streams=streams,
        steps=(Copy(0, START, FIRST), loop),
        kernels=kernels,
        state=(),
        inputs=(Binding(X, IN), Binding(H, START)),
        outputs=(Binding(Y, OUT),),
        peak_bytes=128,
        lower_bound_bytes=128,
    )


def moved(place: Range, *moves: Move) -> Range:
    return replace(place, moves=moves)
