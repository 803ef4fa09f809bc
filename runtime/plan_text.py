"""A plan as text: a header, then one line per step."""

from __future__ import annotations

from graphc.errors import PlanError
from graphc.runtime.plan import Copy, Launch, Plan, Range, Record, Step
from graphc.runtime.verify import verify

MEASURED = "measured"
"""A note that begins with this word depends on the machine's times."""


def plan_text(plan: Plan, measured: bool = False) -> str:
    """The plan's name, device, counts, memory and notes; then its steps in the order of issue.

    A step's fields, split at spaces, are: its number, `sN`, `launch` `copy` `record` or `wait`,
    the kernel, value or event, then `reads` and `writes` with ranges `value=segment+start..stop`
    in bytes, then what it comes from after a `#`. Notes that begin with `measured` are left out
    unless `measured`.
    """
    notes = [n for n in plan.notes if measured or not n.startswith(MEASURED)]
    width = len(str(max(0, len(plan.steps) - 1)))
    names = [_subject(step) for step in plan.steps]
    column = max(map(len, names), default=0)
    lines = [
        f"  {index:{width}}  s{step.stream}  {type(step).__name__.lower():6}  "
        f"{name:{column}}  {_ranges(step)}".rstrip()
        for index, (step, name) in enumerate(zip(plan.steps, names, strict=True))
    ]
    return "\n".join([*_header(plan), *notes, *lines]) + "\n"


def megabytes(nbytes: int) -> str:
    """Such as `3.45 MB` (1 MB = 10^6 bytes)."""
    return f"{nbytes / 1e6:.2f} MB"


def _header(plan: Plan) -> list[str]:
    launches = sum(isinstance(step, Launch) for step in plan.steps)
    events = sum(isinstance(step, Record) for step in plan.steps)
    state = sum(b.value.type.nbytes for b in plan.state)
    return [
        f"plan {plan.name}  {plan.device}  {_counted(plan.streams, 'stream')}  "
        f"{_counted(launches, 'launch', 'launches')}  {_counted(events, 'event')}",
        f"state {megabytes(state)}   work peak {megabytes(plan.peak_bytes)}   "
        f"lower bound {megabytes(plan.lower_bound_bytes)}   {_verdict(plan)}",
    ]


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _verdict(plan: Plan) -> str:
    try:
        return f"verified {verify(plan).digest}"
    except PlanError as error:
        return f"not valid: {error}"


def _subject(step: Step) -> str:
    if isinstance(step, Launch):
        return step.kernel
    return step.source.value if isinstance(step, Copy) else f"e{step.event}"


def _ranges(step: Step) -> str:
    if isinstance(step, Copy):
        return f"reads {_place(step.source)}  writes {_place(step.target)}"
    if not isinstance(step, Launch):
        return ""
    reads = " ".join(map(_place, step.reads)) or "nothing"
    writes = " ".join(map(_place, step.writes)) or "nothing"
    where = f"  # {step.where}" if str(step.where) else ""
    return f"reads {reads}  writes {writes}{where}"


def _place(place: Range) -> str:
    return f"{place.value}={place.segment}+{place.start}..{place.stop}"
