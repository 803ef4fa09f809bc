"""Modules, functions and graphs as ONNX files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto, helper

from graphc.base.errors import GraphError
from graphc.base.files import replace_file
from graphc.base.source_lines import error
from graphc.ir import Array, Graph, Value, tree
from graphc.ir.names import Names
from graphc.onnx.writers.rules import Writer, tensor_of
from graphc.onnx.writers.structure import names_read, not_offered, value_info, write_graph
from graphc.ops.custom_gradient import without_marks
from graphc.ops.loops.guards import without_guards
from graphc.program.tracing import trace_function

OPSET, IR_VERSION = 18, 10
"""The version of the operators, and that of the format, that are written."""


def save(source: Any, path: str | os.PathLike[str], *specs: Any) -> None:
    """Write a module, function or graph to an ONNX file, in evaluation mode.

    Parameters become initializers by their names, so that `load` restores them. An existing file is
    replaced atomically at the end.

    Args:
        source: A module or function, or a graph without state.
        path: The file to write.
        *specs: The inputs of a module or function.

    Raises:
        GraphError: An op is not supported, which the message lists, or the file cannot be written.

    Example:
        >>> import graphc.onnx
        >>> graphc.onnx.save(nn.Linear(3, 2), "linear.onnx", graphc.spec((4, 3)))
        >>> model = graphc.onnx.load("linear.onnx")
        >>> graphc.compile(model, graphc.spec((4, 3)))(np.zeros((4, 3), np.float32)).shape
        (4, 2)
    """
    data = model_of(source, *specs).SerializeToString()
    replace_file("onnx.save", Path(path), [data])


def model_of(source: Any, *specs: Any) -> ModelProto:
    """Return the ONNX model that `save` writes."""
    state: dict[str, Array] = {}
    if isinstance(source, Graph):
        graph = source
        if graph.state:
            raise error("onnx.save: a graph with state has no values: give the module")
    else:
        traced = trace_function(source, specs, training=False, seed=0)
        graph = traced.builder.graph([t for _, t in tree.leaves(traced.outputs)])
        state = {name: b.numpy() for name, b in traced.builder.buffers.items()}
    return _model(graph, state)


def _model(graph: Graph, state: Mapping[str, Array]) -> ModelProto:
    graph = without_guards(without_marks(graph))
    if graph.updates:
        updated = ", ".join(old.name for old, _ in graph.updates)
        raise error(f"onnx.save: an ONNX model changes no state, but this one updates {updated}")
    problems: dict[str, list[str]] = {}
    for op, where in not_offered(graph):
        problems.setdefault(op, []).append(where)
    if problems:
        lines = [f"{op} ({len(all)}): {', '.join(all[:5])}" for op, all in problems.items()]
        head = f"onnx.save: {graph.name} has ops that are not offered"
        raise GraphError("\n  ".join([head, *lines]))
    outer: tuple[Value, ...] = (*graph.inputs, *graph.state)
    names = Names(value.name for value in outer)
    initializers = [tensor_of(v.name, state[v.name]) for v in graph.state]
    writer = Writer(names, names_read(graph))
    results = write_graph(writer, graph, {value: value.name for value in outer})
    made = helper.make_graph(
        writer.nodes,
        graph.name,
        [value_info(v.name, v) for v in graph.inputs],
        [value_info(n, v) for n, v in zip(results, graph.outputs, strict=True)],
        initializers,
    )
    imports = [helper.make_opsetid("", OPSET)]
    return helper.make_model(
        made, opset_imports=imports, ir_version=IR_VERSION, producer_name="graphc"
    )
