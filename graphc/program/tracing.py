"""Trace a function with its modules and specs to a graph."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np

from graphc.base.source_lines import error
from graphc.functions.array.linear.matrix_trace import trace as matrix_trace
from graphc.functions.array.tensors import as_tensor, cast
from graphc.ir import NARROW, Graph, NamedType, Type, dtype_name, tree
from graphc.ir.state import StateBuffer
from graphc.nn.initialize import draw_key
from graphc.nn.module import Module
from graphc.nn.parameter import Parameter
from graphc.parallel.options import DataParallel
from graphc.trace import Builder, Operand, Tensor, current_builder
from graphc.trace.arguments import SPECS, Static
from graphc.trace.builder import Ranks


@dataclass
class Traced:
    """A function's graph under construction, with the structure of its arguments and results."""

    builder: Builder
    arguments: list[tuple[str, Any]] = field(default_factory=list)
    """(name, tree of types and static values) of each argument that the program is called with;
    modules in a tree are None."""
    outputs: Any = None
    """The tree of tensors that the function returned."""
    holders: list[tuple[str, Module | Parameter]] = field(default_factory=list)
    """(name, module or parameter) of the module that is traced and of the arguments."""
    parameters: dict[str, Parameter] = field(default_factory=dict)
    """The arguments that are parameters and those of modules among them, by state name."""
    gradients: list[tuple[Parameter, Tensor, str]] = field(default_factory=list)
    """(parameter, gradient, name) of gradients that are computed in the trace."""

    @property
    def closures(self) -> list[tuple[Parameter, tuple[str, ...]]]:
        """The parameters that are read but no argument holds, and the lines that read them."""
        held = {id(p.state) for p in self.parameters.values()}
        return [
            (p, at) for p, at in self.builder.parameters_read.values() if id(p.state) not in held
        ]


Call = Callable[[Traced, Callable[..., Any], Sequence[Any]], Any]
"""Calls a function with symbolic arguments, and returns the program's results."""


@overload
def trace(fn: Operand, offset: int = 0) -> Tensor: ...
@overload
def trace(fn: Callable[..., Any], *args: Any, training: bool = False, seed: int = 0) -> Graph: ...
def trace(fn: Any, *args: Any, training: bool = False, seed: int = 0, **more: Any) -> Any:
    """Trace `fn(*args)` to a graph, without compiling; or return the trace of a matrix.

    Args:
        fn: A function or module; or a tensor or parameter, for the sum along a diagonal of its last
            two axes.
        *args: Modules, specs and constants (numbers, strings, None), also in tuples, lists and
            dicts; for a tensor, the diagonal, 0 by default.
        training: Whether dropout and batch norm are in training mode.
        seed: The key of random numbers.
        **more: `offset`, the diagonal, for a tensor.

    Returns:
        A `Graph`; for a tensor, a tensor.

    Raises:
        GraphError: The function or an argument is wrong.

    Example:
        >>> print(graphc.trace(lambda x: x + 1, graphc.spec(2)))
        graph function
          in %x ...
        ...
    """
    if isinstance(fn, Operand):
        return matrix_trace(fn, *args, **more)
    if more:
        raise error(f"trace: got {next(iter(more))}=, expected training= or seed=")
    traced = trace_function(fn, args, training, seed)
    return traced.builder.graph([t for _, t in tree.leaves(traced.outputs)])


@dataclass(frozen=True)
class Common:
    """What the traces of one function for several sizes have in common."""

    modes: Mapping[int, bool | None] = field(default_factory=dict)
    """What `train` or `eval` had said of each module when `compile` was called, by identity."""
    random: Mapping[str, StateBuffer] = field(default_factory=dict)
    """Where random ops count their calls, and the key that they count from."""

    @classmethod
    def of(cls, holders: Sequence[tuple[str, Module | Parameter]], seed: int | None) -> Common:
        """Return the modes of modules as they are now, and buffers for the random ops."""
        random = {"random.step": StateBuffer(0, np.int32)}
        if seed is None:
            random["random.key"] = StateBuffer(draw_key(), np.int32)
        held = [holder for _, holder in holders if isinstance(holder, Module)]
        modules = [module for holder in held for module in holder.modules()]
        return cls({id(m): getattr(m, "_own_training", None) for m in modules}, random)


def trace_function(
    fn: Callable[..., Any],
    args: Sequence[Any],
    training: bool,
    seed: int | None,
    bounds: bool = False,
    common: Common | None = None,
    mixed: str = "",
    call: Call | None = None,
    parallel: DataParallel | None = None,
) -> Traced:
    """Run `fn` on symbolic tensors in place of the specs.

    `bounds` records the ranges of indices. Without a seed, a program with random ops draws a key of
    its own. `mixed` is the two-byte dtype of products, or "". `call` calls the function in
    place of a plain call. The ranks of `parallel` draw other numbers each.
    """
    builder = Builder(function_name(fn))
    if parallel is not None:
        builder.ranks = Ranks(parallel.rank, parallel.ranks, parallel.sync_batch_norm)
    builder.mixed = mixed
    if common is not None:
        builder.modes, builder.random = common.modes, common.random
    builder.training, builder.seed = training, seed or 0
    builder.draw_key = draw_key if seed is None else None
    builder.bounds = [] if bounds else None
    owner = owner_of(fn)
    if owner is not None and owner is not fn:  # a call of a module says so by itself
        with builder.building():
            builder.training = owner.training
    traced = Traced(builder)
    with builder.building():
        _name_parameters(fn, args, traced)
        traced.arguments = called_with(fn, args, type_of)
        names = argument_names(fn, len(args))
        symbolic = [tree.map_leaves(_symbol, a, n) for a, n in zip(args, names, strict=True)]
        results = fn(*symbolic) if call is None else call(traced, fn, symbolic)
        traced.outputs = tree.map_leaves(_result, results)
    return traced


