"""compile(): the whole way from a Python function to a program, and the program itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from graphc import config, passes, tree
from graphc.errors import GraphError, RunError
from graphc.gradient import check_scalar_loss, gradients, one_like
from graphc.ir import Graph, Type, Where, dtype_name
from graphc.kernels.kernel import Kernel
from graphc.nn.module import Module
from graphc.nn.parameter import Parameter
from graphc.ops.constant import Constant
from graphc.passes.place_constants import PREFIX
from graphc.passes.runner import run_passes
from graphc.runtime.plan import Plan
from graphc.state import StateBuffer
from graphc.target import Target
from graphc.trace import Builder, Operand, Tensor

Array = np.ndarray[Any, np.dtype[Any]]


class Executable(Protocol):
    """A plan on a device, ready to play."""

    def run(self, inputs: Sequence[Array]) -> list[Array]: ...
    def run_checked(self, inputs: Sequence[Array]) -> list[Array]: ...
    def profile(
        self, inputs: Sequence[Array], repeats: int = ...
    ) -> list[tuple[str, int, float]]: ...


@dataclass
class Traced:
    """A function's graph under construction and what its arguments and results look like."""

    builder: Builder
    inputs: list[tuple[str, Type]]
    outputs: Any
    """The tree of tensors that the function returned."""
    parameters: dict[str, Parameter] = field(default_factory=dict)
    """The parameters of the modules among the arguments, by state name."""


def trace(fn: Callable[..., Any], *args: Any, training: bool = False, seed: int = 0) -> Graph:
    """The graph of `fn(*args)`; `args` are modules, specs, and tuples, lists and dicts of them."""
    traced = _trace(fn, args, training, seed)
    return traced.builder.graph([t for _, t in tree.leaves(traced.outputs)])


def _trace(fn: Callable[..., Any], args: Sequence[Any], training: bool, seed: int) -> Traced:
    name = getattr(fn, "__name__", type(fn).__name__)
    builder = Builder(name if name.isidentifier() else "function")
    builder.training, builder.seed = training, seed
    traced = Traced(builder, [], None)
    with builder.building():
        _name_parameters(fn, args, traced)
        names = _argument_names(fn, len(args))
        symbolic = [_symbolic(arg, name, traced) for arg, name in zip(args, names, strict=True)]
        traced.outputs = tree.map_leaves(_result, fn(*symbolic))
    return traced


def _symbolic(argument: Any, name: str, traced: Traced) -> Any:
    """The argument with each spec replaced by an input tensor."""

    def leaf(path: str, value: Any) -> Any:
        if isinstance(value, Module | Operand):
            return value
        if isinstance(value, np.ndarray):
            value = Type(value.shape, dtype_name(value.dtype))
        if not isinstance(value, Type):
            raise GraphError(
                f"argument {path}: expected a module, a graphc.spec or an array, "
                f"got {type(value).__name__}"
            )
        traced.inputs.append((path, value))
        return traced.builder.input(path, value)

    return tree.map_leaves(leaf, argument, name)


def _argument_names(fn: Callable[..., Any], count: int) -> list[str]:
    """The names of the function's positional parameters; `argN` where it has none."""
    function = fn.forward if isinstance(fn, Module) else fn
    try:
        names = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        names = []
    return [names[i] if i < len(names) else f"arg{i}" for i in range(count)]


def _name_parameters(fn: Callable[..., Any], args: Sequence[Any], traced: Traced) -> None:
    """Give the state its names: those of the module's state_dict, behind the argument's name
    where there are several modules."""
    owner = fn if isinstance(fn, Module) else getattr(fn, "__self__", None)
    found = [("model", owner)] if isinstance(owner, Module) else []
    for arg, name in zip(args, _argument_names(fn, len(args)), strict=True):
        found += [(path, m) for path, m in tree.leaves(arg, name) if isinstance(m, Module)]
    for prefix, module in found:
        for name, parameter in module.named_parameters():
            full = name if len(found) == 1 else f"{prefix}.{name}"
            traced.parameters.setdefault(full, parameter)
            traced.builder.name_state(parameter.state, full)


def _result(path: str, value: Any) -> Tensor:
    from graphc import functions

    if isinstance(value, Operand | int | float | np.ndarray | np.generic):
        return functions.as_tensor(value)
    raise GraphError(f"the function returns tensors, got {type(value).__name__} at {path or '0'}")


