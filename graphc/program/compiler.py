"""compile(): the whole way from a Python function to a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.base import config
from graphc.base.files import unused_folder
from graphc.base.messages import decide, decisions
from graphc.base.source_lines import error
from graphc.ir import Graph, tree
from graphc.ir.failures import stage
from graphc.ir.state import StateBuffer
from graphc.nn.selection import Selection
from graphc.ops.constant import PLACED, Constant
from graphc.ops.loops.scan import bodies
from graphc.optim.rule import Rule
from graphc.program.loading import default_device, load, target_of
from graphc.program.loading import make_plan_of as make_plan_of
from graphc.program.plan_cache import PlanCache
from graphc.program.program import Program as Program
from graphc.program.tracing import collector_paused, trace_function
from graphc.program.update import Differentiated, Update

if TYPE_CHECKING:  # nothing of it is needed before something is compiled
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
    tune: bool | str | None = None,
    training: bool | None = None,
    seed: int | None = None,
    disable: Iterable[str] = (),
    memory: int | str | None = None,
) -> Program:
    """A program that computes `fn(*args)`, and one training step with `update`.

    fn        a function or module; with `update` its first result is the scalar loss
    args      modules, `graphc.spec`s (or arrays of their shape and dtype), numbers, strings and
              None, and tuples, lists and dicts of them; the program is called with arrays in place
              of the specs and without the rest. Numbers, strings and None are constants of it
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
              and the last bits of sums may change with the choice. "libraries": on a GPU also among
              calls of cuBLASLt, for plain matrix products, and of cuDNN, for convolutions, where
              they are installed. Default: GRAPHC_TUNE, or not
    seed      key of the program's random numbers, equal for equal seeds; default: one of its own
              for each program, which `graphc.seed` determines
    disable   names of optional passes to leave out
    memory    the most bytes of work memory that the plan may take, such as 1500000 or "2G": fewer
              streams are used if they must, then groups of kernels are taken apart and kernels run
              again instead of their results being held, and RunError is raised if that does not do;
              or "lean": as little as a quarter more time buys, by estimate; or "search", which
              packs buffers tighter where that can be done in some seconds. The results have the
              same bits in any case

    Raises GraphError for mistakes in the model or the arguments, CompileError if a compiler fails.
    """
    from graphc.passes import (
        pipeline as passes,  # not before it is needed: they are a tenth of the package's import
    )
    from graphc.passes.rewriting.runner import run_passes

    disable = (disable,) if isinstance(disable, str) else disable
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
    device = settings.device or default_device()
    target = replace(
        target_of(device),
        splits_products=precision == "float32x3",
        transforms_tiles=precision == "winograd",
        joins_launches="join_launches" not in settings.disable,
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
        step = None if update is None else Update.of(traced, update, selection)
        before = _enabled(passes.BEFORE_GRADIENT, settings.disable)
        # A library computes a contraction, and nothing that its kernel would do besides.
        own = ["fuse_columns", "fuse_rows", "fuse_products"] if settings.libraries else []
        left_out = (*settings.disable, *own)
        after = _enabled(passes.after_gradient(precision), left_out)

        def differentiated() -> Differentiated:
            """The graph that the passes behind the gradient begin with."""
            prepared = run_passes(graph, target, before, hook)
            if step is None:
                return Differentiated(prepared, traced.builder.buffers)
            with stage("differentiate"):
                whole = step.differentiate(prepared)
            hook("differentiate", whole.graph)
            return whole

        def rest() -> dict[str, Graph]:
            run_passes(differentiated().graph, target, after, hook)
            return stages

        plan: Plan | None
        remembered = PlanCache(graph, traced.builder.buffers, step, target, settings, precision)
        found = remembered.find()
        if found:
            executable, plan, state = found
        else:
            whole = differentiated()
            if step is not None:
                step.note(whole.read)
            key = remembered.key(whole)
            optimised = run_passes(whole.graph, target, after, hook)
            if "meaning" in settings.check:
                from graphc.meaning.check import check

                with stage("meaning"):
                    decide(str(check(stages)))
            state = _bind(optimised, whole.buffers, stages)
            executable, plan, made = load(optimised, device, target, state, settings, notes, key)
            if made is not None:
                hook(*made)
    program = Program(
        traced,
        rest if found else lambda: stages,
        plan,
        executable,
        state,
        update,
        target,
        settings.check,
    )
    if settings.profile:
        program.profile_at_exit()
    if settings.dump is not None:
        program.dump(unused_folder(settings.dump, program.name))
    return program


def _enabled(pipeline: Any, disabled: Iterable[str]) -> list[Any]:
    return [(name, function) for name, function in pipeline if name not in set(disabled)]


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
