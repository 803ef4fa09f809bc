"""Explain a plan from its steps: memory, streams and events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphc.base.target import kind_of
from graphc.inspect.explanation import Reason
from graphc.ir import Where
from graphc.runtime.plan.lives import Life, accesses, lives, step_name, top_steps
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Range, Record, Step, Wait, all_steps

Numbered = tuple[int, Step]


class PlanReader:
    """A plan, with its steps numbered as it prints them and the lives of its buffers."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.steps = plan, all_steps(plan.steps)
        self.lives = lives(plan)
        self.around: dict[int, list[Numbered]] = {}
        """For each step the steps of its own list: those of the plan, or of the loop around it."""
        self._number(list(top_steps(plan)), plan.steps)

    def _number(self, own: list[Numbered], steps: tuple[Step, ...]) -> None:
        for number, step in own:
            self.around[number] = own
            if isinstance(step, Loop):
                inside, at = [], number + 1
                for inner in step.steps:
                    inside.append((at, inner))
                    at += 1 + (len(all_steps(inner.steps)) if isinstance(inner, Loop) else 0)
                self._number(inside, step.steps)

    def launches(self, kernel: str) -> Iterator[int]:
        """The numbers of the steps that launch a kernel."""
        for number, step in enumerate(self.steps):
            if isinstance(step, Launch) and step.kernel == kernel:
                yield number

    def memory(self, value: str) -> Iterator[Reason]:
        """Why the bytes of a value are held as long as they are."""
        for life in (life for life in self.lives if life.value == value):
            yield Reason("memory", lifetime_text(life))
        for kind, bindings in (
            ("state, which stays on the device between calls", self.plan.state),
            ("an input of the call, read where the caller has it", self.plan.inputs),
            ("an output of the call, in an array of its own", self.plan.outputs),
        ):
            for binding in bindings:
                if binding.value.name == value:
                    nbytes = binding.value.type.nbytes
                    yield Reason("memory", f"{nbytes} bytes of {binding.place.segment}: {kind}")
        for loop in (s for s in self.steps if isinstance(s, Loop)):
            yield from _of_loop(loop, value)

    def bytes(self, place: Range) -> Iterator[Reason]:
        """What lies in a range of bytes, one value after another."""
        if place.segment == "work":
            for life in sorted(self.lives, key=lambda life: life.first):
                if life.start < place.stop and place.start < life.stop:
                    yield Reason("memory", lifetime_text(life), f"%{life.value}")
        for binding in (*self.plan.state, *self.plan.inputs, *self.plan.outputs):
            if binding.place.overlaps(place):
                uses = [n for n, s in top_steps(self.plan) if _touches(s, binding.place)]
                used = f"used by {self.named(uses[0])} first and by {self.named(uses[-1])} last"
                text = (
                    f"{binding.value.type} at {_shown(binding.place)}, {used if uses else 'unused'}"
                )
                yield Reason("memory", text, f"%{binding.value.name}")

    def stream(self, number: int) -> Iterator[Reason]:
        """Why the step of this number is on its stream."""
        step, own = self.steps[number], self.around[number]
        if all(other.stream == step.stream for _, other in own):
            note = next((n for n in self.plan.notes if n.startswith(("streams", "measured"))), "")
            alone = "the plan has one stream" if own[0][0] == 0 else "the loop has one stream"
            yield Reason("stream", f"{alone}; {note}" if note else alone)
            return
        before = [(n, s) for n, s in own if n < number and s.stream == step.stream]
        work = [(n, s) for n, s in before if isinstance(s, Launch | Copy | Loop)]
        waits = [
            s.event for n, s in before if isinstance(s, Wait) and n > (work[-1][0] if work else -1)
        ]
        after = f", after {' and '.join(f'e{e}' for e in waits)}" if waits else ""
        name = step_name(step)
        if work and (why := conflict(work[-1][1], step)):
            text = (
                f"it follows {self.named(work[-1][0])} there{after}, so no event is needed: {why}"
            )
        elif "wgrad" in name:
            text = (
                f"beside the data gradients, which more depends on: weight gradients may lag{after}"
            )
        else:
            text = f"the stream was free, and nothing before it there is needed by it{after}"
        if step.stream == 0:
            text += "; stream 0 has the critical path"
        yield Reason("stream", text)

    def event(self, number: int) -> Iterator[Reason]:
        """What the event of a step orders, why, and what it costs."""
        step = self.steps[number]
        assert isinstance(step, Record | Wait)
        own = self.around[number]
        at, record = next((n, s) for n, s in own if isinstance(s, Record) and s.event == step.event)
        waits = [(n, s) for n, s in own if isinstance(s, Wait) and s.event == step.event]
        before = [x for x in own if x[0] < at and isinstance(x[1], Launch | Copy | Loop)]
        source = next((n for n, s in reversed(before) if s.stream == record.stream), None)
        begin = "the beginning" if source is None else self.named(source)
        for place, wait in waits:
            behind = [
                (n, s)
                for n, s in own
                if n > place and s.stream == wait.stream and isinstance(s, Launch | Copy | Loop)
            ]
            first = f"{self.named(behind[0][0])}" if behind else "the end of the call"
            text = f"{first} on s{wait.stream} waits for {begin} on s{record.stream}: "
            yield Reason("event", text + self._why(before, behind, wait.stream), f"e{step.event}")
        rate = kind_of(self.plan.device).rates.event
        yield Reason(
            "event",
            f"about {rate:g} µs until the other stream sees it, by the model of the device",
            f"e{step.event}",
        )

    def _why(self, before: Sequence[Numbered], behind: Sequence[Numbered], stream: int) -> str:
        if not behind:
            return "a call ends when all its streams have ended"
        if not before:
            return "every stream begins with the call"
        for number, later in behind:
            for earlier, step in reversed(before):
                if step.stream != stream and (why := conflict(step, later)):
                    return f"{self.named(number)} comes after {self.named(earlier)}: {why}"
        return "what comes later on both streams needs this order"

    def named(self, number: int) -> str:
        """A step's name and number."""
        return f"{step_name(self.steps[number])} (step {number})"


