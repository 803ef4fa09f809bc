"""ONNX's graphs as functions of traced tensors.

A value is a traced tensor, or an array where it is known while the model is traced; a node whose
inputs are all known is computed at once, by the same rule, in NumPy. So whatever computes shapes
is gone from the program.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, helper

from graphc.base.errors import BUGS, GraphError, described
from graphc.functions import as_tensor
from graphc.ir import Where
from graphc.ir.interpret import evaluate
from graphc.nn import Parameter
from graphc.onnx.needed import needed
from graphc.onnx.operators import rule_of
from graphc.onnx.operators.rules import Rule, UnsupportedError, Values
from graphc.onnx.operators.shapes import LARGEST
from graphc.onnx.reading import array_from, dense, label
from graphc.onnx.schemas import Opsets, schema_function, version_of
from graphc.trace import Builder, Tensor, current_builder

MOST_NODES = 10_000
"""The most nodes that functions and loops may add to those of a model's graph: some seconds."""


class Interpreter:
    """Runs the graphs of one model while a function is traced.

    `folder` has its external data, `file` is what nodes give as their source.
    """

    def __init__(
        self, functions: Sequence[FunctionProto], folder: Path | None, file: str = "model"
    ) -> None:
        self.functions = {(f.domain, f.name, f.overload): f for f in functions}
        self.folder, self.file = folder, file
        self.left = MOST_NODES
        """How many nodes may still be run."""

    def graph(self, graph: GraphProto, values: dict[str, Values], opsets: Opsets) -> list[Values]:
        """Return the outputs of a graph.

        `values` holds its inputs and what it may read from outside; results are added to it.
        """
        for tensor in graph.initializer:
            if tensor.name not in values:
                values[tensor.name] = array_from(tensor, self.folder)
        for sparse in graph.sparse_initializer:
            if sparse.values.name not in values:
                values[sparse.values.name] = dense(sparse, self.folder)
        self.left += len(graph.node)
        self.run(graph.node, values, opsets, {})
        return [read(values, output.name) for output in graph.output]

    def run(
        self,
        nodes: Sequence[NodeProto],
        values: dict[str, Values],
        opsets: Opsets,
        attributes: Mapping[str, Any],
    ) -> None:
        """Run the nodes in order; `attributes` are those of the function that they stand in."""
        for number, node in enumerate(nodes):
            self.left -= 1
            if self.left < 0:
                raise GraphError(f"functions and loops add more than {MOST_NODES} nodes")
            with self._at(node, number):
                inputs = [read(values, name) for name in node.input]
                given = {
                    a.name: self._attribute(a, values, opsets, attributes)
                    for a in node.attribute
                    if not a.ref_attr_name or a.ref_attr_name in attributes
                }
                results = self._node(node, inputs, given, opsets)
                for name, value in zip(node.output, results, strict=False):
                    values[name] = value

    def _node(
        self, node: NodeProto, inputs: list[Values], attributes: dict[str, Any], opsets: Opsets
    ) -> Sequence[Values]:
        function = self.functions.get((node.domain, node.op_type, node.overload))
        if function is None:
            rule = rule_of(node.domain, node.op_type)
            if rule is not None:
                return _applied(rule, node, inputs, attributes, version_of(node, opsets))
            function, defaults = schema_function(node, inputs, version_of(node, opsets))
            attributes = {
                name: self._attribute(a, {}, {}, {}) for name, a in defaults.items()
            } | attributes
        return self._function(function, inputs, attributes)

    def _function(
        self, function: FunctionProto, inputs: Sequence[Values], attributes: dict[str, Any]
    ) -> list[Values]:
        """A function in place of a node."""
        opsets = {o.domain: o.version for o in function.opset_import}
        given = {a.name: self._attribute(a, {}, opsets, {}) for a in function.attribute_proto}
        values: dict[str, Values] = dict.fromkeys(function.input)
        values.update(zip(function.input, inputs, strict=False))
        self.run(function.node, values, opsets, given | attributes)
        return [read(values, name) if name in values else None for name in function.output]

    def _attribute(
        self,
        attribute: AttributeProto,
        values: dict[str, Values],
        opsets: Opsets,
        given: Mapping[str, Any],
    ) -> Any:
        """What Python has for an attribute: numbers, text, arrays, functions for graphs."""
        if attribute.ref_attr_name:
            return given[attribute.ref_attr_name]
        value = helper.get_attribute_value(attribute)
        if attribute.type == AttributeProto.STRING:
            return value.decode(errors="replace")
        if attribute.type == AttributeProto.STRINGS:
            return [v.decode(errors="replace") for v in value]
        if attribute.type == AttributeProto.TENSOR:
            return array_from(value, self.folder)
        if attribute.type == AttributeProto.SPARSE_TENSOR:
            return dense(value, self.folder)
        if attribute.type == AttributeProto.GRAPH:
            return _Body(self, value, values, opsets, given)
        return list(value) if hasattr(value, "__len__") else value

    @contextmanager
    def _at(self, node: NodeProto, number: int) -> Iterator[None]:
        """Let what is traced inside come from the node, and what goes wrong name it."""
        module = re.sub(r"\W+", ".", node.name).strip(".")
        try:
            with current_builder().at(Where(module, (f"{self.file}:{number + 1}",))):
                yield
        except GraphError as problem:
            _note(problem, node)
            raise
        except (*BUGS, MemoryError) as problem:
            wrong = GraphError(f"{label(node)} cannot be read: {described(problem)}")
            raise wrong from problem


