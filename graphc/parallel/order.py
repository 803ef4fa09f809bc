"""The order in which a stage of a pipeline computes micro-batches and exchanges messages.

It is 1F1B (Narayanan et al., PipeDream, SOSP 2019): some forward passes, then one forward and one
backward pass in turn, then the backward passes that are left. Stage s of p never holds the
activations of more than p - s micro-batches.

A send may have to wait for its receiver. Neighbours exchange in one order, since each receives one
micro-batch ahead: between two passes it first receives for the next forward pass, and then sends
what the last backward pass has made. Its neighbour below sends that activation before it waits for
this gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

FORWARD, BACKWARD = "forward", "backward"
"""The directions of passes, and of what they send on."""


class Pass(NamedTuple):
    """A step of a stage: it computes, sends or receives for one micro-batch."""

    action: str
    """"compute", "send" or "receive"."""
    direction: str
    """`FORWARD` or `BACKWARD`."""
    batch: int
    """The number of the micro-batch."""


def passes(stage: int, stages: int, batches: int) -> list[tuple[str, int]]:
    """Return (direction, micro-batch) of the passes of a stage, in their order.

    Args:
        stage: The number of the stage, from 0 up.
        stages: The number of stages.
        batches: The number of micro-batches.
    """
    first = min(stages - 1 - stage, batches)
    order = [(FORWARD, m) for m in range(first)]
    for m in range(batches - first):
        order += [(FORWARD, first + m), (BACKWARD, m)]
    return order + [(BACKWARD, m) for m in range(batches - first, batches)]


def alive(stage: int, stages: int, batches: int) -> int:
    """Return the most micro-batches whose activations a stage holds at a time."""
    return min(stages - stage, batches)


def steps(stage: int, stages: int, batches: int, trains: bool = True) -> Iterator[Pass]:
    """Return the passes of a stage with the messages around them, in their order.

    Args:
        stage: The number of the stage, from 0 up.
        stages: The number of stages.
        batches: The number of micro-batches.
        trains: Whether there are backward passes.
    """
    order = passes(stage, stages, batches) if trains else [(FORWARD, m) for m in range(batches)]
    late: Pass | None = None
    """A message that is sent behind the next one that is received."""
    for direction, batch in order:
        forward = direction == FORWARD
        before, behind = (stage > 0, stage < stages - 1)[:: 1 if forward else -1]
        if late is not None and not forward:
            yield late
            late = None
        if before:
            yield Pass("receive", direction, batch)
        if late is not None:
            yield late
            late = None
        yield Pass("compute", direction, batch)
        if behind and forward:
            yield Pass("send", direction, batch)
        elif behind:
            late = Pass("send", direction, batch)
    if late is not None:
        yield late
