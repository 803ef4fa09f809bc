"""The graph: a list of typed equations over named values.

Everything is a frozen dataclass. A pass takes a graph and returns a new one. Equality is
structural: two graphs are equal when they print the same, source positions included.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Concatenate, ParamSpec, TypeVar

from graphc.base.cached import cached_property
from graphc.base.errors import BUGS, GraphError, described
from graphc.ir.op import Op
from graphc.ir.types import DTYPES, Type, Value, Where

Rest = ParamSpec("Rest")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Node:
    """One equation: `outputs = op(inputs)`."""

    op: Op
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    where: Where = field(default_factory=Where)

    @property
    def output(self) -> Value:
        """The only output."""
        assert len(self.outputs) == 1, f"{self.op.name} has {len(self.outputs)} outputs"
        return self.outputs[0]

    @cached_property
    def inferred(self) -> tuple[Type, ...]:
        """The output types that the op infers from its inputs, computed once; see `infer_types`."""
        return infer_types(self.op, [v.type for v in self.inputs])

    @cached_property
    def is_free(self) -> bool:
        """Whether a kernel computes this node where it reads it, at no cost."""
        return self.op.is_free(*(v.type for v in self.inputs))


@dataclass(frozen=True)
class Graph:
    """Equations in an executable order.

    `state` are values that live on the device between calls (parameters, moments, running
    statistics, counters); `updates` are pairs (state value, new value), applied at the end.
    """

    name: str
    inputs: tuple[Value, ...]
    state: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    updates: tuple[tuple[Value, Value], ...] = ()

    written: ClassVar[Callable[[Graph], str]]
    """Set by `graphc.text`, which stands above ops."""

    def __hash__(self) -> int:
        # Bodies are looked up often, and few have one name.
        return hash((self.name, len(self.nodes)))

    def __str__(self) -> str:
        return Graph.written(self)

    def _repr_html_(self) -> str:
        from graphc.base.html import details

        title = f"graph {self.name}: {len(self.inputs)} inputs, {len(self.state)} pieces of state, "
        return details(f"{title}{len(self.nodes)} nodes", str(self))

    @cached_property
    def producers(self) -> dict[Value, Node]:
        """The node that defines each value."""
        return {v: n for n in self.nodes for v in n.outputs}

    @property
    def consumers(self) -> dict[Value, list[Node]]:
        """The nodes that read each value, in order, each once."""
        readers: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                readers.setdefault(value, []).append(node)
        return readers

    @cached_property
    def results(self) -> tuple[Value, ...]:
        """The values that must exist at the end: the outputs and the new values of the state."""
        return *self.outputs, *(new for _, new in self.updates)

    @cached_property
    def result_set(self) -> frozenset[Value]:
        """`results`, where one asks whether a value is among them."""
        return frozenset(self.results)

    @cached_property
    def input_set(self) -> frozenset[Value]:
        """The inputs, where one asks whether a value is among them."""
        return frozenset(self.inputs)


def remembered(
    function: Callable[Concatenate[Graph, Rest], Found],
) -> Callable[Concatenate[Graph, Rest], Found]:
    """Return `function` of a graph and more, computed once for each graph and the rest.

    What it has found must not be changed, and lives as long as the graph.
    """

    @functools.wraps(function)
    def of_graph(graph: Graph, /, *rest: Rest.args, **named: Rest.kwargs) -> Found:
        known: dict[object, Found] = vars(graph).setdefault("_found", {})
        asked = function, rest, tuple(named.items())
        if asked not in known:
            known[asked] = function(graph, *rest, **named)
        return known[asked]

    return of_graph


def known_of(graph: Graph, other: Graph, *functions: Callable[..., object]) -> Graph:
    """Return `graph`, of which these `remembered` functions find what they found of `other`."""
    own = {function.__wrapped__ for function in functions}  # type: ignore[attr-defined]
    found = vars(other).get("_found", {}).items()
    vars(graph).setdefault("_found", {}).update({k: v for k, v in found if k[0] in own})
    return graph


def infer_types(op: Op, inputs: Sequence[Type]) -> tuple[Type, ...]:
    """Return the types of `op.infer` for inputs of these types.

    It raises GraphError where `infer` raises anything else, as for attributes that do not fit, or
    returns no types.
    """
    if isinstance(op, type):
        raise GraphError(f"expected an op, got the class {op.__name__}: make one of it")
    try:
        types = op.infer(*inputs)
    except BUGS as bug:
        given = " and ".join(map(str, inputs)) or "nothing"
        own = "".join(f" {k}={v}" for k, v in op.attributes.items())
        raise GraphError(f"{op.name}{own} does not take {given}: {described(bug)}") from bug
    if not isinstance(types, tuple) or not all(isinstance(t, Type) for t in types):
        got = type(types).__name__
        raise GraphError(f"{op.name}: infer expected to return a tuple of types, got {got}")
    for kind in types:
        if kind.dtype not in DTYPES:
            raise GraphError(
                f"{op.name}: infer expected a dtype of {', '.join(DTYPES)}, got {kind.dtype!r}"
            )
    return types


def verify(graph: Graph) -> None:
    """Raise GraphError unless a graph is valid; the message ends with the graph's text.

    Every value is defined once, before its use, with the type that its op infers, and every result
    exists.
    """
    defined: dict[str, Value] = {}

    def define(value: Value) -> None:
        if value.name in defined:
            raise GraphError(f"{value} is defined twice")
        defined[value.name] = value

    def use(values: Iterable[Value], by: str) -> None:
        for value in values:
            found = defined.get(value.name)
            if found is not value and found != value:
                raise GraphError(
                    f"{by} reads {value} : {value.type}, which is not defined before it"
                )

    try:
        for value in (*graph.inputs, *graph.state):
            define(value)
        for node in graph.nodes:
            use(node.inputs, node.op.name)
            if not _alike(node.inferred, [v.type for v in node.outputs]):
                raise GraphError(
                    f"{node.op.name} infers {', '.join(map(str, node.inferred))}, "
                    f"its outputs are {', '.join(str(v.type) for v in node.outputs)}"
                )
            for value in node.outputs:
                define(value)
        use(graph.results, "the end of the graph")
        state = set(graph.state)
        for old, new in graph.updates:
            if old not in state:
                raise GraphError(f"{old} is updated but is not state")
            if (old.type.shape, old.type.dtype) != (new.type.shape, new.type.dtype):
                raise GraphError(f"{old} : {old.type} is updated by {new} : {new.type}")
    except GraphError as error:
        error.add_note(str(graph))
        raise


def _alike(types: Sequence[Type], others: Sequence[Type]) -> bool:
    """Return whether as many types have the same shapes and dtypes, whatever their layouts."""
    if len(types) != len(others):
        return False
    for one, other in zip(types, others, strict=True):
        if one is not other and (one.dtype != other.dtype or one.shape != other.shape):
            return False
    return True
