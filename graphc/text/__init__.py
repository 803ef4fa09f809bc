"""Graph <-> text, exact inverses: `parse(graph_text(g)) == g`. writer.py says how it looks."""

import graphc.ops  # noqa: F401 (the parser finds every op in the registry)
from graphc.ir import Graph
from graphc.text.parser import parse
from graphc.text.writer import INLINE, graph_text, large_constants, node_text

__all__ = ["INLINE", "graph_text", "large_constants", "node_text", "parse"]

Graph.written = graph_text
