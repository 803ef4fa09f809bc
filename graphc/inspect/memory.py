"""Report the peak of a program's work memory, and what holds it."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.base import html
from graphc.inspect.subject import Subject
from graphc.ir import Where
from graphc.runtime.plan.lives import Life, at_peak, step_name
from graphc.runtime.plan.plan import Plan, all_steps
from graphc.runtime.plan.text import megabytes

MOST_LISTED = 20
"""Tensors that the text of a report names, the largest first."""


@dataclass(frozen=True)
class MemoryReport:
    """What stands at the peak of one call. Sizes are in bytes; prints as a table."""

    program: str
    peak: int
    """Of the work arena, alignment included."""
    lower_bound: int
    """The most that is live at once on one stream."""
    state: int
    """Parameters, moments and counters, which stay."""
    step: int
    """The number of the step at which most is alive, as the plan prints it; -1 if there is none."""
    launch: str
    """The kernel, the loop or `copy` of that step."""
    where: Where
    """Of that step: module path and the user's lines."""
    tensors: tuple[Life, ...]
    """What is alive there, the largest first, each with its producer, its lines and its last
    use."""
    advice: tuple[str, ...]
    """What would lower the peak, a sentence each."""

    def __str__(self) -> str:
        head = (
            f"memory {self.program}: work peak {megabytes(self.peak)}, lower bound "
            f"{megabytes(self.lower_bound)}, state {megabytes(self.state)}"
        )
        if self.step < 0:
            return f"{head}\n  no kernel uses work memory"
        alive = sum(life.nbytes for life in self.tensors)
        lines = [head, f"at step {self.step}, {self.launch}{_place(self.where)}:"]
        lines[1] += f" {megabytes(alive)} in {len(self.tensors)} tensors"
        shown = [_row(life) for life in self.tensors[:MOST_LISTED]]
        widths = [max(len(row[i]) for row in shown) for i in range(4)]
        lines += [
            f"  {size:>{widths[0]}}  {value:{widths[1]}}  {made:{widths[2]}}  {used:{widths[3]}}"
            f"  {line}".rstrip()
            for size, value, made, used, line in shown
        ]
        if rest := self.tensors[MOST_LISTED:]:
            nbytes = sum(life.nbytes for life in rest)
            lines.append(f"  {megabytes(nbytes)} in {len(rest)} smaller ones")
        return "\n".join([*lines, *(f"lower it: {advice}" for advice in self.advice)])

    def _repr_html_(self) -> str:
        head = ("bytes", "tensor", "made by", "last used by", "line")
        rows = [(x.nbytes, x.value, x.producer, x.reader, str(x.where)) for x in self.tensors]
        title = f"{self.program}: peak {self.peak:,} bytes at step {self.step} ({self.launch})"
        return html.table(title, head, rows)


def memory_report(program: Subject) -> MemoryReport:
    """What holds the peak of the program's work memory, and what would lower it."""
    plan = program.plan
    if plan is None:
        return MemoryReport(program.name, 0, 0, 0, -1, "", Where(), (), (_NO_PLAN,))
    state = sum(b.value.type.nbytes for b in plan.state)
    if not plan.peak_bytes:
        return MemoryReport(program.name, 0, 0, state, -1, "", Where(), (), ())
    number, held = at_peak(plan)
    step = all_steps(plan.steps)[number]
    where = getattr(step, "where", Where())
    return MemoryReport(
        program.name,
        plan.peak_bytes,
        plan.lower_bound_bytes,
        state,
        number,
        step_name(step),
        where,
        tuple(held),
        tuple(_advice(plan, number, held)),
    )


_NO_PLAN = "the reference device plays the graph in NumPy, which plans no memory"


def _advice(plan: Plan, number: int, held: list[Life]) -> list[str]:
    advice = []
    kept = [x for x in held if x.first < number < x.last]
    if kept:
        nbytes, largest = sum(x.nbytes for x in kept), kept[0]
        advice.append(
            f"{megabytes(nbytes)} only wait for later steps: %{largest.value} from step "
            f"{largest.first} ({largest.producer}) until step {largest.last} ({largest.reader}); a "
            "smaller batch shrinks all of them, and a ceiling, compile(memory=bytes), says at once "
            "whether the plan can do with less"
        )
    name = step_name(all_steps(plan.steps)[number])
    now = [x for x in held if number in (x.first, x.last)]
    if now:
        advice.append(
            f"{megabytes(sum(x.nbytes for x in now))} are read or written by {name}"
            " itself, whose arrays a smaller batch or a split layer makes smaller"
        )
    alive = sum(x.nbytes for x in held)
    if plan.streams > 1 and plan.peak_bytes > plan.lower_bound_bytes:
        saved = megabytes(plan.peak_bytes - plan.lower_bound_bytes)
        advice.append(
            f"streams=1 may save up to {saved}: streams keep buffers apart that one shares"
        )
    elif plan.peak_bytes > 1.01 * alive:
        advice.append(
            f"gaps between buffers take {megabytes(plan.peak_bytes - alive)}: "
            'compile(memory="search") looks longer for a tighter packing'
        )
    return advice


def _row(life: Life) -> tuple[str, str, str, str, str]:
    return (
        megabytes(life.nbytes),
        f"%{life.value}",
        f"made by {life.producer} ({life.first})",
        f"until {life.reader} ({life.last})",
        str(life.where),
    )


def _place(where: Where) -> str:
    return f" ({where})" if str(where) else ""
