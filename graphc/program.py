"""compile(): the whole way from a Python function to a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc import config, tree
from graphc.compiled import Executable
from graphc.compiled import Program as Program
from graphc.errors import RunError
from graphc.failures import stage
from graphc.files import unused_folder
from graphc.gradients.reverse import check_scalar_loss, gradients, one_like
from graphc.ir import Graph, Where
from graphc.lines import error
from graphc.messages import decide, decisions
from graphc.nn.selection import Selection
from graphc.ops.constant import PLACED, Constant
from graphc.ops.scan import bodies
from graphc.optim.rule import Rule
from graphc.state import StateBuffer
from graphc.target import Target
from graphc.trace import Builder, Tensor
from graphc.tracing import Traced, collector_paused, trace_function

if TYPE_CHECKING:  # nothing of it is needed before something is compiled
    from graphc.kernels.program.kernel import Kernel
    from graphc.runtime.plan.plan import Plan


def compile(
    fn: Callable[..., Any],
    *args: Any,
    update: Any = None,
    train: Any = None,
    device: str | None = None,
    streams: int | str | None = None,
    threads: int | None = None,
    precision: str = "float32",
    tune: bool | None = None,
    training: bool | None = None,
    seed: int | None = None,
    disable: Iterable[str] = (),
    memory: int | str | None = None,
) -> Program:
    """A program that computes `fn(*args)`, and one training step with `update`.

    fn        a function or module; with `update` its first result is the scalar loss
    args      modules, `graphc.spec`s (or arrays of their shape and dtype), and tuples, lists and
              dicts of them; the program is called with arrays in place of the specs and without
              the modules
    update    an `optim` rule that updates the trainable parameters in the same program
    train     what `update` may change: a module, a parameter, a list of them, or a function that is
              true of names such as `encoder.fc1.weight`; default: all arguments. Parameters that
              are not trainable stay as they are
    device    "cpu", "cuda", "cuda:N", "sim" or "reference"
    streams   1 to 8 queues of kernels; default: "auto", the number that is fastest by measurement
    threads   workers on the CPU, the caller included
    training  whether dropout drops and batch norm uses the batch, in modules whose `train()` or
              `eval()` says nothing else; default: with `update`
    precision what contractions of float32 multiply; their sums are float32. "float32": the operands
              as they are. "tf32", "bfloat16": rounded to 10 or 7 bits of fraction, so that a sum of
              products a b is off by 2^-10 or 2^-7 of the sum of |a b| at most, and by its rounding;
              the same on every device, by tensor cores on a GPU. "float32x3": as float32, but a GPU
              may make a product of three of tf32: 2^-20. "winograd": as float32, but a CPU may
              compute 3 x 3 convolutions of stride 1 by Winograd's F(2 x 2) or F(4 x 4), whose error
              is larger by a bound that the plan's notes state
    tune      whether to choose among the kernels that could compute a contraction by measurement,
              not by a model of the machine: takes seconds for each layer that is new to the cache,
              and the last bits of sums may change with the choice. Default: GRAPHC_TUNE, or not
    seed      key of the program's random numbers, equal for equal seeds; default: one of its own
              for each program, which `graphc.seed` determines
    disable   names of optional passes to leave out
    memory    the most bytes of work memory that the plan may take, such as 1500000 or "2G": fewer
              streams are used if they must, then kernels run again instead of their results being
              held, and RunError is raised if that does not do; or "lean": as little as a quarter
              more time buys, by estimate; or "search", which packs buffers tighter where that can
              be done in some seconds. The results have the same bits in any case

    Raises GraphError for mistakes in the model or the arguments, CompileError if a compiler fails.
    """
    from graphc.passes import (
        pipeline as passes,  # not before it is needed: they are a tenth of the package's import
    )
    from graphc.passes.rewriting.own_ops import check_own_ops
    from graphc.passes.rewriting.runner import run_passes

    settings = config.read(streams, threads, device, tune, disable, passes.OPTIONAL, memory)
    if precision not in passes.PRECISIONS:
        *most, last = map(repr, passes.PRECISIONS)
        raise error(f"precision: expected {', '.join(most)} or {last}, got {precision!r}")
    if training not in (None, True, False):
        raise error(f"training: expected True, False or None, got {training!r}")
    if update is not None and not isinstance(update, Rule):
        got = f"the class {update.__name__}" if isinstance(update, type) else type(update).__name__
        raise error(f"update: expected a rule such as graphc.optim.SGD(lr=0.1), got {got}")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer)):
        raise error(f"seed: expected an integer or None, got {seed!r}")
    if train is not None and update is None:
        raise error("train: says what update= may change, which is not given")
    selection = None if train is None else Selection("train", train)
    disable = (disable,) if isinstance(disable, str) else disable
    device = settings.device or _default_device()
    target = replace(
        _target(device),
        splits_products=precision == "float32x3",
        transforms_tiles=precision == "winograd",
    )
    stages: dict[str, Graph] = {}

    def hook(name: str, graph: Graph) -> None:
        stages[name] = graph

    with collector_paused(), decisions() as notes:
        traced = trace_function(
            fn,
            args,
            update is not None if training is None else training,
            seed,
            "bounds" in settings.check,
        )
        outputs = [t for _, t in tree.leaves(traced.outputs)]
        graph = traced.builder.graph([*outputs, *(s.tensor for s in traced.builder.shown)])
        hook("trace", graph)
        graph = run_passes(graph, target, _enabled(passes.BEFORE_GRADIENT, settings.disable), hook)
        buffers = traced.builder.buffers
        if update is not None:
            with stage("differentiate"):
                graph, buffers = _differentiate(graph, traced, update, selection)
            hook("differentiate", graph)
        if target.device != "reference":
            check_own_ops(graph)
        pipeline = passes.after_gradient(precision)
        graph = run_passes(graph, target, _enabled(pipeline, settings.disable), hook)
        if "meaning" in settings.check:
            from graphc.meaning.check import check

            with stage("meaning"):
                decide(str(check(stages)))
        state = _bind(graph, buffers, stages)
        executable, plan, leaner = _load(graph, device, target, state, settings, notes)
        if leaner is not None:
            graph = leaner
            hook("lean", graph)
    program = Program(
        traced, graph, stages, plan, executable, state, update, target, settings.check
    )
    if settings.profile:
        program.profile_at_exit()
    if settings.dump is not None:
        program.dump(unused_folder(settings.dump, program.name))
    return program


def _differentiate(
    graph: Graph, traced: Traced, update: Any, selection: Selection | None
) -> tuple[Graph, dict[str, StateBuffer]]:
    """The graph with the gradient of its first output and the update of the parameters."""
    builder = Builder.extend(graph, traced.builder)
    outputs = [Tensor(v, builder) for v in graph.outputs]
    if not outputs:
        raise error("with update=, the function returns the loss, got nothing")
    check_scalar_loss(outputs[0])
    allowed = traced.parameters if selection is None else selection.of(traced.parameters)
    read = [(name, p) for name, p in allowed.items() if name in builder.buffers]
    traced.builder.trainable_read += [(name, p, p.trainable) for name, p in read]
    trained = [(name, p, builder.read_state(p.state)) for name, p in read if p.trainable]
    if not trained:
        found = (
            "found none among the arguments: give the module to compile as an argument"
            if selection is None
            else "train= names none that are"
        )
        raise error(f"with update=, the loss depends on trainable parameters, {found}")
    with builder.building():
        with builder.at(Where(derived=True)):
            seed = one_like(outputs[0])
        grads = gradients(outputs[:1], [seed], [t for _, _, t in trained], builder)
        pairs = [(p, g, n) for (n, p, _), g in zip(trained, grads, strict=True) if g is not None]
        update.emit(builder, pairs)
    return builder.graph(outputs), builder.buffers


def _enabled(pipeline: Any, disabled: Iterable[str]) -> list[Any]:
    return [(name, function) for name, function in pipeline if name not in set(disabled)]


def _default_device() -> str:
    """A GPU if there is one, else the CPU. Without PyCUDA nobody looks for one."""
    if find_spec("pycuda") is None:
        return "cpu"
    from graphc.runtime import cuda

    return "cuda" if cuda.gpu_found() else "cpu"


def _target(device: str) -> Target:
    if device == "cpu":
        from graphc.runtime.build import begin_player, cpu_target

        begin_player()  # which takes as long as tracing and the passes
        return cpu_target().with_denormals(config.denormals())
    kind = device.partition(":")[0]
    return Target(kind, lanes=1, arch="sm_90a" if kind in ("cuda", "sim") else "")


def _bind(
    graph: Graph, buffers: Mapping[str, StateBuffer], stages: Mapping[str, Graph]
) -> dict[str, StateBuffer]:
    """The buffer of each state value: the model's, or a constant that became state."""
    constants = {
        PLACED + n.op.value.digest: n.op.array
        for stage in stages.values()
        for graph_or_body in (stage, *bodies(stage))
        for n in graph_or_body.nodes
        if isinstance(n.op, Constant)
    }
    return {
        v.name: buffers[v.name] if v.name in buffers else StateBuffer(constants[v.name])
        for v in graph.state
    }


