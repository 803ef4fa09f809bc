"""Run a pipeline: each pass, then the type check, then an optional callback."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from graphc.base.messages import log
from graphc.base.target import Target
from graphc.ir import Graph, verify
from graphc.ir.failures import stage

Pass = Callable[[Graph, Target], Graph]
Hook = Callable[[str, Graph], None]


def run_passes(
    graph: Graph, target: Target, passes: Iterable[tuple[str, Pass]], hook: Hook
) -> Graph:
    """Apply the passes in order; `hook(name, graph)` sees the graph after each.

    An error inside a pass carries a note with the pass's name; a bug in one is a PlanError.
    """
    for name, function in passes:
        begin, before = time.perf_counter(), len(graph.nodes)
        try:
            with stage(name):
                changed = function(graph, target)
                if changed is not graph:
                    verify(changed)
                graph = changed
        except Exception as error:
            error.add_note(f"in pass {name}")
            raise
        spent = 1000 * (time.perf_counter() - begin)
        log("info", f"{name}: {before} -> {len(graph.nodes)} nodes in {spent:.1f} ms")
        hook(name, graph)
    return graph
