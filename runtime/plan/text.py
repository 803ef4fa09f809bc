"""Print a plan as text: a header, then one line per step."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.base.errors import PlanError
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Range, Record, Step, all_steps

MEASURED = "measured"
"""Notes that begin with this word depend on measured times."""


def plan_text(plan: Plan, measured: bool = False) -> str:
    """The plan's name, device, counts, memory and notes, then its steps in issue order.

    A step's fields, separated by spaces, are: its number, `sN`, `launch` `copy` `record` `wait` or
    `loop`, the kernel, value, event or loop, then `reads` and `writes` with ranges
    `value=segment+start..stop` in bytes, then its origin after a `#`. A loop has `times N` before
    what it reads, and `guard` with a range if steps marked `if guard` are left out where it is
    false; its steps follow, indented by two columns, with streams relative to the loop's.
    `~stride%period` after a range tells how it moves with each enclosing loop. Notes that begin
    with `measured` appear only if `measured`.
    """
    notes = [n for n in plan.notes if measured or not n.startswith(MEASURED)]
    steps = all_steps(plan.steps)
    depths = _depths(plan.steps, 0)
    width = len(str(max(0, len(steps) - 1)))
    names = [_subject(step) for step in steps]
    column = max((2 * d + len(n) for n, d in zip(names, depths, strict=True)), default=0)
    lines = [
        f"  {index:{width}}  {'  ' * depth}s{step.stream}  {type(step).__name__.lower():6}  "
        f"{name:{column - 2 * depth}}  {_ranges(step)}".rstrip()
        for index, (step, depth, name) in enumerate(zip(steps, depths, names, strict=True))
    ]
    return "\n".join([*_header(plan), *notes, *lines]) + "\n"


def megabytes(nbytes: int) -> str:
    """A size such as `3.45 MB` (1 MB = 10^6 bytes)."""
    return f"{nbytes / 1e6:.2f} MB"


def _depths(steps: Sequence[Step], depth: int) -> list[int]:
    """The number of loops around each step."""
    depths = []
    for step in steps:
        depths.append(depth)
        if isinstance(step, Loop):
            depths += _depths(step.steps, depth + 1)
    return depths


def _header(plan: Plan) -> list[str]:
    steps = all_steps(plan.steps)
    launches = sum(isinstance(step, Launch) for step in steps)
    events = sum(isinstance(step, Record) for step in steps)
    loops = sum(isinstance(step, Loop) for step in steps)
    state = sum(b.value.type.nbytes for b in plan.state)
    return [
        f"plan {plan.name}  {plan.device}  {_counted(plan.streams, 'stream')}  "
        f"{_counted(launches, 'launch', 'launches')}  {_counted(events, 'event')}"
        + (f"  {_counted(loops, 'loop')}" if loops else ""),
        f"state {megabytes(state)}   work peak {megabytes(plan.peak_bytes)}   "
        f"lower bound {megabytes(plan.lower_bound_bytes)}   {_verdict(plan)}",
    ]


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _verdict(plan: Plan) -> str:
    try:
        return f"verified {plan.verify().digest}"
    except PlanError as error:
        return f"not valid: {error}"


def _subject(step: Step) -> str:
    if isinstance(step, Launch):
        return step.kernel
    if isinstance(step, Loop):
        return step.name
    return step.source.value if isinstance(step, Copy) else f"e{step.event}"


def _ranges(step: Step) -> str:
    if isinstance(step, Copy):
        found = f"reads {_place(step.source)}  writes {_place(step.target)}"
        return f"if guard  {found}" if step.guarded else found
    if not isinstance(step, Launch | Loop):
        return ""
    times = f"times {step.count}  " if isinstance(step, Loop) else ""
    if isinstance(step, Loop) and step.guard is not None:
        times += f"guard {_place(step.guard)}  "
    if step.guarded:
        times = f"if guard  {times}"
    reads = " ".join(map(_place, step.reads)) or "nothing"
    writes = " ".join(map(_place, step.writes)) or "nothing"
    where = f"  # {step.where}" if str(step.where) else ""
    return f"{times}reads {reads}  writes {writes}{where}"


def _place(place: Range) -> str:
    moves = "".join(f"~{move.stride:+d}%{move.period}" for move in place.moves)
    return f"{place.value}={place.segment}+{place.start}..{place.stop}{moves}"


Plan.format_text = plan_text
