"""Models from ONNX files as modules."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from keyword import iskeyword
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, ValueInfoProto

from graphc import nn
from graphc.base.dlpack import host_array
from graphc.base.errors import BUGS, GraphError, described
from graphc.base.source_lines import error
from graphc.functions import as_tensor
from graphc.ir import Array, Type
from graphc.ir.names import Names
from graphc.onnx.dtypes import dtype_from
from graphc.onnx.interpret import Interpreter
from graphc.onnx.needed import needed, not_offered
from graphc.onnx.operators.rules import Values
from graphc.onnx.reading import array_from, dense, read
from graphc.trace import spec

_STATISTICS = {"BatchNormalization": (3, 4)}
"""Inputs that no update rule changes."""


def load(
    source: str | os.PathLike[str] | bytes | ModelProto, constants: Mapping[str, Any] | None = None
) -> Model:
    """Load a model from an ONNX file.

    Float initializers become parameters by their names, unless shapes depend on them.

    Args:
        source: A path, the bytes of a file, or an `onnx.ModelProto`.
        constants: Values of inputs, such as those that shapes depend on.

    Returns:
        A module.

    Raises:
        GraphError: The file is no valid model, has unsupported operators, which the message lists,
            or needs values that `constants` lacks.
    """
    model, folder = read(source)
    name = Path(source).name if isinstance(source, str | os.PathLike) else "model"
    with _readable(name):
        return Model(model, dict(constants or {}), folder, name)


class Model(nn.Module):
    """A model from an ONNX file.

    It takes a tensor for each of `inputs`, and returns one for each of `outputs`.
    """

    def __init__(
        self, model: ModelProto, constants: dict[str, Any], folder: Path | None, file: str
    ) -> None:
        self._proto, self._folder, self._file = model, folder, file
        self._opsets = {o.domain: o.version for o in model.opset_import}
        self._functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self._check()
        graph = model.graph
        arrays = {t.name: array_from(t, folder) for t in graph.initializer}
        arrays |= {s.values.name: dense(s, folder) for s in graph.sparse_initializer}
        self._known = self._constants(constants)
        self._declared = [
            v for v in graph.input if v.name not in arrays and v.name not in self._known
        ]
        self.inputs = tuple(v.name for v in self._declared)
        self.outputs = tuple(v.name for v in graph.output)
        static = static_inputs(model)
        missing = [name for name in self.inputs if name in static]
        if missing:
            raise error(
                f"onnx.load: shapes in {file} depend on the values of {', '.join(missing)}: "
                "give them in constants={name: array}"
            )
        fixed = {
            node.input[place]
            for node in graph.node
            for place in _STATISTICS.get(node.op_type, ())
            if place < len(node.input)
        }
        self._names: dict[str, str] = {}
        for name, array in arrays.items():
            if name in self._known:
                continue
            if name in static or not _is_float(array):
                self._known[name] = array
                continue
            attribute = f"{name}_" if hasattr(type(self), name) or name in vars(self) else name
            self._names[name] = attribute
            vars(self)[attribute] = nn.Parameter(array, trainable=name not in fixed)

    def _check(self) -> None:
        """GraphError with all operators that are not offered."""
        nodes = [*self._proto.graph.node, *(n for f in self._proto.functions for n in f.node)]
        found: dict[str, list[str]] = {}
        for operator, label in not_offered(nodes, self._functions, self._opsets):
            found.setdefault(operator, []).append(label)
        if found:
            lines = [f"{op} ({len(all)}): {', '.join(all[:5])}" for op, all in found.items()]
            raise GraphError(
                "\n  ".join([f"onnx.load: {self._file} has operators that are not offered", *lines])
            )

    def _constants(self, given: Mapping[str, Any]) -> dict[str, Values]:
        """Return the given values of inputs: arrays, lists of them, or None for optional ones."""
        inputs = {v.name: v.type.WhichOneof("value") for v in self._proto.graph.input}
        for name in given:
            if name not in inputs:
                raise error(f"onnx.load: constants names {name!r}, the inputs are {list(inputs)}")
        return {
            name: value
            if value is None
            else [host_array(v) for v in value]
            if isinstance(value, list) and inputs[name] != "tensor_type"
            else host_array(value)
            for name, value in given.items()
        }

    def specs(self, **extents: int) -> tuple[Any, ...]:
        """Return the specs of the inputs as the file declares them.

        Args:
            **extents: Sizes that the file leaves open, by their names.

        Raises:
            GraphError: A size is missing.
        """
        return tuple(self._spec(v, extents) for v in self._declared)

    def _spec(self, declared: ValueInfoProto, extents: Mapping[str, int]) -> Any:
        kind = declared.type.WhichOneof("value")
        if kind != "tensor_type":
            raise error(f"the input {declared.name} is a {kind}, which has no spec")
        tensor = declared.type.tensor_type
        shape = []
        for axis, extent in enumerate(tensor.shape.dim):
            name = extent.dim_param or f"axis{axis}"
            fixed = extent.HasField("dim_value")
            if not fixed and name not in extents:
                raise error(f"the input {declared.name} leaves {name} open: specs({name}=...)")
            shape.append(extent.dim_value if fixed else extents[name])
        return spec(shape, dtype_from(tensor.elem_type))

    @property
    def forward(self) -> Callable[..., Any]:
        """The function of the inputs, by their names where Python allows them."""

        def forward(*inputs: Values) -> Any:
            return self._run(*inputs)

        names, kind = Names(mark="_"), inspect.Parameter.POSITIONAL_ONLY
        plain = [re.sub(r"\W", "_", name) for name in self.inputs]
        usable = [n if n.isidentifier() and not iskeyword(n) else f"x_{n}" for n in plain]
        given = [inspect.Parameter(names.fresh(name), kind) for name in usable]
        forward.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
        return forward

    def _run(self, *inputs: Values) -> Any:
        if len(inputs) != len(self.inputs):
            raise error(
                f"{self._file} expected {len(self.inputs)} inputs, {', '.join(self.inputs)}, "
                f"got {len(inputs)}"
            )
        values: dict[str, Values] = dict(self._known)
        values |= {name: vars(self)[attribute] for name, attribute in self._names.items()}
        for declared, value in zip(self._declared, inputs, strict=True):
            self._check_input(declared, value)
            values[declared.name] = value
        interpreter = Interpreter(self._proto.functions, self._folder, self._file)
        with _readable(self._file):
            results = interpreter.graph(self._proto.graph, values, self._opsets)
        found = tuple(_result(value) for value in results)
        return found[0] if len(found) == 1 else found

    def _check_input(self, declared: ValueInfoProto, value: Values) -> None:
        """GraphError unless the value has the dtype and the extents that the file fixes."""
        if declared.type.WhichOneof("value") != "tensor_type":
            return
        tensor = declared.type.tensor_type
        wanted = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
        own: Type = as_tensor(value).value.type
        fits = not tensor.HasField("shape") or (
            len(wanted) == own.rank
            and all(w in (None, n) for w, n in zip(wanted, own.shape, strict=True))
        )
        if own.dtype != dtype_from(tensor.elem_type) or not fits:
            extents = ",".join("?" if n is None else str(n) for n in wanted)
            expected = f"{dtype_from(tensor.elem_type)}[{extents}]"
            raise error(f"{self._file}: the input {declared.name} expected {expected}, got {own}")

    def describe(self) -> str:
        return f"{self._file}, inputs={list(self.inputs)}, outputs={list(self.outputs)}"


def static_inputs(model: ModelProto) -> set[str]:
    """Return the inputs and initializers whose values must be known when the model is traced."""
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    return needed(model.graph, functions)


@contextmanager
def _readable(file: str) -> Iterator[None]:
    """Let what a malformed file leads to be a GraphError."""
    try:
        yield
    except BUGS as problem:
        raise GraphError(f"onnx.load: {file} cannot be read: {described(problem)}") from problem


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype == np.dtype("V2")


def _result(value: Values) -> Any:
    if isinstance(value, list):
        return [as_tensor(v) for v in value]
    return as_tensor(value)
