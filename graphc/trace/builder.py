"""Trace a Python function: each operation on a symbolic tensor becomes a node of a graph."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, overload

import numpy as np

from graphc.base.errors import GraphError
from graphc.base.source_lines import error, user_call, user_line
from graphc.ir import (
    NARROW,
    Graph,
    NamedType,
    Names,
    Node,
    Type,
    Value,
    Where,
    dtype_name,
    infer_types,
)
from graphc.ir.state import StateBuffer
from graphc.ops.base import Op
from graphc.ops.pointwise.logic import Cast
from graphc.trace.mixed import WIDE
from graphc.trace.operand import Tensor


@dataclass(frozen=True)
class Ranks:
    """The processes that train one model together."""

    rank: int
    """The number of this one."""
    ranks: int
    """How many there are."""
    synchronizes: bool = False
    """Whether batch normalization takes the statistics of all of them."""


RANK = "random.rank"
"""The name of the state that tells a process's draws from those of others: its number. No
checkpoint has it."""


class Builder:
    """A graph under construction; ops on tensors append to it while its `building()` is open."""

    in_loop: ClassVar[bool] = False
    """Whether it builds the body of a loop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.state: list[Value] = []
        self.nodes: list[Node] = []
        self.updates: dict[Value, Value] = {}
        self.modules: list[str] = []
        """The module path at this moment, one attribute name per level."""
        self.where: Where | None = None
        """If set, the origin of every node emitted, in place of the user's current line."""
        self.turn = self.batch = 0
        """The turn and the micro-batch of the nodes emitted; 0 for none."""
        self.training = False
        """Whether dropout drops and batch norm uses the batch's statistics: in this module, at
        this moment."""
        self.modes: Mapping[int, bool | None] = {}
        """What `train` or `eval` had said of modules at a time before, by their identity."""
        self.seed = 0
        self.mixed = ""
        """With mixed precision, the two-byte dtype of products, "bf16" or "f16"; see mixed.py."""
        self.bounds: list[Any] | None = None
        """A `Bound` for each tensor of indices, where GRAPHC_CHECK=bounds asks for them."""
        self.shown: list[Any] = []
        """What `show` and `tap` ask for: a `Shown` each."""
        self.draw_key: Callable[[], int] | None = None
        """Gives the number, below 2^30, from which the counter of random ops counts; else 0."""
        self.random: Mapping[str, StateBuffer] = {}
        """`random.step` and `random.key` of programs that share them with this one."""
        self.ranks = Ranks(0, 1)
        """The processes that run this program, each with its part of the batch."""
        self.trainable_read: list[tuple[str, Any, bool]] = []
        """(name, parameter, its `trainable`) wherever that decided what the graph computes."""
        self.parameters_read: dict[int, tuple[Any, tuple[str, ...]]] = {}
        """(parameter, the user's lines) for each parameter that was read, by the identity of its
        buffer."""
        self.applied: list[tuple[Any, Tensor]] = []
        """(parameter, its gradient) where `optim.apply` gives the gradients."""
        self.buffers: dict[str, StateBuffer] = {}
        """What each state value is bound to, by the value's name."""
        self._known_names: dict[int, str] = {}
        self._state_tensors: dict[int, Tensor] = {}
        self._random_ops = 0
        self.names = Names()
        """Those of values; a builder may be given another's."""

    def fresh(self, base: str) -> str:
        """Return an unused name: `base`, or `base.1`, `base.2`, ..."""
        return self.names.fresh(base)

    def own(self, tensor: Tensor) -> Tensor:
        """Return `tensor` in this graph; raise GraphError if it belongs to another trace."""
        if tensor.builder is not self:
            raise error(
                f"{tensor.value} : {tensor.value.type} belongs to another function: what a "
                "function computes leaves it through what it returns"
            )
        return tensor

    def input(self, name: str, type: Type) -> Tensor:
        value = Value(self.fresh(name), type)
        self.inputs.append(value)
        return Tensor(value, self)

    def add_state(self, name: str, type: Type) -> Tensor:
        value = Value(self.fresh(name), type)
        self.state.append(value)
        return Tensor(value, self)

    def name_state(self, buffer: StateBuffer, name: str) -> None:
        """Set the name that `buffer` gets when the traced function first reads it."""
        self._known_names.setdefault(id(buffer), name)

    def known_name(self, buffer: StateBuffer) -> str:
        """Return the name that `name_state` set for `buffer`, or ""."""
        return self._known_names.get(id(buffer), "")

    def read_state(self, buffer: StateBuffer, name: str = "state") -> Tensor:
        """Return the tensor of a buffer's contents before this program runs.

        An `update` does not change it.
        """
        if id(buffer) not in self._state_tensors:
            tensor = self.add_state(self._known_names.get(id(buffer), name), buffer.type)
            self._state_tensors[id(buffer)] = tensor
            self.buffers[tensor.value.name] = buffer
        return self._state_tensors[id(buffer)]

    def contents(self, buffer: StateBuffer) -> Tensor:
        """Return the contents of `buffer` at this point: its last update, if there was one."""
        return self.after(self.read_state(buffer))

    def after(self, state: Tensor) -> Tensor:
        """Return the contents at this point of a state that `read_state` returned."""
        return Tensor(self.updates.get(state.value, state.value), self)

    def note_read(self, parameter: Any) -> None:
        """Record that the traced function reads `parameter`, and where it first does."""
        if id(parameter.state) not in self.parameters_read:
            self.parameters_read[id(parameter.state)] = parameter, tuple(user_line())

    def latest(self, buffer: StateBuffer) -> Tensor | None:
        """Return the last update of `buffer` up to this point, or None."""
        old = self._state_tensors.get(id(buffer))
        new = None if old is None else self.updates.get(old.value)
        return None if new is None else Tensor(new, self)

    def type_of(self, buffer: StateBuffer) -> Type:
        """Return the type of what `read_state` returns."""
        return buffer.type

    def keeps(self, state: Tensor) -> bool:
        """Return whether the tensor is state that `update` can change."""
        return state.value in self.state

    def rebind_state(self, name: str, buffer: StateBuffer) -> None:
        """Bind the state value `name` to `buffer` instead of the one that was read."""
        old = self.buffers[name]
        self._state_tensors[id(buffer)] = self._state_tensors.pop(id(old))
        self.buffers[name] = buffer

    def random_key(self) -> tuple[int, int, Tensor]:
        """Return (seed, number of the random op, counter i32[]) for a Philox op.

        The counter starts at the program's key and grows by one with each call.
        """
        seed, number, step = self.random_step()
        key = self.random_offset()
        return seed, number, step if key is None else step + key

    def random_step(self) -> tuple[int, int, Tensor]:
        """Return a random key like `random_key`, whose counter starts at 0."""
        step = self._random_state("random.step")
        if step is None:
            counter = self.random.get("random.step") or StateBuffer(0, np.int32)
            step = self.read_state(counter, "random.step")
            self.update(step, step + 1)
        self._random_ops += 1
        if self.ranks.ranks > 1:
            step = step * self.ranks.ranks + self.own_rank()
        return self.seed, self._random_ops - 1, step

    def own_rank(self) -> Tensor:
        """Return the number of this process i32[], which is state, so that all have one graph."""
        own = self._random_state(RANK)
        return self.read_state(StateBuffer(self.ranks.rank, np.int32), RANK) if own is None else own

    def random_offset(self) -> Tensor | None:
        """Return the program's key i32[], which is state, or None where none is drawn."""
        key = self._random_state("random.key")
        if key is None and self.draw_key is not None:
            first = self.random.get("random.key") or StateBuffer(self.draw_key(), np.int32)
            key = self.read_state(first, "random.key")
        return key

    def _random_state(self, name: str) -> Tensor | None:
        return next((t for t in self._state_tensors.values() if t.value.name == name), None)

    def emit(self, op: Op, *inputs: Tensor, name: str = "") -> tuple[Tensor, ...]:
        """Append `op` on `inputs` and return its outputs; a GraphError gets the user's line."""
        where = self.where or self._here(op)
        if self.turn:
            where = replace(where, turn=self.turn, batch=self.batch)
        inputs = tuple(map(self.own, inputs))
        if self.mixed and op.name in WIDE:
            inputs = tuple(map(self._wide, inputs))
        try:
            types = infer_types(op, [t.value.type for t in inputs])
        except GraphError as error:
            if where.lines and error.args and "(" + where.lines[0] not in error.args[0]:
                error.args = (f"{error.args[0]} ({where.lines[0]})",)
            raise
        base = name or self._base_name(op, where)
        outputs = tuple(Value(self.fresh(base), t) for t in types)
        self.nodes.append(Node(op, tuple(t.value for t in inputs), outputs, where))
        return tuple(Tensor(v, self) for v in outputs)

    def _wide(self, tensor: Tensor) -> Tensor:
        return self.emit(Cast("f32"), tensor)[0] if tensor.dtype in NARROW else tensor

    def _here(self, op: Op) -> Where:
        lines, function = user_call()
        name = "" if function == op.name else function
        return Where(".".join(self.modules), lines, function=name)

    def _base_name(self, op: Op, where: Where) -> str:
        prefix = "d." if where.derived else ""
        return f"{prefix}{where.module}.{op.name}" if where.module else f"{prefix}{op.name}"

    def update(self, old: Tensor, new: Tensor) -> None:
        """Set the contents of the state `old` after this program to `new`."""
        self.updates.pop(old.value, None)  # the order is that of the last updates
        self.updates[old.value] = new.value

    def graph(self, outputs: Sequence[Tensor]) -> Graph:
        """Return the finished graph with these outputs."""
        return Graph(
            self.name,
            tuple(self.inputs),
            tuple(self.state),
            tuple(self.nodes),
            tuple(t.value for t in outputs),
            tuple(self.updates.items()),
        )

    @contextmanager
    def building(self) -> Iterator[Builder]:
        """Make this the builder that ops append to."""
        _open.builders.append(self)
        try:
            yield self
        finally:
            _open.builders.pop()

    @contextmanager
    def module(self, name: str, training: bool) -> Iterator[None]:
        """Append `name` to the module path of nodes emitted inside, and set the module's mode."""
        self.modules.append(name)
        try:
            with self.mode(training):
                yield
        finally:
            self.modules.pop()

    @contextmanager
    def mode(self, training: bool) -> Iterator[None]:
        """Set the mode that random and normalizing functions see inside."""
        before, self.training = self.training, training
        try:
            yield
        finally:
            self.training = before

    @contextmanager
    def at(self, where: Where) -> Iterator[None]:
        """Set the source position of nodes emitted inside."""
        before, self.where = self.where, where
        try:
            yield
        finally:
            self.where = before

    @classmethod
    def extend(cls, graph: Graph, origin: Builder | None = None) -> Builder:
        """Return a builder that continues `graph`, with the state and settings of `origin`."""
        builder = cls(graph.name)
        builder.inputs, builder.state = list(graph.inputs), list(graph.state)
        builder.nodes, builder.updates = list(graph.nodes), dict(graph.updates)
        values = (*graph.inputs, *graph.state, *(v for n in graph.nodes for v in n.outputs))
        builder.names = Names(v.name for v in values)
        if origin is not None:
            builder.training, builder.modes = origin.training, origin.modes
            builder.seed, builder.ranks = origin.seed, origin.ranks
            builder._known_names = dict(origin._known_names)
            builder._random_ops = origin._random_ops
            for value in graph.state:
                buffer = origin.buffers[value.name]
                builder.buffers[value.name] = buffer
                builder._state_tensors[id(buffer)] = Tensor(value, builder)
        return builder


