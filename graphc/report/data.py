"""Gathers what a report shows of a program from the program's own objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from graphc.base.errors import GraphError, PlanError
from graphc.inspect.explain import Explainer
from graphc.inspect.memory import memory_report
from graphc.inspect.profile import Profile, gradients_of
from graphc.inspect.subject import Subject
from graphc.ir import Graph
from graphc.ops.cost import node_bytes, node_flops
from graphc.ops.loops.scan import bodies
from graphc.report import memory, timing
from graphc.report.model import KernelData, ProgramData, StepData, Summary
from graphc.report.sources import source_files
from graphc.report.stages import Stages, phase, repeated_nodes, value_types
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Record, Step, all_steps
from graphc.runtime.planner.concurrency import DeviceModel


class Why:
    """What `program.explain` says, as lines without the subject."""

    def __init__(self, program: Subject) -> None:
        self._explainer = Explainer(program)

    def __call__(self, what: object) -> tuple[str, ...]:
        try:
            lines = str(self._explainer.explain(what)).splitlines()[1:]
        except GraphError:  # names that only a plan has, such as a workspace
            return ()
        return tuple(line.strip() for line in lines)


def program_data(program: Subject, profile: Profile | None = None, workers: int = 1) -> ProgramData:
    """What is known of `program`, which plays with so many workers."""
    stages = Stages(program.stages)
    types: dict[str, str] = {}
    for graph in program.stages.values():
        types.update(value_types(graph))
    plan, why = program.plan, Why(program)
    machine = DeviceModel(program.target.device, workers)
    kernels = () if plan is None else tuple(_kernels(program, plan, stages, machine, profile, why))
    steps = () if plan is None else tuple(_steps(plan.steps, why))
    times = {k.name: k.predicted if k.measured is None else k.measured for k in kernels}
    spans = [] if plan is None else timing.modelled(plan, _durations(times, machine))
    ran = timing.as_ran(plan, profile.spans) if plan and profile else ()
    held = [] if plan is None else memory.buffers(plan, types)
    held = [replace(buffer, reasons=why(buffer.value)) for buffer in held]
    traced = (v.name for node in program.stages["trace"].nodes for v in node.outputs)
    state = [b.value for b in plan.state] if plan else _optimised(program).state
    return ProgramData(
        summary=replace(summary(program, workers), measured=profile.step if profile else None),
        nodes=tuple(stages.nodes),
        types=types,
        stages=stages.stages,
        kernels=kernels,
        steps=steps,
        buffers=tuple(held),
        live=memory.live(held, len(steps)),
        state=tuple((v.name, str(v.type), v.type.nbytes) for v in state),
        modelled=tuple(spans),
        critical=timing.critical_path([s for s in spans if steps[s.step].inside < 0]),
        timeline=ran,
        limits=None if plan is None else timing.limits(plan, workers, profile),
        notes=() if plan is None else plan.notes,
        advice=memory_report(program).advice if plan else (),
        became={name: lines for name in traced if (lines := why(name))},
        files=source_files(line for node in stages.nodes for line in node.lines),
    )


def _steps(steps: Sequence[Step], why: Why, first: int = 0, inside: int = -1) -> Iterable[StepData]:
    number = first
    for step in steps:
        reads: tuple[str, ...] = ()
        writes: tuple[str, ...] = ()
        if isinstance(step, Launch | Loop):
            reads, writes = tuple(r.value for r in step.reads), tuple(r.value for r in step.writes)
            name = step.kernel if isinstance(step, Launch) else step.name
        elif isinstance(step, Copy):
            reads, writes, name = (step.source.value,), (step.target.value,), step.target.value
        else:
            name = f"e{step.event}"
        kind = type(step).__name__.lower()
        count = step.count if isinstance(step, Loop) else 1
        reasons = () if isinstance(step, Launch) else why(step)
        yield StepData(kind, step.stream, name, inside, count, reads, writes, reasons)
        number += 1
        if isinstance(step, Loop):
            yield from _steps(step.steps, why, number, number - 1)
            number += len(all_steps(step.steps))


def launches(steps: Iterable[Step], times: int = 1) -> Iterable[tuple[Launch, int]]:
    """The launches, with how often each is played in one call."""
    for step in steps:
        if isinstance(step, Loop):
            for inner in step.steps:
                often = step.length if isinstance(inner, Launch) else step.count
                yield from launches((inner,), times * often)
        elif isinstance(step, Launch):
            yield step, times


def _kernels(
    program: Subject,
    plan: Plan,
    stages: Stages,
    machine: DeviceModel,
    profile: Profile | None,
    why: Why,
) -> Iterable[KernelData]:
    """The kernels in the order of their first launches."""
    graph = _optimised(program)
    graphs = (graph, *bodies(graph))
    makers = {v.name: n for graph in graphs for n in graph.nodes for v in n.outputs}
    first: dict[str, Launch] = {}
    often: Counter[str] = Counter()
    measured = {row.kernel: row.mean for row in (profile.rows if profile else ())}
    gradients = gradients_of(program)
    for launch, times in launches(plan.steps):
        first.setdefault(launch.kernel, launch)
        often[launch.kernel] += times
    for name, launch in first.items():
        kernel = plan.kernels[name]
        node = next((makers[w.value] for w in launch.writes if w.value in makers), None)
        yield KernelData(
            name=name,
            template=kernel.template,
            node=-1 if node is None else stages.number(node),
            module=launch.where.module,
            lines=launch.where.lines,
            phase=phase(launch.where),
            gradient=gradients.get(name, ""),
            launches=often[name],
            bytes=kernel.bytes,
            flops=kernel.flops,
            workspace=kernel.workspace,
            predicted=machine.kernel(kernel).microseconds,
            measured=measured.get(name),
            reasons=why(name),
            source=kernel.source,
        )


def summary(program: Subject, workers: int = 1) -> Summary:
    """The figures of a program with so many workers, as far as they are known without a call."""
    plan = program.plan
    machine = DeviceModel(program.target.device, workers)
    whole = program.stages.get("differentiate", program.stages["trace"])
    ops = [(n, times) for n, times in repeated_nodes(whole) if not n.is_free]
    after = _optimised(program)
    made = [(n, times) for n, times in repeated_nodes(after) if n.op.name != "reshape"]
    return Summary(
        name=program.name,
        device=program.target.device,
        ops=len(ops),
        kernels=len(plan.kernels) if plan else len(made),
        op_launches=sum(times for _, times in ops),
        launches=sum(times for _, times in (launches(plan.steps) if plan else made)),
        op_bytes=sum(times * node_bytes(n) for n, times in ops),
        bytes=sum(times * node_bytes(n) for n, times in made),
        flops=sum(times * node_flops(n) for n, times in made),
        state_bytes=sum(v.type.nbytes for v in after.state),
        peak=plan.peak_bytes if plan else 0,
        bound=plan.lower_bound_bytes if plan else 0,
        streams=plan.streams if plan else 0,
        events=sum(isinstance(s, Record) for s in all_steps(plan.steps)) if plan else 0,
        predicted=_predicted(plan, machine) if plan else 0.0,
        measured=None,
        verified=_verdict(plan) if plan else "",
    )


def _optimised(program: Subject) -> Graph:
    return list(program.stages.values())[-1]


def _predicted(plan: Plan, machine: DeviceModel) -> float:
    """Microseconds of one call by the estimates that arranged the plan."""
    times = {name: machine.kernel(kernel).microseconds for name, kernel in plan.kernels.items()}
    spans = timing.modelled(plan, _durations(times, machine))
    return plan.estimate.microseconds or max((s.stop for s in spans), default=0.0)


def _durations(times: Mapping[str, float], machine: DeviceModel) -> timing.Duration:
    """Microseconds of a step, by those of the kernels."""

    def duration(step: Launch | Copy) -> float:
        if isinstance(step, Launch):
            return times[step.kernel]
        return machine.copy(step.source.stop - step.source.start).microseconds

    return duration


def _verdict(plan: Plan) -> str:
    try:
        return str(plan.verify())
    except PlanError as error:
        return f"not valid: {error}"