def lifetime_text(life: Life) -> str:
    """Why the bytes of a value are held."""
    where = f" ({life.where})" if str(life.where) else ""
    until = (
        "nothing reads it later"
        if life.first == life.last
        else f"held until step {life.last}, where {life.reader} reads it last"
    )
    return (
        f"{life.nbytes} bytes at work+{life.start}..{life.stop}, written in step {life.first} by "
        f"{life.producer}{where}; {until}"
    )


def conflict(earlier: Step, later: Step) -> str:
    """Why `later` must come after `earlier`; "" if bytes do not say so."""
    (reads, writes), (own_reads, own_writes) = accesses(earlier), accesses(later)
    for place in own_reads:
        for made in writes:
            if place.overlaps(made):
                return f"it reads %{place.value}, which {step_name(earlier)} writes"
    for place in own_writes:
        for read in (*reads, *writes):
            if place.overlaps(read):
                return (
                    f"it writes %{place.value} over the bytes of %{read.value}, which "
                    f"{step_name(earlier)} still uses: memory that is used again"
                )
    return ""


def where_of(step: Step) -> Where:
    """Where a step comes from; nothing for copies and events."""
    return step.where if isinstance(step, Launch | Loop) else Where()


def _of_loop(loop: Loop, value: str) -> Iterator[Reason]:
    for carry in loop.carries:
        if value in (carry.old, carry.new):
            yield Reason("memory", f"a carry of {loop.name}: each iteration hands it to the next")
    for stack, what in (
        *((s, "scans") for s in loop.scanned),
        *((s, "stacks") for s in loop.stacks),
    ):
        if stack.element == value:
            yield Reason(
                "memory", f"{loop.name} {what} it, an element an iteration of %{stack.place.value}"
            )
    for step in loop.steps:
        if any(place.value == value for places in accesses(step) for place in places):
            yield Reason("memory", f"within an iteration of {loop.name}, used by {step_name(step)}")


def _touches(step: Step, place: Range) -> bool:
    return any(place.overlaps(used) for places in accesses(step) for used in places)


def _shown(place: Range) -> str:
    return f"{place.segment}+{place.start}..{place.stop}"