def _load(
    graph: Graph,
    device: str,
    target: Target,
    state: Mapping[str, StateBuffer],
    settings: config.Config,
    notes: Iterable[str],
) -> tuple[Executable, Plan | None, Graph | None]:
    """The graph on its device, its plan, and the graph with repetitions if that is what runs."""
    if target.device == "reference":
        from graphc.runtime.reference import ReferenceExecutable

        return ReferenceExecutable(graph, state), None, None
    from graphc.runtime.ceiling import plan_within, refusal
    from graphc.runtime.units import building

    graph, state = _packed(graph, state)
    kernels, search, limit = _lowered(graph, target), settings.memory_search, settings.memory_limit
    if settings.tune and device == "cpu":
        from graphc.runtime.tuner import tuned

        with stage("tune"):
            kernels = tuned(graph, kernels, target)
    lean: Graph | None = None

    def plan_for(
        streams: int, measured: Mapping[str, float] | None = None, search: bool = search
    ) -> Plan:
        return _planned(graph, kernels, target, streams, notes, settings.threads, measured, search)

    def leaner(limit: int | None = None) -> Plan:
        nonlocal lean
        lean, plan = _leaner(graph, kernels, target, settings, notes, limit)
        return plan

    def load(plan: Plan, state: Mapping[str, StateBuffer]) -> Executable:
        if target.device == "cpu":
            from graphc.runtime.cpu import executable

            built()
            return executable.load(plan, state, settings.threads, lean or graph)
        from graphc.runtime import cuda

        return cuda.load(plan, state, device, lean or graph, "race" in settings.check)

    # Which kernels there are is known; when they run is not needed to build them.
    with building(kernels) if device == "cpu" else nullcontext(lambda: None) as built:
        if settings.memory_lean:
            plan = leaner()
            if limit is not None and plan.peak_bytes > limit:
                plan = leaner(limit)
        elif settings.streams == "auto":
            from graphc.runtime.chooser import choose_plan

            plan = choose_plan(plan_for, load, _machine(device, settings.threads), limit)
        else:
            plan = plan_for(int(settings.streams))
        if lean is None:
            plan = plan_within(limit, plan, lambda n, s: plan_for(n, None, s), search, leaner)
        elif limit is not None and plan.peak_bytes > limit:
            raise RunError(refusal(plan, limit))
        with stage("load"):
            return load(plan, state), plan, lean


