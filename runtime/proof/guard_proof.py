"""Prove that a loop may leave steps out where its guard is false.

The proof of the loop is about all steps. Without the guarded ones the same is left. A guarded step
either writes new carries over old ones, which are the same while the guard is false
(`Kernel.keeps`); or every value that counts is written by other steps, and where these read what
may be left out, their kernels do not depend on it (`Kernel.choices`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graphc.base.errors import PlanError
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Range, Record, Step, Wait
from graphc.runtime.proof.shadow import range_text
from graphc.runtime.proof.track import Track, Use, could_meet


class LoopProof(Protocol):
    """The proof of a loop, as far as this module knows it; see `loop_proof.py`."""

    before: list[int]
    """For each step, a bit set of the steps of its iteration that have ended before it."""

    @property
    def loop(self) -> Loop: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def around(self) -> tuple[int, ...]: ...
    @property
    def writes(self) -> Sequence[Use]: ...
    def track(self, place: Range) -> Track:
        """The range in all iterations."""

    def is_found(self, read: Use) -> bool:
        """Whether a read finds the value that it names, in every iteration."""

    def step(self, index: int) -> str:
        """How messages call a step."""

    def error(self, problem: str) -> PlanError: ...


def check_guard(proof: LoopProof, guard: Range) -> None:
    """Raise PlanError unless the guard is what it should be when an iteration begins, and nothing
    that is left out where it is false counts there."""
    loop = proof.loop
    start = len(loop.steps)  # a step before all others
    proof.before = [mask | 1 << start for mask in proof.before] + [0]
    use = Use(start, guard.value, proof.track(guard))
    others = [w.track for w in proof.writes if w.track.outer != use.track.outer]
    if loop.stages > 1 or any(could_meet(w, use.track, proof.around) for w in others):
        raise proof.error(f"its guard {range_text(guard)} does not stay in its place")
    if guard.stop - guard.start != 1 or not proof.is_found(use):
        raise proof.error(f"its guard {range_text(guard)} does not hold that value")
    left_out = {n for n, step in enumerate(loop.steps) if is_guarded(step)}
    kept = {n for n in left_out if _keeps(proof, loop.steps[n], guard)}
    dropped = {w.value for w in proof.writes if w.step in left_out - kept}
    counts = {c.new for c in loop.carries} | {s.element for s in loop.stacks}
    counts |= {w.value for w in proof.writes if w.step not in left_out - kept}
    if dropped & counts:
        names = ", ".join(f"%{name}" for name in sorted(dropped & counts))
        raise proof.error(f"may leave out what writes {names}, which counts")
    for n, step in enumerate(loop.steps):
        if n not in left_out and not isinstance(step, Record | Wait):
            _check_reads(proof, n, step, guard, dropped)


def is_guarded(step: Step) -> bool:
    """Whether an iteration may leave the step out."""
    return isinstance(step, Launch | Copy | Loop) and step.guarded


def _keeps(proof: LoopProof, step: Step, guard: Range) -> bool:
    """Whether a step only writes new carries over the old ones, which are the same where the guard
    is false."""
    if not isinstance(step, Launch):
        return False
    carries = {(c.old, c.new) for c in proof.loop.carries}
    kept = {
        output
        for condition, place, output in proof.plan.kernels[step.kernel].keeps
        if step.reads[condition].value == guard.value
        and step.reads[place] == step.writes[output]
        and (step.reads[place].value, step.writes[output].value) in carries
    }
    return len(kept) == len(step.writes)


def _check_reads(
    proof: LoopProof, number: int, step: Launch | Copy | Loop, guard: Range, dropped: set[str]
) -> None:
    """Check that a step that is never left out does not depend on what others leave out."""
    reads = (step.source,) if isinstance(step, Copy) else step.reads
    choices = proof.plan.kernels[step.kernel].choices if isinstance(step, Launch) else ()
    unread = {n for condition, n in choices if reads[condition].value == guard.value}
    for n, place in enumerate(reads):
        if place.value in dropped and n not in unread:
            raise proof.error(
                f"{proof.step(number)} reads {range_text(place)}, which may be left out"
            )
