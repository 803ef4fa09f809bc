"""Less work memory for more time: which kernels run again so that a plan fits a limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from graphc.ir import Graph
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.plan.plan import Plan
from graphc.runtime.planner.again import Launched, graph_again
from graphc.runtime.planner.beside import Machine
from graphc.runtime.planner.graph_tasks import make_tasks
from graphc.runtime.planner.order import memory_order
from graphc.runtime.planner.repeats import repeat_for, repeat_within
from graphc.runtime.planner.sequence import Serial, serial

MOST_TIME = 0.25
"""The share of a call's estimated time that `memory="lean"` may add. A choice: the whole forward
pass again would be a third."""
ATTEMPTS = 4
"""Sequences tried for one limit: packing may take more than what lives at once."""

Planned = tuple[Graph, Plan]
PlanOf = Callable[[Graph, Mapping[str, Kernel]], Plan]
"""The verified plan of a graph with its kernels."""


@dataclass(frozen=True)
class Leaner:
    """Graphs of the same results as `graph` for one device, whose plans take less memory."""

    graph: Graph
    kernels: Mapping[str, Kernel]
    machine: Machine
    plan_of: PlanOf

    def lean(self) -> Planned:
        """That of the least peak found whose estimated time is at most `MOST_TIME` longer."""
        base, launched, times = self._begin()
        found = repeat_for(base, launched.repeatable(), times, MOST_TIME * sum(times))
        return self._planned(launched, found, base, times, 'memory="lean"')

    def within(self, limit: int) -> Planned:
        """The one of least estimated time found whose plan takes at most `limit` bytes, or the one
        that takes least."""
        base, launched, times = self._begin()
        repeatable = launched.repeatable()
        target, tried = limit, list[Planned]()
        for _ in range(ATTEMPTS):
            found = repeat_within(base, repeatable, times, target)
            graph, plan = self._planned(launched, found, base, times, f"{limit} bytes are allowed")
            tried.append((graph, plan))
            if plan.peak_bytes <= limit or found.peak > target:
                break
            target -= plan.peak_bytes - limit
        return min(tried, key=lambda planned: max(limit, planned[1].peak_bytes))

    def _begin(self) -> tuple[Serial, Launched, list[float]]:
        tasks = make_tasks(self.graph, self.kernels, 1, self.machine)
        launched = Launched.of(self.graph, self.kernels, tasks)
        times = [
            task.loop.demand.microseconds
            if task.loop is not None
            else self.machine.kernel(task.kernel).microseconds
            if task.kernel is not None
            else self.machine.copy(tasks.nbytes(task.reads[0])).microseconds
            for task in tasks.tasks
        ]
        return serial(tasks, memory_order(tasks)), launched, times

    def _planned(
        self, launched: Launched, found: Serial, base: Serial, times: list[float], why: str
    ) -> Planned:
        graph, repeated = graph_again(launched, found)
        kernels = {**self.kernels}
        for output, node in repeated.items():
            kernels[output] = self.kernels[node.outputs[0].name]
        plan = self.plan_of(graph, kernels)
        notes = notes_of(launched, found, base, times, why)
        return graph, replace(plan, notes=(*plan.notes, *notes))


def notes_of(
    launched: Launched, found: Serial, base: Serial, times: list[float], why: str
) -> list[str]:
    """What runs again, why, what it saves and what it takes; the costliest first."""
    cost, tasks = found.cost(times), launched.tasks.tasks
    again = [(place, step) for place, step in enumerate(found.steps) if step.again]
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
        size = sum(found.room[v] for v in read)
        before = ", ".join(dict.fromkeys(reader[v] for v in read))
        lines.append(
            f"memory: {tasks[step.task].name} again before {before}: {size} bytes are not held, "
            f"{times[step.task]:.0f} us"
        )
    return [head, *lines]
