"""The graph of a saved program: its text is read as that of a stranger.

Names and lines of the user's code become comments and symbols of generated C++, so a graph from a
file may hold no control characters and no backslashes in any. It is made of ops alone: kernels are
made from it here, by the passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from string import Formatter

from graphc.base.dtypes import Array
from graphc.files.safetensors import FormatError
from graphc.ir import Graph, Node, Type, Value, verify
from graphc.ops.base import Pointwise
from graphc.ops.fused import KernelNode
from graphc.ops.loops.scan import bodies
from graphc.text import parse

NODES = 1_000_000
"""The most nodes of a graph in a file."""
ELEMENTS = 1 << 40
"""The most elements of a value."""

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\\\u2028\u2029]")


def read_graph(text: str, constants: Mapping[str, Array]) -> Graph:
    """Return the graph of a text in a file, verified.

    Raises:
        FormatError: It holds what only a damaged or malicious file does.
        GraphError: The text is no graph, or the graph is not valid.
    """
    graph = parse(text, constants)
    check_graph(graph)
    for part in (graph, *bodies(graph)):
        verify(part)
    return graph


def check_graph(graph: Graph) -> None:
    """Raise FormatError for a graph that no file may hold; see the head of this file."""
    count = 0
    for part in (graph, *bodies(graph)):
        count += len(part.nodes)
        for word in _words(part):
            if _FORBIDDEN.search(word) is not None:
                raise FormatError(f"control characters or backslashes in the name {word!r}")
        for node in part.nodes:
            if _has_other_operands(node):
                raise FormatError(f"{node.op.name} of {len(node.inputs)} inputs")
            if isinstance(node, KernelNode):
                raise FormatError(f"a kernel, {node.op.kernel!r}, in place of ops")
        for kind in _types(part):
            if kind.size > ELEMENTS:
                raise FormatError(f"{kind} has more than {ELEMENTS} elements")
            if kind.layout.axis is not None:
                raise FormatError(f"{kind} has a layout")
    if count > NODES:
        raise FormatError(f"{count} nodes, more than {NODES}")


def _has_other_operands(node: Node) -> bool:
    """Whether a pointwise op of ours has another number of inputs than its expression names."""
    if not isinstance(node.op, Pointwise) or node.op.is_own():
        return False
    fields = {name for _, name, _, _ in Formatter().parse(node.op.expression)}
    return len(fields & set("abcd")) != len(node.inputs)


def _values(graph: Graph) -> Iterator[Value]:
    yield from (*graph.inputs, *graph.state)
    for node in graph.nodes:
        yield from node.outputs


def _types(graph: Graph) -> Iterator[Type]:
    return (value.type for value in _values(graph))


def _words(graph: Graph) -> Iterator[str]:
    """Every name, and every text among the attributes."""
    yield graph.name
    for value in _values(graph):
        yield value.name
    for node in graph.nodes:
        yield from (node.where.module, node.where.function, *node.where.lines)
        yield from (text for text in node.op.attributes.values() if isinstance(text, str))
