"""The plan of a GPU as C++: calls of the player, one for each launch, copy and event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from graphc.export.calls import moved
from graphc.export.cuda.kernels import CudaKernels
from graphc.export.cuda.memory import DeviceMemory
from graphc.export.lowering import Entry
from graphc.export.memory import CONSTANTS
from graphc.export.names import commented
from graphc.runtime.cuda.reservation import work_start
from graphc.runtime.plan.places import Places
from graphc.runtime.plan.plan import Copy, Launch, Loop, Range, Record, Step, Wait, all_steps


@dataclass
class Calls:
    """The statements that play an entry's plan.

    They use `gpu`, the player, and the addresses `arena`, `state` and `constants`. Events are
    counted in `events`, from 0 on; those of a loop are recorded again in each iteration. So the
    player is asked for what `graphc.runtime.plan.unroll` lists, in that order.
    """

    entry: Entry
    memory: DeviceMemory
    kernels: CudaKernels
    events: int = 0

    def __post_init__(self) -> None:
        plan = self.entry.plan
        self._plan, self._places, self._work = plan, Places(plan), work_start(plan)
        self._numbers = count()

    def statements(self) -> list[str]:
        """All statements."""
        found = list(self._joined())
        self.events = next(self._numbers)
        return found

    def _joined(self) -> Iterator[str]:
        """The steps of the plan; runs of them as one launch where the device can."""
        runs = list(enumerate(self._plan.joined, self.kernels.first_joined[self.entry.name]))
        number, stop, scope = 0, 0, _Scope()
        for step in self._plan.steps:
            if runs and runs[0][1].first == number:
                place, run = runs.pop(0)
                stop = run.stop
                addresses = ", ".join(self._address(range, ()) for range in run.arguments)
                yield f"  if (gpu.can_join({place})) {{"
                yield f"    gpu.launch_joined({place}, {{{addresses}}});"
                yield "  } else {"
            inside = number < stop
            yield from self._step(step, "    " if inside else "  ", scope)
            number += len(all_steps([step]))
            if inside and number == stop:
                yield "  }"

    def _steps(self, steps: Sequence[Step], indent: str, scope: _Scope) -> Iterator[str]:
        for step in steps:
            loop = scope.loops[-1]
            if isinstance(step, Record | Wait) or loop.stages == 1:
                yield from self._step(step, indent, scope)
                continue
            t, last = f"t{len(scope.loops) - 1}", step.stage + loop.length
            yield f"{indent}if ({t} >= {step.stage} && {t} < {last}) {{"
            yield from self._step(step, indent + "  ", scope)
            yield f"{indent}}}"

    def _step(self, step: Step, indent: str, scope: _Scope) -> Iterator[str]:
        stream = (scope.origin + step.stream) % self._plan.streams
        if isinstance(step, Loop):
            yield from self._loop(step, indent, stream, scope)
        elif isinstance(step, Launch):
            yield from self._launch(step, indent, stream, scope)
        elif isinstance(step, Copy):
            size = step.source.stop - step.source.start
            if size:
                target, source = (
                    self._address(r, scope.loops, step.stage) for r in (step.target, step.source)
                )
                yield f"{indent}gpu.copy({stream}, {target}, {source}, {size});"
        elif isinstance(step, Record):
            scope.events[step.event] = next(self._numbers)
            yield f"{indent}gpu.record({stream}, {scope.events[step.event]});"
        else:
            yield f"{indent}gpu.wait({stream}, {scope.events[step.event]});"

    def _loop(self, loop: Loop, indent: str, stream: int, scope: _Scope) -> Iterator[str]:
        t = f"t{len(scope.loops)}"
        others = [(stream + n) % self._plan.streams for n in range(1, loop.streams)]
        inside = _Scope((*scope.loops, loop), stream)
        yield f"{indent}// {commented(loop.name)}"
        yield f"{indent}for (int {t} = 0; {t} < {loop.count}; {t}++) {{"
        if others:
            event = next(self._numbers)
            yield f"{indent}  gpu.record({stream}, {event});"
            yield from (f"{indent}  gpu.wait({other}, {event});" for other in others)
        yield from self._steps(loop.steps, indent + "  ", inside)
        for other in others:
            event = next(self._numbers)
            yield f"{indent}  gpu.record({other}, {event});"
            yield f"{indent}  gpu.wait({stream}, {event});"
        yield f"{indent}}}"

    def _launch(self, step: Launch, indent: str, stream: int, scope: _Scope) -> Iterator[str]:
        kernel = self._plan.kernels[step.kernel]
        if not kernel.launches:
            return
        first = self.kernels.first[self.entry.name, step.kernel]
        yield f"{indent}// {commented(step.kernel)}"
        yield f"{indent}gpu.launch({stream}, {first}, {len(kernel.launches)}, {{"
        for number, argument in enumerate(step.arguments):
            address = self._address(argument, scope.loops, step.stage, kernel.offset(number))
            name = f"  // {commented(argument.value)}" if argument.value else ""
            yield f"{indent}    {address},{name}"
        yield f"{indent}}});"

    def _address(self, range: Range, around: Sequence[Loop], stage: int = 0, more: int = 0) -> str:
        """The address of a range as an expression."""
        place = self._places.place(range, stage)
        if place.segment == "state":
            buffer, binding = self.entry.buffers[place.index], self._plan.state[place.index]
            kind, start = self.memory.places[id(buffer), binding.value.type.layout]
            base, offset = "constants" if kind == CONSTANTS else "state", start + place.offset
        else:
            base = "arena"
            offset = range.start + (self._work if place.segment == "work" else 0)
        offset += more
        text = base
        if offset:
            text += f" {'-' if offset < 0 else '+'} {abs(offset)}"
        return text + moved(place, around)


@dataclass
class _Scope:
    """Where steps stand."""

    loops: tuple[Loop, ...] = ()
    """The loops around them, the outermost first."""
    origin: int = 0
    """The stream of the plan that is the innermost loop's first."""
    events: dict[int, int] = field(default_factory=dict)
    """The numbers in C++ of events that are recorded here."""