def compile(
    fn: Callable[..., Any],
    *args: Any,
    update: Any = None,
    device: str | None = None,
    streams: int | str | None = None,
    threads: int | None = None,
    precision: str = "float32",
    tune: bool | None = None,
    training: bool | None = None,
    seed: int = 0,
    disable: Iterable[str] = (),
) -> Program:
    """A program that computes `fn(*args)`, and one training step with `update`.

    fn        a function or module; with `update` its first result is the scalar loss
    args      modules, `graphc.spec`s, and tuples, lists and dicts of them; the program is called
              with arrays in place of the specs and without the modules
    update    an `optim` rule that updates the trainable parameters in the same program
    device    "cpu", "cuda", "cuda:N", "sim" or "reference"
    streams   1 to 8 queues of kernels, or "auto"
    threads   workers on the CPU, the caller included
    training  whether dropout drops and batch norm uses the batch; default: with `update`
    seed      key of the program's random numbers
    disable   names of optional passes to leave out

    Raises GraphError for mistakes in the model or the arguments, CompileError if the compiler
    is missing or fails.
    """
    settings = config.read(streams, threads, device, tune, disable, passes.OPTIONAL)
    if precision != "float32":
        raise GraphError(f"precision: expected 'float32', got {precision!r}")
    device = settings.device or _default_device()
    target = _target(device)
    stages: dict[str, Graph] = {}

    def hook(name: str, graph: Graph) -> None:
        stages[name] = graph

    traced = _trace(fn, args, update is not None if training is None else training, seed)
    outputs = [t for _, t in tree.leaves(traced.outputs)]
    graph = traced.builder.graph(outputs)
    hook("trace", graph)
    graph = run_passes(graph, target, _enabled(passes.BEFORE_GRADIENT, settings.disable), hook)
    buffers = traced.builder.buffers
    if update is not None:
        graph, buffers = _differentiate(graph, traced, update)
        hook("differentiate", graph)
    graph = run_passes(graph, target, _enabled(passes.AFTER_GRADIENT, settings.disable), hook)
    state = _bind(graph, buffers, stages)
    executable, plan = _load(graph, device, target, state, settings)
    program = Program(
        traced, graph, stages, plan, executable, state, update, target, settings.check
    )
    if settings.dump is not None:
        program.dump(settings.dump / program.name)
    return program


def _differentiate(
    graph: Graph, traced: Traced, update: Any
) -> tuple[Graph, dict[str, StateBuffer]]:
    """The graph with the gradient of its first output and the update of the parameters."""
    builder = Builder.extend(graph, traced.builder)
    outputs = [Tensor(v, builder) for v in graph.outputs]
    if not outputs:
        raise GraphError("with update=, the function returns the loss, got nothing")
    check_scalar_loss(outputs[0])
    trained = [
        (name, p, builder.read_state(p.state))
        for name, p in traced.parameters.items()
        if p.trainable and name in builder.buffers
    ]
    if not trained:
        raise GraphError("with update=, the loss depends on trainable parameters, found none")
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
        from graphc.runtime.build import cpu_target

        return cpu_target()
    kind = device.partition(":")[0]
    return Target(kind, lanes=1, arch="sm_90a" if kind in ("cuda", "sim") else "")


def _bind(
    graph: Graph, buffers: Mapping[str, StateBuffer], stages: Mapping[str, Graph]
) -> dict[str, StateBuffer]:
    """The buffer of each state value: the model's, or a constant that became state."""
    constants = {
        PREFIX + n.op.value.digest: n.op.array
        for stage in stages.values()
        for n in stage.nodes
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
) -> tuple[Executable, Plan | None]:
    if target.device == "reference":
        from graphc.runtime.reference import ReferenceExecutable

        return ReferenceExecutable(graph, state), None
    plan = make_plan_of(graph, target, settings.streams)
    _check_memory(plan, settings.memory_limit)
    if target.device == "cpu":
        from graphc.runtime.cpu import load

        return load(plan, state, settings.threads, graph), plan
    from graphc.runtime import cuda

    return cuda.load(plan, state, device, graph, "race" in settings.check), plan


def make_plan_of(graph: Graph, target: Target, streams: int | str) -> Plan:
    """The verified plan of a graph after all passes."""
    from graphc.kernels.lower import lower
    from graphc.runtime.planner import make_plan

    notes = ["streams: auto chose 1"] if streams == "auto" else []
    kernels = {n.outputs[0].name: lower(n, target) for n in graph.nodes if n.op.name != "reshape"}
    count = 1 if streams == "auto" else int(streams)
    plan = make_plan(graph, kernels, device=target.device, streams=count, notes=tuple(notes))
    plan.verify()
    return plan