class _Body:
    """A graph within a node: a function of its inputs, which reads what is around it."""

    def __init__(
        self,
        interpreter: Interpreter,
        graph: GraphProto,
        values: dict[str, Values],
        opsets: Opsets,
        attributes: Mapping[str, Any],
    ) -> None:
        self.interpreter, self.graph = interpreter, graph
        self.values, self.opsets, self.attributes = values, opsets, attributes

    def __call__(self, *arguments: Values) -> list[Values]:
        values = dict(self.values)
        values.update(zip((i.name for i in self.graph.input), arguments, strict=True))
        for tensor in self.graph.initializer:
            values[tensor.name] = array_from(tensor, self.interpreter.folder)
        self.interpreter.run(self.graph.node, values, self.opsets, self.attributes)
        return [read(values, output.name) for output in self.graph.output]

    @property
    def keeps_condition(self) -> bool:
        result = self.graph.output[0].name
        makers = {name: node for node in self.graph.node for name in node.output}
        while result in makers and makers[result].op_type == "Identity":
            result = makers[result].input[0]
        if result == self.graph.input[1].name:
            return True
        constants = {t.name: t for t in self.graph.initializer}
        if result in makers and makers[result].op_type == "Constant":
            constants[result] = makers[result].attribute[0].t
        known = constants.get(result)
        if known is not None:
            return bool(array_from(known, None).all())
        outer = self.values.get(result)
        return isinstance(outer, np.ndarray) and bool(outer.all())

    @property
    def counts(self) -> bool:
        functions = self.interpreter.functions
        return bool(needed(self.graph, functions) & {v.name for v in self.graph.input})


def read(values: Mapping[str, Values], name: str) -> Values:
    """The value of this name, None where it is empty; a parameter's contents."""
    if not name:
        return None
    if name not in values:
        raise GraphError(f"nothing has the name {name!r} here")
    value = values[name]
    return as_tensor(value) if isinstance(value, Parameter) else value


def _applied(
    rule: Rule, node: NodeProto, inputs: list[Values], attributes: dict[str, Any], opset: int
) -> Sequence[Values]:
    """The outputs of a node that a rule says."""
    if "outputs" in rule.parameters:
        attributes["outputs"] = len(node.output)
    if "opset" in rule.parameters:
        attributes["opset"] = opset
    _check_known(rule, node, inputs)
    if rule.raw:
        return _several(rule.function(*inputs, **attributes))
    known = all(value is None or isinstance(value, np.ndarray) for value in inputs)
    if not known or rule.drawing:
        return _several(_called(rule, inputs, attributes))
    builder = Builder("known")
    with builder.building():
        results = _several(_called(rule, inputs, attributes))
        return _computed(builder, results)


def _check_known(rule: Rule, node: NodeProto, inputs: Sequence[Values]) -> None:
    for place, value in enumerate(inputs):
        if isinstance(value, Tensor | list) and rule.is_static(place):
            raise UnsupportedError(
                f"{node.op_type} expected {rule.inputs[place]} to be known when the model is "
                f"traced, but {node.input[place]!r} is computed; constants= gives inputs values"
            )


def _called(rule: Rule, inputs: Sequence[Values], attributes: dict[str, Any]) -> Any:
    """The rule with tensors for all that need not be known."""
    given = [
        value if value is None or rule.is_static(place) or isinstance(value, list)
        else as_tensor(value)
        for place, value in enumerate(inputs)
    ]  # fmt: skip
    return rule.function(*given, **attributes)


def _computed(builder: Builder, results: Sequence[Values]) -> list[Values]:
    """The values of what the builder has traced from constants alone."""
    tensors = [t for result in results for t in _tensors(result)]
    graph = builder.graph(tensors)
    for node in graph.nodes:
        if any(math.prod(value.type.shape) > LARGEST for value in node.outputs):
            raise UnsupportedError(f"a constant has more than {LARGEST} elements")
    arrays = iter(evaluate(graph, ())[0])

    def value_of(result: Values) -> Values:
        if isinstance(result, list | tuple):
            return [value_of(part) for part in result]
        return next(arrays) if isinstance(result, Tensor) else result

    return [value_of(result) for result in results]


def _tensors(value: Values) -> list[Tensor]:
    if isinstance(value, list | tuple):
        return [t for part in value for t in _tensors(part)]
    return [value] if isinstance(value, Tensor) else []


def _several(results: Any) -> tuple[Values, ...]:
    return results if isinstance(results, tuple) else (results,)


def _note(problem: GraphError, node: NodeProto) -> None:
    """Say at the error which node it comes from, once."""
    if not any(n.startswith("in node ") for n in getattr(problem, "__notes__", [])):
        problem.add_note(f"in node {label(node)}")
