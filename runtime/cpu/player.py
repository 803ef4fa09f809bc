"""The Python side of the native player: a plan resolved to tasks with edges.

A task is one phase of a launch, or a copy. It waits for its stream's previous task and for the
tasks behind the events that it waits for; nothing else of streams and events remains. A loop is a
task too, followed by the tasks of its body, once, whatever the count. The player itself, which
decides who runs which chunk when, is native/program.h and pool.h.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphc.base.errors import PlanError, RunError
from graphc.runtime.compilers.player_library import player_library
from graphc.runtime.cpu.caller import find_caller
from graphc.runtime.plan.plan import (
    Copy,
    Launch,
    Loop,
    Move,
    Plan,
    Range,
    Record,
    Step,
    Wait,
    all_steps,
)

COPY_CHUNK = 1 << 18
"""Bytes of a copy that one chunk moves: `copy_chunk` of program.h."""

TASK = np.dtype(
    [
        ("function", np.uint64),
        ("bytes", np.int64),
        ("first_argument", np.int32),
        ("phase", np.int32),
        ("chunks", np.int32),
        ("slot", np.int32),
        ("predecessors", np.int32),
        ("first_successor", np.int32),
        ("successors", np.int32),
        ("inside", np.int32),
        ("stands_for", np.int32),
        ("first", np.int32),
        ("last", np.int32),
        ("guarded", np.int32),
        ("message", np.int64),
    ]
)
"""`TaskSpec` of specs.h."""

LOOP = np.dtype(
    [
        ("task", np.int32),
        ("tasks", np.int32),
        ("count", np.int32),
        ("first_move", np.int32),
        ("moves", np.int32),
        ("guard", np.int32),
    ]
)
"""`LoopSpec` of specs.h."""

MOVE = np.dtype([("stride", np.int64), ("argument", np.int32), ("period", np.int32)])
"""`Move` of specs.h."""

ARGUMENT = np.dtype([("base", np.int64), ("offset", np.int64)])
"""`Argument` of specs.h."""


@dataclass(frozen=True)
class PlayerTask:
    """One phase of a launch, a copy (phase 0), or a loop."""

    step: int
    """The step's number in `all_steps`."""
    phase: int
    """The phase; 0 for a copy."""
    chunks: int
    """Chunks of the phase."""
    slot: int
    """The player's number of the stream."""
    predecessors: tuple[int, ...]
    """Indices of the tasks that must end before."""
    inside: int = -1
    """The index of the enclosing loop's task; -1 if there is none."""
    during: tuple[int, int] = (0, 0)
    """(begin, end) of that loop's iterations in which the task runs."""
    count: int = 0
    """Iterations of a loop."""
    tasks: int = 0
    """Tasks of a loop's body, which follow it."""
    guarded: bool = False
    """Whether it does nothing where the guard of the enclosing loop is false."""


@dataclass(frozen=True)
class RelativeAddress:
    """`offset` bytes from the base numbered `base`, moving with the enclosing loops."""

    base: int
    """The number of the base."""
    offset: int
    """Bytes from the base."""
    moves: tuple[Move, ...] = ()
    """Its movement with the enclosing loops, the outermost first."""


def resolve(plan: Plan, in_order: bool = False) -> list[PlayerTask]:
    """The tasks of `plan` in the order of its steps, each after its predecessors. Raises PlanError
    for a wait on an event that is not recorded before.

    With `in_order` each waits for the one before it, whatever its stream.
    """
    resolving = _Resolving(plan, in_order)
    resolving.add(plan.steps, 0, {stream: stream for stream in range(plan.streams)}, -1)
    return resolving.tasks