def _leaner(
    graph: Graph,
    kernels: Mapping[str, Kernel],
    target: Target,
    settings: config.Config,
    notes: Iterable[str],
    limit: int | None,
) -> tuple[Graph, Plan]:
    """`graph` with kernels that run again, within `limit` bytes or as lean as time allows, and its
    plan of as many streams as are asked for and the limit allows."""
    from graphc.passes.fuse.split_updates import split_updates
    from graphc.runtime.lean import Leaner
    from graphc.runtime.planner.beside import Machine

    asked = 1 if settings.streams == "auto" else int(settings.streams)

    def plan_of(graph: Graph, kernels: Mapping[str, Kernel]) -> Plan:
        for streams in range(asked, 0, -1):
            plan = _planned(graph, kernels, target, streams, notes, settings.threads)
            if limit is None or plan.peak_bytes <= limit:
                break
        return plan

    with stage("lean"):
        graph = split_updates(graph)
        kernels = _lowered(graph, target, kernels)
        machine = Machine(target.device, settings.threads)
        leaner = Leaner(graph, kernels, machine, plan_of)
        return leaner.lean() if limit is None else leaner.within(limit)


def _machine(device: str, threads: int) -> str | None:
    """What the times of kernels on the device depend on; None if they cannot be measured."""
    if device == "cpu":
        from graphc.runtime.chooser import cpu_name

        return cpu_name(threads)
    from graphc.runtime.cuda.device import gpu_name

    return gpu_name(device)