def function_name(fn: Any) -> str:
    """Return the name of a function or of a module's class; GraphError for anything else."""
    if isinstance(fn, type) or not callable(fn):
        got = f"the class {fn.__name__}" if isinstance(fn, type) else type(fn).__name__
        raise error(f"expected a function or a module, got {got}")
    name = getattr(fn, "__name__", type(fn).__name__)
    return name if name.isidentifier() else "function"


def called_with(
    fn: Callable[..., Any], args: Sequence[Any], kind_of: Callable[[str, Any], Any]
) -> list[tuple[str, Any]]:
    """Return (name, tree of kinds) of each argument that a program of `fn` is called with.

    Those are the arguments with a type in their tree; `kind_of` gives the kind of a leaf.
    """
    named = zip(argument_names(fn, len(args)), args, strict=True)
    kinds = [(name, tree.map_leaves(kind_of, arg, name)) for name, arg in named]
    return [
        (name, kind)
        for name, kind in kinds
        if any(isinstance(leaf, SPECS) for _, leaf in tree.leaves(kind))
    ]


STATIC = (bool, int, float, str)
"""Arguments that the traced function gets as they are: constants of the program."""


def type_of(path: str, value: Any) -> Type | Static | None:
    """Return the type of an argument's leaf, or its value; None for a module or parameter."""
    if isinstance(value, Module | Operand):
        return None
    if isinstance(value, STATIC):
        return Static(value)
    if isinstance(value, np.ndarray):
        return Type(value.shape, dtype_name(value.dtype))
    if isinstance(value, Type):
        return value
    if isinstance(value, NamedType):
        raise error(
            f"argument {path}: {value} has an axis of any size, which compile alone takes: "
            "give its size"
        )
    got = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
    raise error(f"argument {path}: expected a module, a graphc.spec or an array, got {got}")


def _symbol(path: str, value: Any) -> Any:
    """What the traced function gets for a leaf."""
    kind = type_of(path, value)
    return current_builder().input(path, kind) if isinstance(kind, Type) else value


def argument_names(fn: Callable[..., Any], count: int) -> list[str]:
    """Return the names of the function's positional parameters; `argN` where it has none."""
    whole = inspect.unwrap(fn)
    function = whole.forward if isinstance(whole, Module) else fn
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
    """Name the state as in the state_dict, after the argument's name if there are several."""
    traced.holders += holders_of(fn, args)
    for name, parameter in state_of(traced.holders):
        traced.parameters.setdefault(name, parameter)
        traced.builder.name_state(parameter.state, name)


def holders_of(fn: Callable[..., Any], args: Sequence[Any]) -> list[tuple[str, Module | Parameter]]:
    """Return (name, module or parameter) of the module that `fn` is of and of the arguments."""
    owner = owner_of(fn)
    found: list[tuple[str, Any]] = [] if owner is None else [("model", owner)]
    for arg, name in zip(args, argument_names(fn, len(args)), strict=True):
        found += [(path, leaf) for path, leaf in tree.leaves(arg, name)]
    return [(path, leaf) for path, leaf in found if isinstance(leaf, Module | Parameter)]


def state_of(holders: Sequence[tuple[str, Module | Parameter]]) -> Iterator[tuple[str, Parameter]]:
    """Return (state name, parameter) of all that named modules and parameters hold."""
    for prefix, holder in holders:
        inner = [("", holder)] if isinstance(holder, Parameter) else holder.named_parameters()
        for name, parameter in inner:
            whole = name if name and len(holders) == 1 else f"{prefix}.{name}".strip(".")
            yield whole, parameter


def owner_of(fn: Callable[..., Any]) -> Module | None:
    """The module that is traced, or whose method is."""
    fn = inspect.unwrap(fn)
    owner = fn if isinstance(fn, Module) else getattr(fn, "__self__", None)
    return owner if isinstance(owner, Module) else None


def _result(path: str, value: Any) -> Tensor:
    if isinstance(value, Operand | int | float | np.ndarray | np.generic):
        builder = current_builder()
        tensor = builder.own(as_tensor(value))
        return cast(tensor, "f32") if builder.mixed and tensor.dtype in NARROW else tensor
    raise error(f"the function returns tensors, got {type(value).__name__} at {path or '0'}")


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector of cycles.

    It would walk a growing graph again and again, for a tenth of the compile time, and find
    nothing, since graphs have no cycles.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()