class _Resolving:
    """Collects the tasks of a plan."""

    def __init__(self, plan: Plan, in_order: bool) -> None:
        self.plan, self.in_order = plan, in_order
        self.tasks: list[PlayerTask] = []
        self.slots: dict[tuple[int, int, int], int] = {}
        """The slot of each further stream of a loop, by the slot and depth that the loop runs at;
        loops of one depth in one slot run one after another."""

    def add(
        self,
        steps: Sequence[Step],
        number: int,
        slots: dict[int, int],
        inside: int,
        around: Loop | None = None,
    ) -> None:
        """Add `steps`, numbered from `number`; `slots` has the slot of each stream."""
        before: dict[int, set[int]] = {}
        events: dict[int, frozenset[int]] = {}
        for step in steps:
            stream = 0 if self.in_order else step.stream
            ahead = before.setdefault(stream, set())
            if isinstance(step, Record):
                events[step.event] = frozenset(ahead)
            elif isinstance(step, Wait):
                if step.event not in events:
                    raise PlanError(
                        f"step {number} waits for event {step.event}, never recorded before"
                    )
                if not self.in_order:
                    ahead |= events[step.event]
            elif isinstance(step, Loop):
                self.loop(step, number, slots[stream], ahead, inside, _during(step, around))
                number += len(all_steps(step.steps))
            else:
                for phase, chunks in enumerate(_chunks(self.plan, step)):
                    if chunks > 0:
                        place = (number, phase, chunks, slots[stream])
                        nested = (tuple(sorted(ahead)), inside, _during(step, around))
                        self.put(PlayerTask(*place, *nested, guarded=step.guarded), ahead)
            number += 1

    def put(self, task: PlayerTask, pending: set[int]) -> None:
        """Add a task, which replaces what its stream waits for."""
        pending.clear()
        pending.add(len(self.tasks))
        self.tasks.append(task)

    def loop(
        self,
        step: Loop,
        number: int,
        slot: int,
        pending: set[int],
        inside: int,
        during: tuple[int, int],
    ) -> None:
        """Add a loop, unless it does nothing."""
        own = len(self.tasks)
        place = (number, 0, 1, slot, tuple(sorted(pending)))
        task = PlayerTask(*place, inside, during, step.count, guarded=step.guarded)
        self.tasks.append(task)
        slots, depth = {0: slot}, 0
        while inside >= 0:
            depth, inside = depth + 1, self.tasks[inside].inside
        for stream in range(1, step.streams):
            known = self.plan.streams + len(self.slots)
            slots[stream] = self.slots.setdefault((depth, slot, stream), known)
        if step.count:
            self.add(step.steps, number + 1, slots, own, step)
        tasks = len(self.tasks) - own - 1
        if not tasks:
            self.tasks.pop()
            return
        self.tasks[own] = replace(task, tasks=tasks)
        pending.clear()
        pending.add(own)


