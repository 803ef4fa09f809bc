"""The graph: a list of typed equations over named values.

Everything is a frozen dataclass. A pass takes a graph and returns a new one. Equality is
structural: two graphs are equal when they print the same, source positions included.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.dtypes import BFLOAT16
from graphc.errors import BUGS, GraphError, described

if TYPE_CHECKING:
    from graphc.ops.base import Op

DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "u8": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "f16": np.dtype(np.float16),
    "bf16": BFLOAT16,
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
"""The short name of each dtype, as types print it, and NumPy's dtype of an array in memory.

f16 and bf16 are stored in two bytes and computed in float32: each op widens its operands, rounds
its results to nearest even once, and reductions and contractions round their sums at the end. NumPy
has no bfloat16: programs take float32 arrays (rounded), or bfloat16 ones of other libraries, where
an input is bf16, and give float32 arrays that hold bf16 values. See graphc/dtypes.py.
"""

_LONG_NAMES = {d.name: short for short, d in DTYPES.items() if short != "bf16"}
_LONG_NAMES["bfloat16"] = "bf16"
FLOATS = ("f16", "bf16", "f32", "f64")
NARROW = ("f16", "bf16")
"""Floats of two bytes: stored, never computed in."""
INTEGERS = ("u8", "i8", "i32", "i64")


def dtype_name(dtype: Any) -> str:
    """The short name of `dtype`: a short or long name ("f32", "float32") or a NumPy dtype."""
    if isinstance(dtype, str) and (dtype in DTYPES or dtype in _LONG_NAMES):
        return _LONG_NAMES.get(dtype, dtype)
    try:
        found = np.dtype(dtype)
        return "bf16" if found == BFLOAT16 else _LONG_NAMES[found.name]
    except (TypeError, KeyError):
        known = ", ".join(sorted(_LONG_NAMES))
        raise GraphError(f"unknown dtype {dtype!r}; expected one of {known}") from None


@dataclass(frozen=True)
class Layout:
    """Where the elements of a value lie.

    `Layout()` is row-major. `Layout(axis, width)` splits `axis` into blocks of `width` and lets
    the place within a block vary fastest: a value of shape [n, c, h, w] under `Layout(0, 16)` lies
    as [ceil(n / 16)][c][h][w][16]. The lanes beyond the axis's extent exist and hold zeros.
    """

    axis: int | None = None
    width: int = 1

    def __str__(self) -> str:
        return "" if self.axis is None else f"{{lanes={self.axis}x{self.width}}}"


ROW_MAJOR = Layout()


@dataclass(frozen=True)
class Type:
    """Shape (elements per axis), dtype (a short name of `DTYPES`) and layout of a value."""

    shape: tuple[int, ...]
    dtype: str = "f32"
    layout: Layout = ROW_MAJOR

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]{self.layout}"

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return DTYPES[self.dtype]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements, without the layout's padding."""
        return math.prod(self.shape)

    @property
    def storage_shape(self) -> tuple[int, ...]:
        """The extents as they lie in memory, slowest first."""
        axis, width = self.layout.axis, self.layout.width
        if axis is None:
            return self.shape
        blocks = -(-self.shape[axis] // width)
        return (*self.shape[:axis], blocks, *self.shape[axis + 1 :], width)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, the layout's padding included."""
        return math.prod(self.storage_shape) * self.numpy_dtype.itemsize

    def with_layout(self, layout: Layout) -> Type:
        return Type(self.shape, self.dtype, layout)


@dataclass(frozen=True)
class Value:
    """A named, typed result of a node, input or state of a graph. Names are unique in a graph."""

    name: str
    type: Type

    def __hash__(self) -> int:
        # A name is enough, and strings know their hash: graphs are full of sets of values.
        return hash(self.name)

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclass(frozen=True)
class Where:
    """What a node comes from: a module path such as `block1.conv2`, and the user's lines."""

    module: str = ""
    lines: tuple[str, ...] = ()
    derived: bool = False
    """True for a node of the backward pass or of an update rule."""

    def __str__(self) -> str:
        parts = ["d"] if self.derived else []
        return " ".join([*parts, *([self.module] if self.module else []), *self.lines])

    def merge(self, other: Where) -> Where:
        lines = tuple(dict.fromkeys(self.lines + other.lines))
        return Where(self.module or other.module, lines, self.derived and other.derived)


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

    def __str__(self) -> str:
        from graphc.text import graph_text

        return graph_text(self)

    def _repr_html_(self) -> str:
        from graphc.html import details

        title = f"graph {self.name}: {len(self.inputs)} inputs, {len(self.state)} pieces of state, "
        return details(f"{title}{len(self.nodes)} nodes", str(self))

    @functools.cached_property
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

    @property
    def results(self) -> Iterator[Value]:
        """The values that must exist at the end: the outputs and the new values of the state."""
        yield from self.outputs
        for _, new in self.updates:
            yield new


def infer_types(op: Op, inputs: Sequence[Type]) -> tuple[Type, ...]:
    """What `op.infer` gives for inputs of these types; GraphError where it raises anything else, as
    for attributes that do not fit, or gives no types."""
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
    """Raise GraphError unless every value is defined once, before its use, with the type that
    its op infers, and every result exists. The message ends with the graph's text."""
    defined: dict[str, Value] = {}

    def define(value: Value) -> None:
        if value.name in defined:
            raise GraphError(f"{value} is defined twice")
        defined[value.name] = value

    def use(value: Value, by: str) -> None:
        if defined.get(value.name) != value:
            raise GraphError(f"{by} reads {value} : {value.type}, which is not defined before it")

    try:
        for value in (*graph.inputs, *graph.state):
            define(value)
        for node in graph.nodes:
            for value in node.inputs:
                use(value, node.op.name)
            inferred = infer_types(node.op, [v.type for v in node.inputs])
            got = [(v.type.shape, v.type.dtype) for v in node.outputs]
            if got != [(t.shape, t.dtype) for t in inferred]:
                raise GraphError(
                    f"{node.op.name} infers {', '.join(map(str, inferred))}, "
                    f"its outputs are {', '.join(str(v.type) for v in node.outputs)}"
                )
            for value in node.outputs:
                define(value)
        for value in graph.results:
            use(value, "the end of the graph")
        for old, new in graph.updates:
            if old not in graph.state:
                raise GraphError(f"{old} is updated but is not state")
            if (old.type.shape, old.type.dtype) != (new.type.shape, new.type.dtype):
                raise GraphError(f"{old} : {old.type} is updated by {new} : {new.type}")
    except GraphError as error:
        error.add_note(str(graph))
        raise
