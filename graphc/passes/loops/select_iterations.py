"""Write guarded scans as plain ones, whose iterations compute everything and then select.

What a skipped iteration computes is dropped, whatever it is. So kernels and plans know no branches,
and the time of a loop does not depend on data.
"""

from __future__ import annotations

from graphc.base.target import Target
from graphc.ir import Graph
from graphc.ops.loops.guards import without_guards


def select_iterations(graph: Graph, target: Target) -> Graph:
    """Replace guards of scans, nested ones too, by selections."""
    return without_guards(graph)