class Player:
    """Tasks in native form, run by `threads` workers, the caller included.

    `functions` are the kernels' addresses; `arguments` has the addresses of each step's arguments
    (of a copy: source, target; of a loop: its guard, if it has one), `descriptions` those of what
    prebuilt functions read of the kernel, which lie in front of the step's arguments. Bases are the
    addresses that differ from call to call, in a C array of uint64. With `flush` denormals count as
    zeros. `waiting` are the kernels that wait for other processes. A player's methods must not be
    entered by two threads at once, nor while another player runs.
    """

    def __init__(
        self,
        plan: Plan,
        tasks: Sequence[PlayerTask],
        functions: Mapping[str, int],
        arguments: Mapping[int, Sequence[RelativeAddress]],
        threads: int,
        flush: bool,
        descriptions: Mapping[int, RelativeAddress] | None = None,
        waiting: Collection[str] = (),
    ) -> None:
        library = _library()
        steps = all_steps(plan.steps)
        table, first = _argument_table(arguments, descriptions or {})
        successors: list[list[int]] = [[] for _ in tasks]
        for index, task in enumerate(tasks):
            for predecessor in task.predecessors:
                successors[predecessor].append(index)
        edges = np.array([s for group in successors for s in group], np.int32)
        numbers = {index: n for n, index in enumerate(_loops(tasks))}
        specs = np.zeros(len(tasks), TASK)
        self._tasks_of: dict[str, list[int]] = {}
        edge = 0
        for index, task in enumerate(tasks):
            step = steps[task.step]
            function, size = 0, 0
            if isinstance(step, Launch):
                function = functions[step.kernel]
                self._tasks_of.setdefault(step.kernel, []).append(index)
            elif isinstance(step, Copy):
                size = _size(step.source)
            counts = (len(task.predecessors), edge, len(successors[index]))
            place = (first.get(task.step, 0), task.phase, task.chunks, task.slot)
            within = numbers.get(task.inside, -1), numbers.get(index, -1)
            waits = isinstance(step, Launch) and step.kernel in waiting
            nested = (*within, *task.during, task.guarded, waits)
            specs[index] = (function, size, *place, *counts, *nested)
            edge += len(successors[index])
        loops_table, moves = _loop_table(tasks, arguments, first)
        slots = 1 + max((task.slot for task in tasks), default=0)
        self.tasks = tuple(tasks)
        self.loops = tuple(numbers)
        """The indices of the tasks that are loops."""
        self._play = find_caller().play
        self._play_in_order = library.graphc_play_in_order
        self._play_timed = library.graphc_play_timed
        self._replace = library.graphc_replace
        # fmt: off
        self._program = library.graphc_load(
            specs.ctypes.data, len(specs), edges.ctypes.data, len(edges),
            table.ctypes.data, len(table), loops_table.ctypes.data, len(loops_table),
            moves.ctypes.data, len(moves), slots, threads, flush,
        )
        # fmt: on
        if not self._program:
            raise RunError(f"out of memory: the list of {len(tasks)} tasks of {plan.name}")
        weakref.finalize(self, library.graphc_free, self._program).atexit = False

    def play(self, bases: int) -> None:
        """Run all tasks, concurrently where the edges allow it; `bases` is the address of the
        bases."""
        self._play(self._program, bases)

    def replace(self, kernel: str, function: int) -> None:
        """Let the function at this address play a kernel from the next call on."""
        for task in self._tasks_of.get(kernel, ()):
            self._replace(self._program, task, function)

    def play_in_order(
        self, bases: int, first: int, last: int, iterations: Mapping[int, int] | None = None
    ) -> None:
        """Run tasks `first` to `last` (exclusive) one after another on this thread alone.

        `iterations` has those of the enclosing loops, by the loops' task indices.
        """
        known = iterations or {}
        at = np.array([known.get(loop, 0) for loop in self.loops], np.int32)
        self._play_in_order(self._program, bases, first, last, at.ctypes.data)

    def play_timed(self, bases: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """As `play`; returns [tasks, 3] nanoseconds of one clock: first start, last end, and time
        summed over all iterations."""
        times = np.zeros((len(self.tasks), 3), np.int64)
        self._play_timed(self._program, bases, times.ctypes.data)
        return times


def _during(step: Launch | Copy | Loop, around: Loop | None) -> tuple[int, int]:
    """The iterations of the enclosing loop in which a step runs."""
    return (step.stage, step.stage + around.length) if around else (0, 0)


def _chunks(plan: Plan, step: Launch | Copy) -> tuple[int, ...]:
    if isinstance(step, Launch):
        return plan.kernels[step.kernel].phases
    return (-(-_size(step.source) // COPY_CHUNK),)


def _size(place: Range) -> int:
    return place.stop - place.start


def _argument_table(
    arguments: Mapping[int, Sequence[RelativeAddress]],
    descriptions: Mapping[int, RelativeAddress],
) -> tuple[np.ndarray[Any, np.dtype[Any]], dict[int, int]]:
    """All arguments in one array, with the kernel's description in front of a step's where there is
    one, and the index of each step's first."""
    rows: list[tuple[int, int]] = []
    first = {}
    for step, addresses in arguments.items():
        if step in descriptions:
            rows.append((descriptions[step].base, descriptions[step].offset))
        first[step] = len(rows)
        rows += [(a.base, a.offset) for a in addresses]
    return np.array(rows, ARGUMENT), first


def _loops(tasks: Sequence[PlayerTask]) -> list[int]:
    return [index for index, task in enumerate(tasks) if task.count]


def _loop_table(
    tasks: Sequence[PlayerTask],
    arguments: Mapping[int, Sequence[RelativeAddress]],
    first: Mapping[int, int],
) -> tuple[np.ndarray[Any, np.dtype[Any]], np.ndarray[Any, np.dtype[Any]]]:
    """All loops, and the moves of their arguments, one loop after another."""
    moves: dict[int, list[tuple[int, int, int]]] = {index: [] for index in _loops(tasks)}
    inside = {task.step: task.inside for task in tasks}
    inside |= {tasks[own].step: own for own in moves}  # a guard moves with its loop
    for step, addresses in arguments.items():
        around = []
        loop = inside.get(step, -1)
        while loop >= 0:
            around.append(loop)
            loop = tasks[loop].inside
        for n, address in enumerate(addresses):
            for own, move in zip(reversed(around), address.moves, strict=False):
                if move.stride and move.period > 1:
                    moves[own].append((move.stride, first[step] + n, move.period))
    rows, start = [], 0
    for own, group in moves.items():
        guard = first.get(tasks[own].step, -1)
        rows.append((own, tasks[own].tasks, tasks[own].count, start, len(group), guard))
        start += len(group)
    flat = [move for group in moves.values() for move in group]
    return np.array(rows, LOOP), np.array(flat, MOVE)


def _library() -> ctypes.CDLL:
    library = player_library()
    pointer, number = ctypes.c_void_p, ctypes.c_int
    # fmt: off
    signatures: dict[str, tuple[Any, ...]] = {
        "graphc_load": (*(pointer, number) * 5, number, number, number),
        "graphc_free": (pointer,),
        "graphc_replace": (pointer, number, pointer),
        "graphc_play": (pointer, pointer),
        "graphc_play_in_order": (pointer, pointer, number, number, pointer),
        "graphc_play_timed": (pointer, pointer, pointer),
    }
    # fmt: on
    for name, types in signatures.items():
        function = getattr(library, name)
        function.argtypes = types
        function.restype = pointer if name == "graphc_load" else None
    return library
