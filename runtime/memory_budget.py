"""Reduce work memory at the cost of time: split groups, and rerun kernels, so that a plan fits a
limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from graphc.base.cached import cached_property
from graphc.ir import Graph
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.plan.plan import Plan
from graphc.runtime.planner.concurrency import DeviceModel
from graphc.runtime.planner.graph_tasks import make_tasks
from graphc.runtime.planner.rematerialize.choose import repeat_for, repeat_within
from graphc.runtime.planner.rematerialize.rerun_graph import LaunchedGraph, graph_with_reruns
from graphc.runtime.planner.rematerialize.sequence import TaskSequence, serial
from graphc.runtime.planner.serial_order import memory_order

MOST_TIME = 0.25
"""The fraction of a call's estimated time that `memory="lean"` may add. A choice: repeating the
whole forward pass would be a third."""
ATTEMPTS = 4
"""Sequences tried for one limit: packing may need more than the live bytes."""


class Planned(NamedTuple):
    """A graph, its plan, and the estimated microseconds of a call's launches, run serially."""

    graph: Graph
    plan: Plan
    microseconds: float


PlanOf = Callable[[Graph, Mapping[str, Kernel]], Plan]
"""The verified plan of a graph with its kernels."""


def leanest(leaners: Sequence[MemoryBudget], limit: int | None) -> Planned:
    """The best of what `leaners` find for graphs of equal results, of which the first takes the
    least time.

    With a limit, the fastest that fits it, or the one of least memory; else the one of least memory
    within `MOST_TIME` of the first.
    """
    if limit is None:
        most = (1 + MOST_TIME) * leaners[0].microseconds
        found = [leaner.lean(most) for leaner in leaners if leaner.microseconds <= most]
        return min(found, key=lambda planned: planned.plan.peak_bytes)
    found = [leaner.within(limit) for leaner in leaners]
    return min(found, key=lambda p: (max(limit, p.plan.peak_bytes), p.microseconds))


@dataclass(frozen=True)
class MemoryBudget:
    """Graphs of the same results as `graph` for one device whose plans take less memory."""

    graph: Graph
    """The graph after all passes."""
    kernels: Mapping[str, Kernel]
    """Its kernels by first output."""
    machine: DeviceModel
    """The device."""
    plan_of: PlanOf
    """Plans a graph."""
    notes: tuple[str, ...] = ()
    """How the graph came about, for its plans."""

    @property
    def microseconds(self) -> float:
        """Estimated microseconds of a call's launches, run serially."""
        return sum(self._begun[2])

    def lean(self, most: float) -> Planned:
        """The plan of least peak found within `most` estimated microseconds."""
        base, launched, times = self._begun
        found = repeat_for(base, launched.repeatable(), times, most - sum(times))
        return self._planned(found, 'memory="lean"')

    def within(self, limit: int) -> Planned:
        """The fastest plan found of at most `limit` bytes, or the one of least memory."""
        base, launched, times = self._begun
        repeatable = launched.repeatable()
        target, tried = limit, list[Planned]()
        for _ in range(ATTEMPTS):
            found = repeat_within(base, repeatable, times, target)
            tried.append(self._planned(found, f"{limit} bytes are allowed"))
            peak = tried[-1].plan.peak_bytes
            if peak <= limit or found.peak > target:
                break
            target -= peak - limit
        return min(tried, key=lambda planned: max(limit, planned.plan.peak_bytes))

    @cached_property
    def _begun(self) -> tuple[TaskSequence, LaunchedGraph, list[float]]:
        """The graph's tasks in serial order, its launches, and the microseconds of each task."""
        tasks = make_tasks(self.graph, self.kernels, 1, self.machine)
        launched = LaunchedGraph.of(self.graph, self.kernels, tasks)
        times = [
            task.loop.demand.microseconds
            if task.loop is not None
            else self.machine.kernel(task.kernel).microseconds
            if task.kernel is not None
            else self.machine.copy(tasks.nbytes(task.reads[0])).microseconds
            for task in tasks.tasks
        ]
        return serial(tasks, memory_order(tasks)), launched, times

    def _planned(self, found: TaskSequence, why: str) -> Planned:
        base, launched, times = self._begun
        graph, repeated = graph_with_reruns(launched, found)
        kernels = {**self.kernels}
        for output, node in repeated.items():
            kernels[output] = self.kernels[node.outputs[0].name]
        plan = self.plan_of(graph, kernels)
        notes = (*plan.notes, *self.notes, *notes_of(launched, found, base, times, why))
        plan = replace(plan, notes=notes)
        return Planned(graph, plan, sum(times) + found.cost(times))


def notes_of(
    launched: LaunchedGraph, found: TaskSequence, base: TaskSequence, times: list[float], why: str
) -> list[str]:
    """What reruns, why, what that saves and costs; the costliest first."""
    cost, tasks = found.cost(times), launched.tasks.tasks
    again = [(place, step) for place, step in enumerate(found.steps) if step.rerun]
    head = (
        f"memory: {len(again)} launches again for {100 * cost / sum(times):.1f} % more estimated "
        f"time, {base.peak} -> {found.peak} bytes live at once: {why}"
    )
    reader: dict[int, str] = {}
    for step in reversed(found.steps):
        reader.update(dict.fromkeys(step.reads, tasks[step.task].name))
    lines = []
    for _, step in sorted(again, key=lambda entry: (-times[entry[1].task], entry[0])):
        read = [v for v in step.writes if v in reader]
        size = sum(found.value_bytes[v] for v in read)
        before = ", ".join(dict.fromkeys(reader[v] for v in read))
        lines.append(
            f"memory: {tasks[step.task].name} again before {before}: {size} bytes are not held, "
            f"{times[step.task]:.0f} us"
        )
    return [head, *lines]