class _Open(threading.local):
    """The builders that are open on this thread, outermost first."""

    def __init__(self) -> None:
        self.builders: list[Builder] = []


_open = _Open()


def innermost_builder() -> Builder | None:
    """Return this thread's innermost open builder, or None."""
    return _open.builders[-1] if _open.builders else None


def current_builder() -> Builder:
    """Return this thread's innermost open builder; raise GraphError outside of a trace."""
    if not _open.builders:
        raise GraphError(
            "graphc functions work on traced tensors: call them inside a function that is given "
            f"to graphc.compile or graphc.trace ({', '.join(user_line())})"
        )
    return _open.builders[-1]


def emit(op: Op, *inputs: Tensor) -> Tensor:
    """Append `op` to the current builder and return its only output."""
    (output,) = current_builder().emit(op, *inputs)
    return output


@overload
def spec(shape: Sequence[int] | int, dtype: Any = "float32") -> Type: ...
@overload
def spec(shape: Sequence[int | str] | str, dtype: Any = "float32") -> Type | NamedType: ...
def spec(shape: Any, dtype: Any = "float32") -> Type | NamedType:
    """Return the type of an input.

    Args:
        shape: The size of each axis: an integer or, where every call may have its own, a name such
            as "batch". Axes of one name have one size in a call.
        dtype: The dtype.

    Returns:
        A type, for `compile` and, without names, `trace`.

    Raises:
        GraphError: A size is negative or neither an integer nor a name, or the dtype is unknown.

    Example:
        >>> print(graphc.spec((100, 1, 28, 28)), graphc.spec(100, "int64"))
        f32[100,1,28,28] i64[100]
        >>> print(graphc.spec(("batch", 28, 28)))
        f32[batch,28,28]
    """
    extents = (shape,) if isinstance(shape, int | str) else tuple(shape)
    for extent in extents:
        named = isinstance(extent, str) and extent.isidentifier()
        if not named and (not isinstance(extent, (int, np.integer)) or extent < 0):
            raise GraphError(
                f"spec: a shape holds non-negative integers and names like 'batch', got {shape!r}"
            )
    if any(isinstance(extent, str) for extent in extents):
        sizes = (e if isinstance(e, str) else int(e) for e in extents)
        return NamedType(tuple(sizes), dtype_name(dtype))
    return Type(tuple(int(e) for e in extents), dtype_name(dtype))
