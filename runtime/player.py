"""The Python side of the native player: a plan resolved to tasks with edges.

A task is one phase of a launch, or a copy. It waits for the task before it on its stream and for
those that the events before it stand for; nothing else of streams and events is left. The player
itself, which decides who runs which chunk when, is native/cpu/program.h and pool.h.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.errors import PlanError, RunError
from graphc.runtime.build import player_library
from graphc.runtime.plan import Copy, Launch, Plan, Range, Record, Wait

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
        ("padding", np.int32),
    ]
)
"""`TaskSpec` of program.h."""

ARGUMENT = np.dtype([("base", np.int64), ("offset", np.int64)])
"""`Argument` of program.h."""


@dataclass(frozen=True)
class Task:
    """One phase of the launch `plan.steps[step]`, or that copy (phase 0), in `chunks` pieces.
    `predecessors` are the indices of the tasks that must end before."""

    step: int
    phase: int
    chunks: int
    stream: int
    predecessors: tuple[int, ...]


@dataclass(frozen=True)
class Address:
    """`offset` bytes from what `base` is at a call."""

    base: int
    offset: int


def resolve(plan: Plan, in_order: bool = False) -> list[Task]:
    """The tasks of `plan` in the order of its steps, each after its predecessors.

    `in_order` makes each wait for the one before it, whatever its stream. Raises PlanError for a
    wait on an event that is not recorded before.
    """
    tasks: list[Task] = []
    before: dict[int, set[int]] = {}
    events: dict[int, frozenset[int]] = {}
    for index, step in enumerate(plan.steps):
        stream = 0 if in_order else step.stream
        ahead = before.setdefault(stream, set())
        if isinstance(step, Record):
            events[step.event] = frozenset(ahead)
        elif isinstance(step, Wait) and in_order:
            continue
        elif isinstance(step, Wait):
            if step.event not in events:
                raise PlanError(f"step {index} waits for event {step.event}, never recorded before")
            ahead |= events[step.event]
        else:
            for phase, chunks in enumerate(_chunks(plan, step)):
                if chunks > 0:
                    tasks.append(Task(index, phase, chunks, stream, tuple(sorted(ahead))))
                    ahead.clear()
                    ahead.add(len(tasks) - 1)
    return tasks


class Player:
    """The native form of tasks: plays them with `threads` workers in all, the caller included.

    `functions` are the kernels' addresses; `arguments` holds the addresses of each step's
    arguments (of a copy: source, target). Bases are the addresses that may differ from call to
    call; `play` and its like take them as a C array of uint64. A player's methods must not be
    entered by two threads at once, nor while another player plays.
    """

    def __init__(
        self,
        plan: Plan,
        tasks: Sequence[Task],
        functions: Mapping[str, int],
        arguments: Mapping[int, Sequence[Address]],
        threads: int,
    ) -> None:
        library = _library()
        table, first = _argument_table(arguments)
        successors: list[list[int]] = [[] for _ in tasks]
        for index, task in enumerate(tasks):
            for predecessor in task.predecessors:
                successors[predecessor].append(index)
        edges = np.array([s for group in successors for s in group], np.int32)
        specs = np.zeros(len(tasks), TASK)
        edge = 0
        for index, task in enumerate(tasks):
            step = plan.steps[task.step]
            function, size = 0, 0
            if isinstance(step, Launch):
                function = functions[step.kernel]
            elif isinstance(step, Copy):
                size = _size(step.source)
            counts = (len(task.predecessors), edge, len(successors[index]), 0)
            place = (first[task.step], task.phase, task.chunks, task.stream)
            specs[index] = (function, size, *place, *counts)
            edge += len(successors[index])
        slots = 1 + max((task.stream for task in tasks), default=0)
        self.tasks = tuple(tasks)
        self._play = library.graphc_play
        self._play_in_order = library.graphc_play_in_order
        self._play_timed = library.graphc_play_timed
        # fmt: off
        self._program = library.graphc_load(
            specs.ctypes.data, len(specs), edges.ctypes.data, len(edges),
            table.ctypes.data, len(table), slots, threads,
        )
        # fmt: on
        if not self._program:
            raise RunError(f"out of memory: the list of {len(tasks)} tasks of {plan.name}")
        weakref.finalize(self, library.graphc_free, self._program).atexit = False

    def play(self, bases: Any) -> None:
        """All tasks, any of them at once that the edges allow."""
        self._play(self._program, bases)

    def play_in_order(self, bases: Any, first: int, last: int) -> None:
        """Tasks `first` to `last` (exclusive) one after another on this thread alone."""
        self._play_in_order(self._program, bases, first, last)

    def play_timed(self, bases: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """As `play`. Start and end of each task, [tasks, 2], nanoseconds of one clock."""
        times = np.zeros((len(self.tasks), 2), np.int64)
        self._play_timed(self._program, bases, times.ctypes.data)
        return times


def _chunks(plan: Plan, step: Launch | Copy) -> tuple[int, ...]:
    if isinstance(step, Launch):
        return plan.kernels[step.kernel].phases
    return (-(-_size(step.source) // COPY_CHUNK),)


def _size(place: Range) -> int:
    return place.stop - place.start


def _argument_table(
    arguments: Mapping[int, Sequence[Address]],
) -> tuple[np.ndarray[Any, np.dtype[Any]], dict[int, int]]:
    """All arguments in one array, and the index of each step's first."""
    rows: list[tuple[int, int]] = []
    first = {}
    for step, addresses in arguments.items():
        first[step] = len(rows)
        rows += [(a.base, a.offset) for a in addresses]
    return np.array(rows, ARGUMENT), first


def _library() -> ctypes.CDLL:
    library = player_library()
    pointer, number = ctypes.c_void_p, ctypes.c_int
    # fmt: off
    signatures: dict[str, tuple[Any, ...]] = {
        "graphc_load": (pointer, number, pointer, number, pointer, number, number, number),
        "graphc_free": (pointer,),
        "graphc_play": (pointer, pointer),
        "graphc_play_in_order": (pointer, pointer, number, number),
        "graphc_play_timed": (pointer, pointer, pointer),
    }
    # fmt: on
    for name, types in signatures.items():
        function = getattr(library, name)
        function.argtypes = types
        function.restype = pointer if name == "graphc_load" else None
    return library
