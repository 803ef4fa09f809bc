"""The table of writers, and the model that they write into.

A writer is a function of the `Writer`, an op, its node and the names of its inputs; it returns the
name of its output, or a tuple of names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from onnx import NodeProto, TensorProto, helper

from graphc.base.dtypes import array_of
from graphc.ir import DTYPES, NARROW, Array, Node, Type, Value, dtype_name
from graphc.ir.names import Names
from graphc.onnx.dtypes import NUMBERS
from graphc.ops.base import Op

Given = TypeVar("Given", bound=Callable[..., Any])
_WRITERS: dict[type[Op], Callable[..., Any]] = {}


def writes(*classes: type[Op]) -> Callable[[Given], Given]:
    """Registers a writer for these classes of ops."""

    def register(function: Given) -> Given:
        _WRITERS.update(dict.fromkeys(classes, function))
        return function

    return register


def writer_of(op: Op) -> Callable[..., Any] | None:
    """The writer of an op, None if there is none."""
    return _WRITERS.get(type(op))


class Writer:
    """The nodes of a graph under construction. A body within it shares the names."""

    def __init__(self, names: Names, used: set[str]) -> None:
        self.names, self.used = names, used
        self.nodes: list[NodeProto] = []
        self.node: Node | None = None
        """The node of graphc that is being written."""

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """The name of the output of a new node, or a tuple of so many."""
        assert self.node is not None
        base = self.node.outputs[0].name if self.node.outputs else op
        made = tuple(self.names.fresh(base) for _ in range(outputs))
        name = f"{self.node.where.module or base}/{made[0]}"
        self.nodes.append(helper.make_node(op, list(inputs), list(made), name, **attributes))
        return made[0] if outputs == 1 else made

    def constant(self, array: Array, name: str = "constant") -> str:
        """The name of a constant: no initializer, which would be a parameter."""
        made = self.names.fresh(name)
        tensor = tensor_of(made, array)
        self.nodes.append(helper.make_node("Constant", [], [made], made, value=tensor))
        return made

    def integers(self, values: Sequence[int]) -> str:
        """The name of a constant of i64."""
        return self.constant(np.array(values, np.int64), "integers")

    def number(self, value: float, dtype: str) -> str:
        """The name of a constant without axes."""
        return self.constant(array_of(value, DTYPES[dtype]), "number")

    def dtype(self, place: int = 0) -> str:
        """The dtype of an input of the node."""
        assert self.node is not None
        return self.node.inputs[place].type.dtype

    def shape(self, place: int = 0) -> tuple[int, ...]:
        """The shape of an input of the node."""
        assert self.node is not None
        return self.node.inputs[place].type.shape


def computed_as(kind: str, dtypes: Sequence[str]) -> Callable[[Given], Given]:
    """Lets a writer see inputs of these dtypes as `kind`; the result is converted back."""

    def wrap(write: Given) -> Given:
        @functools.wraps(write)
        def run(w: Writer, op: Op, *inputs: str) -> str:
            node = w.node
            assert node is not None
            own = w.dtype()
            if own not in dtypes:
                return str(write(w, op, *inputs))
            wide = tuple(Value(v.name, Type(v.type.shape, kind)) for v in node.inputs)
            w.node = Node(op, wide, node.outputs, node.where)
            y = write(w, op, *(w.add("Cast", x, to=NUMBERS[kind]) for x in inputs))
            w.node = node
            return str(w.add("Cast", y, to=NUMBERS[own]))

        return cast(Given, run)

    return wrap


in_f32 = computed_as("f32", NARROW)
"""Rounded once, as an op of floats of two bytes is, and not after each of several operators."""
in_i32 = computed_as("i32", ("u8", "i8"))
"""For operators that have no integers of one byte."""


def tensor_of(name: str, array: Array) -> TensorProto:
    """An initializer."""
    kind = NUMBERS[dtype_name(array.dtype)]
    data = np.ascontiguousarray(array).tobytes()
    return TensorProto(name=name, data_type=kind, dims=array.shape, raw_data=data)
