"""Prove that a loop in a plan computes what it declares, whatever its count. Shares no code with
the planner: it reads the steps alone.

An iteration begins when the previous one has ended, so steps of different iterations are ordered,
and only those of one iteration need streams and events. Every range moves by (t mod period) *
stride with a period of 1, 2 or the count. Its places in all iterations are an array, so each
question about two ranges is answered exactly for all iterations at once:

1. Two steps of an iteration that touch a byte, one of them writing, are ordered.
2. A read finds the value that it names. A value that the iteration computes was written there by an
   earlier step; one that the previous iteration handed on (`Loop.carries`) by a step of that
   iteration, or it was there at first; elements of scanned values and values from outside have been
   there since the loop began. And nothing has overwritten it since. A write along a stack touches a
   given byte in an interval of iterations, found by a division.
3. In the same way each last carry and each element of a stack is where it belongs at the end.
4. Everything is within what the loop declares to read and write. To the surrounding steps the loop
   is one step that does that; so is a nested loop, which is proved in the same way.

A step of a stage runs only in some of the iterations; what a stage reads of the previous one
(`Loop.links`) was written there by a step of the previous iteration.

A nested loop is proved in the first iteration of the enclosing loops, and so in all: ranges that
move alike with these keep their relative position, and others must never meet in any iteration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from graphc.base.errors import PlanError
from graphc.runtime.plan.plan import (
    STILL,
    Copy,
    Launch,
    Loop,
    LoopCarry,
    Plan,
    Range,
    Record,
    Stack,
    Wait,
    all_steps,
)
from graphc.runtime.proof.guard_proof import check_guard, is_guarded
from graphc.runtime.proof.shadow import range_text
from graphc.runtime.proof.track import Times, Track, Use, could_meet, is_within, same_place


def prove(loop: Loop, plan: Plan, number: int, around: tuple[int, ...] = ()) -> int:
    """Prove a loop and those inside it; returns how many pairs of uses were compared. Raises
    PlanError.

    `number` is the loop's step number and `around` has the counts of the enclosing loops.
    """
    proof = _Proof(loop, plan, number, around)
    pairs = proof.run()
    inside = number + 1
    for step in loop.steps:
        if isinstance(step, Loop):
            pairs += prove(step, plan, inside, (*around, loop.count))
            inside += len(all_steps(step.steps))
        inside += 1
    return pairs


class _Proof:
    """The proof of one loop."""

    def __init__(self, loop: Loop, plan: Plan, number: int, around: tuple[int, ...]) -> None:
        self.loop, self.plan, self.around = loop, plan, around
        self.last = loop.count - 1
        self.name = f"step {number} (s{loop.stream} loop {loop.name})"
        stages = {s.stage for s in loop.steps if not isinstance(s, Record | Wait)}
        if loop.length < 1 or stages - set(range(loop.stages)):
            raise self.error(f"has {loop.count} iterations and {loop.stages} stages")
        self.before = self._order()
        self.reads, self.writes = list(self._uses(0)), list(self._uses(1))
        self.pairs = 0

    def run(self) -> int:
        """Run all checks; returns how many pairs of uses were compared."""
        self.check_periods()
        self.check_bounds()
        self.check_outer()
        self.check_order()
        for use in self.reads:
            if not self.is_found(use):
                raise self.error(
                    f"{self.step(use.step)} reads {use.text}, which does not hold "
                    "that value in every iteration"
                )
        self.check_end()
        if self.loop.guard is not None:
            check_guard(self, self.loop.guard)
        elif any(is_guarded(step) for step in self.loop.steps):
            raise self.error("leaves steps out without a guard")
        return self.pairs

    def error(self, problem: str) -> PlanError:
        return PlanError(f"plan {self.plan.name}: {self.name}: {problem}")

    def step(self, index: int) -> str:
        step = self.loop.steps[index]
        what = {Launch: "launch", Copy: "copy", Loop: "loop"}[type(step)]
        name = step.kernel if isinstance(step, Launch) else getattr(step, "name", "")
        name = step.source.value if isinstance(step, Copy) else name
        return f"its step {index} (s{step.stream} {what} {name})"

    def track(self, place: Range, stage: int | None = None) -> Track:
        """The range in the iterations of a stage, or in all."""
        begin, end = 0, self.loop.count
        if stage is not None:
            begin, end = stage, stage + self.loop.length
        return Track(place, len(self.around), self.loop.count, begin, end)

    def _order(self) -> list[int]:
        """For each step, a bit set of the steps of its iteration that have ended before it."""
        now = [0] * self.loop.streams
        events: dict[int, int] = {}
        before = []
        for index, step in enumerate(self.loop.steps):
            before.append(now[step.stream])
            if isinstance(step, Record):
                events[step.event] = now[step.stream]
            elif isinstance(step, Wait):
                now[step.stream] |= events[step.event]
            else:
                now[step.stream] |= 1 << index
        return before

    def _uses(self, kind: int) -> Iterator[Use]:
        """The reads (kind 0) or writes (kind 1) of all steps that touch a byte."""
        for index, step in enumerate(self.loop.steps):
            if isinstance(step, Copy):
                place = (step.source, step.target)[kind]
                named = [(place, step.source.value)]
            elif isinstance(step, Launch | Loop):
                named = [(place, place.value) for place in (step.reads, step.writes)[kind]]
            else:
                continue
            for place, name in named:
                if place.stop > place.start:
                    yield Use(index, name, self.track(place, step.stage))

    def check_periods(self) -> None:
        """Check that every range has a period of 1, 2 or the count."""
        for use in (*self.reads, *self.writes):
            if use.track.move.period not in (1, 2, self.loop.count):
                raise self.error(
                    f"{self.step(use.step)} uses {use.text}, whose period is not 1, 2 "
                    f"or {self.loop.count}"
                )

    def check_bounds(self) -> None:
        """Check that every use is within what the loop declares to read and write."""
        outside = [self.track(place) for place in (*self.loop.writes, *self.loop.reads)]
        written = outside[: len(self.loop.writes)]
        for uses, allowed, does in (
            (self.writes, written, "writes"),
            (self.reads, outside, "reads"),
        ):
            for use in uses:
                if not any(is_within(use.track, whole) for whole in allowed):
                    raise self.error(
                        f"{self.step(use.step)} {does} {use.text}, which the loop does not"
                    )

    def check_outer(self) -> None:
        """Check that ranges that move differently with the enclosing loops never meet."""
        if not self.around:
            return
        for a, b in combinations((*self.reads, *self.writes), 2):
            if a.track.outer != b.track.outer and could_meet(a.track, b.track, self.around):
                raise self.error(
                    f"{self.step(a.step)} uses {a.text} and {self.step(b.step)} uses "
                    f"{b.text}, which meet in some iterations of the loops around"
                )

    def check_order(self) -> None:
        """Check that uses of one byte in one iteration are ordered, or are one kernel's in
        place."""
        uses = [(use, True) for use in self.writes] + [(use, False) for use in self.reads]
        for n, (a, _) in enumerate(uses[: len(self.writes)]):
            for b, writes in uses[n + 1 :]:
                self.pairs += 1
                if a.track.meets(b.track):
                    self.check_pair(a, b, writes)

    def check_pair(self, a: Use, b: Use, both_write: bool) -> None:
        """Check two uses, where `a` writes bytes that `b` reads or also writes in some
        iteration."""
        step = self.loop.steps[a.step]
        if a.step == b.step:
            if isinstance(step, Loop):
                return
            if isinstance(step, Launch) and not both_write:
                self.check_in_place(step, a, b)
                return
            raise self.error(f"{self.step(a.step)} uses both {b.text} and {a.text}")
        first, second = sorted((a.step, b.step))
        if not self.before[second] >> first & 1:
            raise self.error(
                f"{self.step(a.step)} writes {a.text} and {self.step(b.step)} "
                f"{'writes' if both_write else 'reads'} {b.text}, and nothing orders "
                "them"
            )

    def check_in_place(self, launch: Launch, write: Use, read: Use) -> None:
        pairs = {
            (m, n)
            for m, source in enumerate(launch.reads)
            for n, target in enumerate(launch.writes)
            if source == read.track.place and target == write.track.place
        }
        same = read.track.covers(write.track, write.track.at, write.track.begin)
        if not same or not pairs <= set(self.plan.kernels[launch.kernel].inplace):
            raise self.error(
                f"{self.step(write.step)} reads {read.text} and writes "
                f"{write.text}, which its kernel does not allow in place"
            )

    def is_found(self, read: Use) -> bool:
        """Whether a read finds the value that it names, in every iteration."""
        track, value = read.track, read.value
        made_here = any(
            w.value == value
            and self.before[read.step] >> w.step & 1
            and w.track.covers(track, track.at, track.begin)
            and not self.is_overwritten_between(w, read)
            for w in self.writes
        )
        return (
            made_here
            or self.is_handed_on(read)
            or self.is_linked(read)
            or self.is_from_outside(read)
        )

    def is_overwritten_between(self, write: Use, read: Use) -> bool:
        """Whether a step overwrites what `write` wrote before `read` in the same iteration."""
        return any(
            x.step not in (write.step, read.step)
            and not self.before[write.step] >> x.step & 1
            and not self.before[x.step] >> read.step & 1
            and x.track.meets(read.track)
            for x in self.writes
        )

    def is_handed_on(self, read: Use) -> bool:
        """Whether a read finds the carry that it names."""
        track = read.track
        carry = next((c for c in self.loop.carries if c.old == read.value), None)
        if carry is None or carry.stage != track.begin:
            return False
        at, times = track.at, track.times
        if not same_place(self.track(carry.initial), track, int(at[0])):
            return False
        if self.is_overwritten(track, at[:1], times[:1] * 0, times[:1] - 1, until=read):
            return False
        return len(at) == 1 or self.was_written(carry.new, track, at[1:], times[1:], read)

    def is_linked(self, read: Use) -> bool:
        """Whether a read finds what the previous stage left."""
        track = read.track
        return any(
            link.element == read.value
            and link.stage == track.begin
            and self.was_written(link.value, track, track.at, track.times, read)
            for link in self.loop.links
        )

    def was_written(self, value: str, track: Track, at: Times, times: Times, read: Use) -> bool:
        """Whether `value` was written at these places in the iteration before each of `times` and
        is still there for `read`."""
        return any(
            w.value == value
            and w.track.covers(track, at, int(times[0]) - 1)
            and not self.is_overwritten(track, at, times, times - 1, after=w, until=read)
            for w in self.writes
        )

    def is_from_outside(self, read: Use) -> bool:
        """Whether a read finds an element of a scanned value, or a value from before the loop."""
        track, value = read.track, read.value
        stack = next((s for s in self.loop.scanned if s.element == value), None)
        if stack is not None:
            whole = self.track(stack.place)
            found = (
                stack.place in self.loop.reads
                and stack.stage == track.begin
                and whole.place.segment == track.place.segment
                and whole.outer == track.outer
                and bool((self.elements(stack.place, track.size) == track.at).all())
            )
        else:
            found = track.move == STILL and any(
                place.value == value and same_place(self.track(place), track, track.place.start)
                for place in self.loop.reads
            )
        return found and not self.is_overwritten(
            track, track.at, track.times * 0, track.times - 1, until=read
        )

    def is_overwritten(
        self,
        track: Track,
        at: Times,
        first: Times,
        last: Times,
        after: Use | None = None,
        until: Use | None = None,
    ) -> bool:
        """Whether a step overwrites the bytes at `at` in the segment of `track`, as many as it has.

        This is asked for iterations `first` to `last`, plus the steps of the next iteration that do
        not come after `until`. With `after`, it also covers the steps after it in the iteration
        before `first`; `first` is then that iteration plus one.
        """
        for x in self.writes:
            if x.track.place.segment != track.place.segment:
                continue
            begin, end = first, last
            if until is not None and not self.comes_after(x, until):
                end = last + 1
            if after is not None and not self.comes_before(x, after):
                begin = first - 1
            if x.track.crosses(at, track.size, begin, end):
                return True
        return False

    def comes_after(self, x: Use, use: Use) -> bool:
        """Whether `x` follows `use` in an iteration; a kernel in place reads first."""
        return x.step == use.step or bool(self.before[x.step] >> use.step & 1)

    def comes_before(self, x: Use, use: Use) -> bool:
        return x.step == use.step or bool(self.before[use.step] >> x.step & 1)

    def elements(self, whole: Range, size: int) -> Times:
        """Where the element of a stack begins in each iteration of a stage."""
        number = np.arange(self.loop.length, dtype=np.int64)
        return whole.start + (number[::-1] if self.loop.reverse else number) * size

    def check_end(self) -> None:
        """Check that the loop's results are where it declares them, and that its initial values are
        among its reads."""
        loop = self.loop
        for carry in loop.carries:
            if carry.initial not in loop.reads or carry.last not in loop.writes:
                raise self.error(f"the carry %{carry.old} is not among its reads and writes")
            if carry.last.stop > carry.last.start and not self.is_left(carry):
                raise self.error(f"{range_text(carry.last)} does not hold the last %{carry.new}")
        for stack in loop.stacks:
            size = (stack.place.stop - stack.place.start) // loop.length
            if stack.place not in loop.writes:
                raise self.error(f"{range_text(stack.place)} is not among its writes")
            if size and not self.is_stacked(stack, size):
                raise self.error(f"{range_text(stack.place)} does not hold each %{stack.element}")

    def is_left(self, carry: LoopCarry) -> bool:
        """Whether the last iteration of its stage leaves the new carry where the last one is
        declared."""
        end = carry.stage + self.loop.length
        whole, after = self.track(carry.last), np.array([end], np.int64)
        at = np.array([carry.last.start], np.int64)
        return any(
            w.value == carry.new
            and w.track.covers(whole, at, end - 1)
            and not self.is_overwritten(whole, at, after, after * 0 + self.last, after=w)
            for w in self.writes
        )

    def is_stacked(self, stack: Stack, size: int) -> bool:
        """Whether every iteration leaves its element in the stack, and no later one overwrites
        it."""
        at = self.elements(stack.place, size)
        first = replace(stack.place, start=int(at[0]), stop=int(at[0]) + size)
        element, begin = self.track(first), stack.stage
        times = begin + np.arange(len(at), dtype=np.int64)

        def left(w: Use, at: Times) -> bool:
            """Whether `w` writes at these places from the first iteration on, and nothing does
            later."""
            after = times[: len(at)] + 1
            return w.track.covers(element, at, begin) and not self.is_overwritten(
                element, at, after, after * 0 + self.last, after=w
            )

        if any(w.value == stack.element and left(w, at) for w in self.writes):
            return True
        carry = next((c for c in self.loop.carries if c.old == stack.element), None)
        if carry is None or not same_place(self.track(carry.initial), element, int(at[0])):
            return False
        start = times[:1] * 0
        if self.is_overwritten(element, at[:1], start, start + self.last):
            return False
        return len(at) == 1 or any(w.value == carry.new and left(w, at[1:]) for w in self.writes)
