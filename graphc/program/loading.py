"""From an optimized graph to an executable: lower, plan and load it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from graphc.base import config
from graphc.base.errors import RunError
from graphc.base.messages import decide
from graphc.base.target import Target
from graphc.ir import Graph
from graphc.ir.failures import stage
from graphc.ir.state import StateBuffer
from graphc.program.executable import Executable
from graphc.program.planning import lowered, planned, within
from graphc.program.ranks import check_messages

if TYPE_CHECKING:  # nothing of it is needed before something is compiled
    from graphc.kernels.prebuilt.description import Prebuilt
    from graphc.kernels.program.kernel import Kernel
    from graphc.parallel.group import Group
    from graphc.runtime.cpu.tiers import Tiers
    from graphc.runtime.plan.plan import Plan


def default_device() -> str:
    """Return a GPU if there is one, else the CPU.

    Without PyCUDA and NVIDIA's `cuda` packages no GPU is looked for.
    """
    if find_spec("pycuda") is None and find_spec("cuda") is None:
        return "cpu"
    from graphc.runtime import cuda

    return "cuda" if cuda.gpu_found() else "cpu"


def target_of(device: str) -> Target:
    """Return the target of `device`.

    Kernels are the same for all GPUs of compute capability 8.0 or newer, present or not; an older
    one that is present gets kernels without tensor cores.
    """
    if device == "cpu":
        from graphc.runtime.compilers.player_library import begin_player
        from graphc.runtime.compilers.shared_objects import cpu_target

        begin_player()  # which takes as long as tracing and the passes
        return cpu_target().with_denormals(config.denormals())
    kind = device.partition(":")[0]
    if kind not in ("cuda", "sim"):
        return Target(kind, lanes=1)
    from graphc.runtime.cuda import lacks_tensor_cores

    older = lacks_tensor_cores(device)
    groups, bulk = config.multiplies_groups(), config.copies_in_bulk()
    return Target(
        kind,
        lanes=1,
        arch="sm_75" if older else "sm_90a",
        tensor_cores=not older,
        multiplies_groups=groups,
        copies_in_bulk=groups and bulk,
        adds_in_clusters=config.adds_in_clusters(),
        draws_tickets=config.draws_tickets(),
    )


def target_for(settings: config.Config, precision: str) -> tuple[str, Target]:
    """Return the device and its target."""
    device = settings.device or default_device()
    target = replace(
        target_of(device),
        splits_products=precision == "float32x3",
        transforms_tiles=precision == "winograd",
        joins_launches="join_launches" not in settings.disable,
    )
    return device, target


def tiers_of(
    settings: config.Config, target: Target, known: Mapping[str, Prebuilt] | None = None
) -> Tiers | None:
    """Return what decides how a CPU program's kernels begin; None on other devices.

    `known` has the prebuilt functions of kernels that were described before. Measurements and the
    check of the meaning need compiled kernels.
    """
    if target.device != "cpu":
        return None
    from graphc.runtime.cpu.tiers import Tiers

    measures = settings.tune or settings.profile or "meaning" in settings.check
    return Tiers("1" if measures else settings.tier, target, known)


def with_note(plan: Plan, executable: Any) -> Plan:
    """Return a CPU program's plan with a note on how its kernels begin, if any is prebuilt."""
    note = executable.first.note
    if not note:
        return plan
    decide(note)
    return replace(plan, notes=(*plan.notes, note))


def check_ops(graph: Graph, target: Target) -> None:
    """Raise GraphError for a user's op that no kernel of the target can compute."""
    if target.device != "reference":
        from graphc.passes.rewriting.own_ops import check_own_ops

        check_own_ops(graph)


def key_of(
    graph: Graph,
    trainable: Mapping[str, bool] | None,
    target: Target,
    settings: config.Config,
    precision: str,
) -> str | None:
    """Return the cache key of a traced graph, without its update; None if it is not cached."""
    if target.device != "cpu":
        return None
    from graphc.runtime.plan_store import plan_key

    return plan_key(graph, trainable, target, settings, precision)


def orders_messages(device: str) -> bool:
    """Return whether a device's messages add in the order of the ranks; NCCL has its own."""
    return device.partition(":")[0] == "cpu"