def _check_memory(plan: Plan, limit: int | None) -> None:
    if limit is not None and plan.peak_bytes > limit:
        raise RunError(
            f"{plan.name}: the plan takes {plan.peak_bytes} bytes of work memory, "
            f"GRAPHC_MEMORY_LIMIT allows {limit}; nothing has run, state is unchanged"
        )


class Program:
    """A compiled function. Call it with arrays in place of the specs that it was compiled for.

    `graph` is the optimised graph, `stages` the graph after each pass by its name, `plan` the plan
    (None on the reference device), `kernels` the generated source by kernel name.
    """

    def __init__(
        self,
        traced: Traced,
        graph: Graph,
        stages: dict[str, Graph],
        plan: Plan | None,
        executable: Executable,
        state: dict[str, StateBuffer],
        update: Any,
        target: Target,
        check: frozenset[str],
    ) -> None:
        self.name = graph.name
        self.graph, self.stages, self.plan, self.target = graph, stages, plan, target
        self.update = update
        self._executable, self._state = executable, state
        self._inputs = traced.inputs
        self._outputs = traced.outputs
        self._run = executable.run_checked if "nan" in check else executable.run
        self._foreign = getattr(executable, "foreign", None)
        """Takes other libraries' arrays that lie on the device, where it has its own memory."""

    def __call__(self, *args: Any) -> Any:
        """The function's results as fresh NumPy arrays, in the structure that it returned.

        Raises GraphError if an array's shape or dtype is not that of its spec; then, as after
        any error before the first kernel, the state is unchanged.
        """
        arrays = self._arrays(args)
        if self.update is not None:
            self.update.before_step()
        results = iter(self._run(arrays))
        return tree.map_leaves(lambda _, __: next(results), self._outputs)

    def _arrays(self, args: Sequence[Any]) -> list[Array]:
        given = [leaf for arg in args for _, leaf in tree.leaves(arg)]
        if len(given) != len(self._inputs):
            expected = ", ".join(f"{name} {type}" for name, type in self._inputs)
            raise GraphError(
                f"{self.name}: expected {len(self._inputs)} arrays ({expected}), got {len(given)}"
            )
        return [self._array(v, n, t) for v, (n, t) in zip(given, self._inputs, strict=True)]

    def _array(self, value: Any, name: str, type: Type) -> Array:
        foreign = None
        if not isinstance(value, np.ndarray):
            foreign = self._foreign(value, name) if self._foreign else None
            value = as_array(value) if foreign is None else foreign
        if value.dtype != type.numpy_dtype or value.shape != type.shape:
            extents = ",".join(map(str, value.shape))
            hint = ""
            if value.shape[1:] == type.shape[1:] and value.shape != type.shape:
                hint = "; shapes are fixed: compile the function for this batch size too"
            raise GraphError(
                f"{self.name}: {name} is {type}, got {value.dtype.name}[{extents}]{hint}"
            )
        return np.ascontiguousarray(value).reshape(type.shape) if foreign is None else foreign

    @property
    def kernels(self) -> dict[str, str]:
        """Kernel name -> generated source."""
        kernels: Mapping[str, Kernel] = {} if self.plan is None else self.plan.kernels
        return {name: kernel.source for name, kernel in kernels.items()}

    @property
    def lr(self) -> float:
        """The learning rate; may be set between steps without compiling again."""
        return float(self._rule().rate)

    @lr.setter
    def lr(self, value: float) -> None:
        self._rule().lr = value

    def _rule(self) -> Any:
        if self.update is None:
            raise GraphError(f"{self.name} has no learning rate: it was compiled without update=")
        return self.update

    def state_dict(self) -> dict[str, Array]:
        """Copies of all state that this program reads or writes, moments and counters included,
        as of the last finished call; by name."""
        return {n: b.numpy() for n, b in self._state.items() if not n.startswith(PREFIX)}

    def profile(self, *args: Any, repeats: int = 20) -> Any:
        """A table of kernels: calls, time, share, bytes, FLOP/s. Runs steps, so state changes."""
        from graphc.inspect.profile import profile_table

        arrays = self._arrays(args)
        return profile_table(self, self._executable.profile(arrays, repeats))

    def dump(self, folder: str | Path) -> None:
        """Write every stage, kernel and the plan as text files into `folder`."""
        from graphc.inspect.dump import dump

        dump(self, Path(folder))

    def __repr__(self) -> str:
        return f"Program({self.name}, {self.target.device}, {len(self.graph.nodes)} kernels)"


def as_array(value: Any) -> Array:
    """NumPy's view of anything with `__array__` or `__dlpack__`."""
    if hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return np.asarray(value)
