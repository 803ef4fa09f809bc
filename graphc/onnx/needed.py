"""Find the values of a graph that must be known when it is traced, and the operators without a
rule."""

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
    """The names, in a graph or around it, whose values decide a shape or a branch, or what is
    computed of them: those that rules call static, and all that they are computed from; also those
    of `outputs`."""
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
    """(operator, label) of each node that has neither a rule nor a definition, in graphs within and
    in functions as well."""
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