def load(
    graph: Graph,
    device: str,
    target: Target,
    state: Mapping[str, StateBuffer],
    settings: config.Config,
    notes: Iterable[str],
    key: str | None = None,
    group: Group | None = None,
) -> tuple[Executable, Plan | None, tuple[str, Graph] | None]:
    """Lower, plan and load a graph on its device.

    It returns the executable, its plan, and by name the graph that planning changed, if that one
    runs: `lean` recomputes, `by_step` has more loops. The plan is stored under `key`, if there is
    one. Messages of the plan go to the ranks of `group`.
    """
    if group is not None:
        check_messages(device, device.partition(":")[0] in ("cpu", "cuda"))
    if target.device == "reference":
        from graphc.runtime.reference import ReferenceExecutable

        return ReferenceExecutable(graph, state), None, None
    from graphc.runtime.compilers.translation_units import building
    from graphc.runtime.memory_limit import plan_within, refusal
    from graphc.runtime.planner.schedule import SLACK_BYTES
    from graphc.runtime.planner.time_steps import StepwisePlanner

    graph, state = pack_state(graph, state, target)
    tiers = tiers_of(settings, target)
    kernels, search, limit = lowered(graph, target), settings.memory_search, settings.memory_limit
    slack = SLACK_BYTES if limit is None and not search else 0
    if settings.tune:
        with stage("tune"):
            kernels = _tuned(graph, kernels, target, device, settings.libraries)
    lean: Graph | None = None
    steps = StepwisePlanner(graph, kernels, None if "by_step" in settings.disable else target)

    def plan_for(
        streams: int, measured: Mapping[str, float] | None = None, search: bool = search
    ) -> Plan:
        fixed = (target, streams, notes, settings.threads)
        more = (search, slack)
        return steps.best(lambda g, k, times: planned(g, k, *fixed, times, *more), measured)

    def leaner(limit: int | None = None) -> Plan:
        nonlocal lean
        lean, plan = within(graph, kernels, target, settings, notes, limit)
        return plan

    def graph_of(plan: Plan) -> Graph:
        return lean or steps.graph_of(plan)

    def played(plan: Plan, state: Mapping[str, StateBuffer]) -> Executable:
        if target.device == "cpu":
            from graphc.runtime.cpu import executable

            built()
            return executable.load(
                plan, state, settings.threads, graph_of(plan), tiers=tiers, group=group
            )
        from graphc.runtime import cuda

        checks = "race" in settings.check
        return cuda.load(plan, state, device, graph_of(plan), checks, group)

    # Which kernels there are is known; when they run is not needed to build them.
    first = {} if tiers is None else tiers.first(_named(kernels), graph).prebuilt
    now = {n: k for n, k in _named(kernels).items() if n not in first}
    with building(now) if device == "cpu" else nullcontext(lambda: None) as built:
        if settings.memory_lean:
            plan = leaner()
            if limit is not None and plan.peak_bytes > limit:
                plan = leaner(limit)
        elif settings.streams == "auto":
            from graphc.runtime.tuning.stream_autotuner import choose_plan

            machine = _machine(device, settings.threads)
            plan = choose_plan(plan_for, played, machine, limit, measures=not first)
        else:
            plan = plan_for(int(settings.streams))
        if lean is None:
            plan = plan_within(limit, plan, lambda n, s: plan_for(n, None, s), search, leaner)
        elif limit is not None and plan.peak_bytes > limit:
            raise RunError(refusal(plan, limit))
        with stage("load"):
            executable: Any = played(plan, state)
            if target.device == "cpu" and "meaning" in settings.check:
                plan = _checked(plan, graph_of(plan), executable)
            if key is not None:
                from graphc.runtime import plan_store

                first_tier = executable.first
                plan_store.store_plan(key, plan, state, first_tier.prebuilt, first_tier.keys)
            if target.device == "cpu":
                plan = with_note(plan, executable)
            made = "lean" if lean else "by_step"
            return executable, plan, None if graph_of(plan) is graph else (made, graph_of(plan))


def _checked(plan: Plan, graph: Graph, executable: Any) -> Plan:
    """The plan, with a note on how many kernels were found to add in the order stated."""
    from graphc.runtime.checks.orders import check_orders

    note = str(check_orders(graph, plan.kernels, executable.functions))
    decide(note)
    return replace(plan, notes=(*plan.notes, note))


def _tuned(
    graph: Graph, kernels: dict[str, Kernel], target: Target, device: str, libraries: bool
) -> dict[str, Kernel]:
    """Return `kernels`, or faster ones by measurement, where the device can be measured.

    With `libraries` some may be library calls.
    """
    from graphc.runtime.cpu.trial import CpuTrial
    from graphc.runtime.cuda.trial import trial_on
    from graphc.runtime.tuning.kernel_autotuner import tuned

    trial = CpuTrial() if target.device == "cpu" else trial_on(device)
    return kernels if trial is None else tuned(graph, kernels, target, trial, libraries)


def _named(kernels: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """The kernels that compute, by their own names."""
    return {kernel.name: kernel for kernel in kernels.values() if kernel.message is None}


def _machine(device: str, threads: int) -> str | None:
    """What the times of kernels on the device depend on; None if they cannot be measured."""
    if device == "cpu":
        from graphc.runtime.tuning.stream_autotuner import cpu_name

        return cpu_name(threads)
    from graphc.runtime.cuda.device import gpu_name

    return gpu_name(device)


def pack_state(
    graph: Graph,
    state: Mapping[str, StateBuffer],
    target: Target,
    changing: Collection[StateBuffer] = (),
) -> tuple[Graph, Mapping[str, StateBuffer]]:
    """Return `graph` with relayouts of unchanged state as state of its own, and all its buffers.

    These are converted once for each change instead of in each call; not those of `changing`
    buffers. On other devices than the CPU, copies of a buffer have the layouts that programs need
    anyway.
    """
    from graphc.ir.rewrite import drop_dead

    kept = set(graph.state) - {old for old, _ in graph.updates}
    kept -= {v for v in kept if any(state[v.name] is buffer for buffer in changing)}
    packed = [n for n in graph.nodes if n.op.name == "relayout" and n.inputs[0] in kept]
    if not packed:
        return graph, state
    buffers = {n.output.name: state[n.inputs[0].name] for n in packed}
    if target.device == "cpu":
        layouts = {n.output.name: n.output.type.layout for n in packed}
        buffers = {name: b.packed(layouts[name]) for name, b in buffers.items()}
    nodes = tuple(n for n in graph.nodes if n not in packed)
    values = (*graph.state, *(n.output for n in packed))
    return drop_dead(replace(graph, state=values, nodes=nodes)), {**state, **buffers}
