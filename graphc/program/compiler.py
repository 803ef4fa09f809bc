"""compile: from a Python function to a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphc.base.errors import refusals
from graphc.base.messages import decisions
from graphc.base.source_lines import error
from graphc.ir import Graph, tree
from graphc.ir.failures import stage
from graphc.ops.custom_gradient import without_marks
from graphc.parallel.options import DataParallel
from graphc.parallel.pipeline import PipelineParallel
from graphc.program.buckets import Buckets, buckets_of, has_names
from graphc.program.loading import orders_messages
from graphc.program.making import Recipe, make
from graphc.program.options import Options
from graphc.program.plan_cache import PlanCache
from graphc.program.program import Program as Program
from graphc.program.ranks import adds_by_kernels
from graphc.program.sizes import SizedProgram
from graphc.program.stage_state import StageState
from graphc.program.tracing import Common, Traced, collector_paused, trace_function
from graphc.program.update import Differentiated, Update

if TYPE_CHECKING:
    from graphc.parallel.group import Group


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
    batch: Buckets | None = None,
    sizes: Mapping[str, Buckets] | None = None,
    wait: bool | None = None,
    mixed: str | None = None,
    accumulate: int = 1,
    gradients: Any = False,
    out: str = "host",
    parallel: DataParallel | PipelineParallel | None = None,
) -> Program:
    """Compile `fn(*args)`, or a whole training step with `update`, to a program.

    The program is called with arrays in place of the specs, and without the other arguments.

    Args:
        fn: A function or module; with `update`, its first result is the scalar loss.
        *args: Modules, specs (or arrays of their shape and dtype), and constants (numbers, strings,
            None), also in tuples, lists and dicts.
        update: An optimizer of `graphc.optim` that updates the trainable parameters in the same
            program.
        train: The parameters to update: a module, a parameter, a list of them, or a predicate on
            names such as `encoder.fc1.weight`; by default all trainable ones.
        device: "cpu", "cuda", "cuda:N", "sim" or "reference"; by default a GPU if there is one,
            else the CPU.
        streams: The number of kernel queues, 1 to 8; "auto", the default, measures which is
            fastest.
        threads: The number of CPU threads, the caller included; by default all cores.
        precision: How float32 contractions multiply; they always sum in float32. "float32" keeps
            the operands. "tf32" and "bfloat16" round them to 10 and 7 bits of fraction on every
            device, so that a sum of products a * b is off by at most 2^-10 and 2^-7 of the sum of
            |a * b|, besides rounding. "float32x3" lets a GPU split a product into three of tf32
            (2^-20). "winograd" lets a CPU use Winograd's algorithm for 3 x 3 convolutions; the
            plan's notes bound its error.
        tune: Whether to choose among kernels of a contraction by measurement, which takes seconds
            per new layer and may change the last bits. "libraries" also measures cuBLASLt and
            cuDNN. By default GRAPHC_TUNE.
        training: Whether dropout and batch norm are in training mode, in modules whose `train` or
            `eval` was not called; by default with `update`.
        seed: The key of the program's random numbers; by default a new one for each program, drawn
            from `graphc.seed`.
        disable: Names of optional passes to leave out.
        memory: The most bytes of work memory, such as 1500000 or "2G", for which streams, fusion
            and stored results are given up; "lean", as little as 25 % more time buys; or "search",
            a tighter packing within seconds. Results have the same bits in any case.
        batch: The buckets of the axis "batch": short for `sizes={"batch": batch}`.
        sizes: The `Buckets` of named axes, by name, such as `{"time": graphc.Buckets(32, 64)}`.
        wait: Whether the CPU's kernels are compiled before the first call. By default a program
            begins with prebuilt kernels, which give the same bits in about twice the time, and
            compiled ones replace them as they become ready.
        mixed: "bfloat16" or "float16": products (matrix products, convolutions, attention) take
            float32 operands in two bytes and give two bytes, which what follows stores, while
            sums, losses, normalizations and the parameters stay float32; see `full_precision`.
            Results are float32. With "float16" and `update` the loss is scaled, and a step whose
            gradients overflow is skipped; see `Program.loss_scale`.
        accumulate: The number of equal micro-batches that the batch, the first axis of every array,
            is cut into. The program computes their losses and gradients one after the other, and
            then updates once by the mean.
        gradients: Whether the program returns `(results, gradients)`, the gradients by name, in
            place of an update; `optim.apply` takes them. With `mixed="float16"`, the optimizer that
            they are for.
        out: "host", for results as NumPy arrays, or "device": calls do not wait for a GPU, and
            results are arrays in its memory, which PyTorch, CuPy, JAX and other programs take where
            they lie, and `numpy()` copies to the host. On a CPU there is no difference.
        parallel: A `DataParallel` of the processes that train together, each with its part of the
            batch, of which the specs are. The update takes the averages of all gradients. Or a
            `PipelineParallel` of processes that have a stage of the function each.

    Returns:
        A `Program`; a `SizedProgram`, which takes every size, if an axis of a spec has a name. As
        `jax.jit` and `torch.compile(dynamic=False)` do, that traces the function again for each
        size that it meets. Its plans share all state.

    Raises:
        GraphError: The function, its arguments or a setting is wrong.
        CompileError: A compiler is missing or fails.
        RunError: The plan does not fit `memory`.

    Example:
        >>> def loss_fn(model, x, y):
        ...     return graphc.mse_loss(model(x), y)
        ...
        >>> specs = graphc.spec((4, 3)), graphc.spec((4, 1))
        >>> step = graphc.compile(loss_fn, nn.Linear(3, 1), *specs, update=optim.SGD(lr=0.1))
        >>> x, y = np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)
        >>> bool(step(x, y) > step(x, y))
        True
    """
    with refusals():
        options = Options.of(
            update,
            train,
            device,
            streams,
            threads,
            precision,
            tune,
            training,
            seed,
            disable,
            memory,
            wait,
            mixed,
            accumulate,
            gradients,
            out,
            parallel,
        )
    buckets = buckets_of(batch, sizes)
    if has_names(args):
        if options.pipeline is not None:
            raise error(
                "parallel: PipelineParallel expected specs of whole numbers, got named axes"
            )
        if buckets and options.stays:
            raise error("out: 'device' with buckets, whose results are cut to size on the host")
        return SizedProgram(fn, args, buckets, options, _compiled)
    if buckets:
        raise error(f"sizes: expected names of axes in the specs, got {next(iter(buckets))!r}")
    return _compiled(fn, args, options)


def _compiled(
    fn: Callable[..., Any], args: Sequence[Any], options: Options, common: Common | None = None
) -> Program:
    """Return the program of specs without names."""
    from graphc.passes import pipeline as passes
    from graphc.passes.rewriting.runner import run_passes

    settings, update, target = options.settings, options.update, options.target
    stages: dict[str, Graph] = {}

    with collector_paused(), decisions() as notes:
        bounds = "bounds" in settings.check
        traced = trace_function(
            fn,
            args,
            options.training,
            options.seed,
            bounds,
            common,
            options.mixed,
            options.differentiation,
            options.parallel,
        )
        if options.holder is not None:
            options.holder.share(traced.builder, traced.gradients)
        outputs = [t for _, t in tree.leaves(traced.outputs)]
        watched = [s.tensor for s in traced.builder.shown]
        applied = [gradient for _, gradient in traced.builder.applied]
        if applied and update is None:
            raise error("apply: gives gradients to update=, which is not given")
        graph = traced.builder.graph([*outputs, *watched, *applied])
        stages["trace"] = graph
        step = (
            None
            if update is None
            else Update.of(
                traced,
                update,
                options.selection,
                options.mixed == "f16",
                options.parallel,
                by_kernels=adds_by_kernels(
                    options.parallel, orders_messages(options.target.device)
                ),
                clipped=options.pipeline is not None and update.clip_grad_norm is not None,
            )
        )
        before = [item for item in passes.BEFORE_GRADIENT if item[0] not in settings.disable]

        def differentiated() -> Differentiated:
            """The graph that the passes behind the gradient begin with."""
            begin = without_marks(graph) if step is None else graph
            prepared = run_passes(begin, target, before, stages.__setitem__)
            if step is None:
                return Differentiated(prepared, traced.builder.buffers)
            with stage("differentiate"):
                whole = step.differentiate(prepared)
                whole = replace(whole, graph=without_marks(whole.graph))
            stages["differentiate"] = whole.graph
            return whole

        group = options.group
        recipe = Recipe(traced, differentiated, settings, options.precision, target, group)
        buffers = traced.builder.buffers
        remembered = PlanCache(graph, buffers, step, target, settings, options.precision, group)
        program = make(step, update, recipe, options.device, remembered, stages, notes)
    if options.pipeline is not None:
        _share_state(program, options.pipeline.group, traced)
    if options.stays:
        program._keep_results()
    return program


def _share_state(program: Program, group: Group, traced: Traced) -> None:
    """Keep of the model's state what this rank's stage has; all ranks call it together."""
    program.staged = staged = StageState(group, program.buffers)
    own = set(program.bound.values())
    read = set(traced.builder.buffers.values())
    for name, parameter in traced.parameters.items():
        buffer = parameter.state
        if name in staged.owners and buffer in read and buffer not in own:
            buffer.leave(
                f"{name}: is on rank {staged.owners[name]}, which has this stage of the pipeline: "
                "state_dict of its program, which all ranks call together, returns all"
            )
