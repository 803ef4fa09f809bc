"""Find the values that must be known when a graph is traced, and operators without a rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx import FunctionProto, GraphProto, NodeProto, defs

from graphc.onnx.operators import rule_of
from graphc.onnx.reading import graphs, label
from graphc.onnx.schemas import Opsets, schema_of, version_of

Functions = Mapping[tuple[str, str, str], FunctionProto]
_SHAPES = ("Shape", "Size")
"""Operators whose result depends on no element."""


def needed(
    graph: GraphProto | FunctionProto, functions: Functions, outputs: Sequence[str] = ()
) -> set[str]:
    """Return the names whose values decide a shape or a branch, and all they are computed from.

    They are the values that rules call static, and `outputs`, in a graph or around it.
    """
    found = set(outputs)
    for node in reversed(graph.node):
        found |= _static_inputs(node, functions)
        wanted = node.op_type not in _SHAPES and any(name in found for name in node.output)
        if wanted:
            found |= set(node.input)
        for attribute in node.attribute:
            for inner in graphs(attribute):
                if node.op_type == "If" and any(
                    v.type.WhichOneof("value") != "tensor_type" for v in inner.output
                ):
                    found.add(node.input[0])
                made = {name for n in inner.node for name in n.output}
                made |= {v.name for v in inner.input} | {t.name for t in inner.initializer}
                results = [v.name for v in inner.output] if wanted else []
                found |= needed(inner, functions, results) - made
    return found - {""}


def _static_inputs(node: NodeProto, functions: Functions) -> set[str]:
    """The inputs of a node that must be known whatever is done with its outputs."""
    rule = rule_of(node.domain, node.op_type)
    function = functions.get((node.domain, node.op_type, node.overload))
    if function is None and rule is not None:
        return {name for place, name in enumerate(node.input) if rule.is_static(place)}
    if function is None:
        schema = schema_of(node, defs.onnx_opset_version())
        if schema is None or not schema.has_function:
            return set()
        function = schema.function_body
    inside = needed(function, functions)
    return {name for name, own in zip(node.input, function.input, strict=False) if own in inside}


def not_offered(
    nodes: Sequence[NodeProto], functions: Functions, opsets: Opsets
) -> Iterator[tuple[str, str]]:
    """Return (operator, label) of each node without a rule or definition, also in inner graphs."""
    for node in nodes:
        version = version_of(node, opsets)
        called = functions.get((node.domain, node.op_type, node.overload))
        if called is None and rule_of(node.domain, node.op_type) is None:
            schema = schema_of(node, version)
            if schema is None or not (schema.has_function or schema.has_context_dependent_function):
                domain = f"{node.domain}." if node.domain else ""
                yield f"{domain}{node.op_type}", label(node)
        for attribute in node.attribute:
            for graph in graphs(attribute):
                yield from not_offered(graph.node, functions, opsets)
