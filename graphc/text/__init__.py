"""The text of graphs: `parse(graph_text(g)) == g`; writer.py describes the format."""

import graphc.ops  # noqa: F401 (the parser finds every op in the registry)
from graphc.ir import Graph
from graphc.text.parser import parse
from graphc.text.writer import INLINE, graph_text, large_constants, node_text

__all__ = ["INLINE", "graph_text", "large_constants", "node_text", "parse"]

Graph.written = graph_text
