"""What a program means before any pass has seen it, to compare compiled programs with.

The reference device plays the graph that the passes made: what a pass breaks, both sides have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import graphc
from graphc.passes.pipeline import OPTIONAL
from graphc.runtime.reference import ReferenceExecutable


def compile_before_passes(fn: Callable[..., Any], *args: Any, **options: Any) -> graphc.Program:
    """As `graphc.compile` for the reference; plays the trace, with `update` its derivative and
    update."""
    program = graphc.compile(fn, *args, device="reference", disable=OPTIONAL, **options)
    assert isinstance(program._executable, ReferenceExecutable)
    graph = program.stages["trace" if options.get("update") is None else "differentiate"]
    program._executable = ReferenceExecutable(graph, program._executable._state)
    return program