def _packed(
    graph: Graph, state: Mapping[str, StateBuffer]
) -> tuple[Graph, Mapping[str, StateBuffer]]:
    """`graph` with the relayouts of state that it leaves alone as state of its own, and the buffers
    of all its state: those are converted once for each change, not in each call."""
    from graphc.passes.rewriting.rewrite import drop_dead

    kept = set(graph.state) - {old for old, _ in graph.updates}
    packed = [n for n in graph.nodes if n.op.name == "relayout" and n.inputs[0] in kept]
    if not packed:
        return graph, state
    buffers = {n.output.name: state[n.inputs[0].name].packed(n.output.type.layout) for n in packed}
    nodes = tuple(n for n in graph.nodes if n not in packed)
    values = (*graph.state, *(n.output for n in packed))
    return drop_dead(replace(graph, state=values, nodes=nodes)), {**state, **buffers}


def make_plan_of(graph: Graph, target: Target, streams: int, decided: Iterable[str] = ()) -> Plan:
    """The verified plan of a graph after all passes; `decided` goes to its notes."""
    return _planned(graph, _lowered(graph, target), target, streams, decided)


def _lowered(
    graph: Graph, target: Target, known: Mapping[str, Kernel] | None = None
) -> dict[str, Kernel]:
    """The kernels by the first output of their nodes; some are `known`."""
    from graphc.kernels.lower import lower

    kernels = {}
    for node in (n for g in (graph, *bodies(graph)) for n in g.nodes):
        name = node.outputs[0].name
        if known and name in known and known[name].name == getattr(node.op, "kernel", name):
            kernels[name] = known[name]
        elif node.op.name not in ("reshape", "scan"):
            with stage("lower", node):
                kernels[name] = lower(node, target)
    return kernels


def _planned(
    graph: Graph,
    kernels: Mapping[str, Kernel],
    target: Target,
    streams: int,
    decided: Iterable[str],
    workers: int | None = None,
    measured: Mapping[str, float] | None = None,
    search: bool = False,
) -> Plan:
    """The verified plan for so many `workers`, by the `measured` times of kernels."""
    from graphc.runtime.planner.planner import make_plan

    notes = (*decided, *(f"{k.name}: {k.note}" for k in kernels.values() if k.note))
    options: dict[str, Any] = {"streams": streams, "workers": workers, "measured": measured}
    with stage("plan"):
        plan = make_plan(
            graph, kernels, device=target.device, notes=notes, search=search, **options
        )
    with stage("verify"):
        plan.verify()
    return plan
