"""Attention and its gradients for attend.cuh: a block of threads per queries or keys."""

from __future__ import annotations

from typing import Any

from graphc.ir import Value
from graphc.kernels.cuda.shell import (
    BLOCKS,
    Launches,
    constant_arrays,
)
from graphc.kernels.program.attend_shape import Problem, find_problem, shape_text
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.names import Names
from graphc.kernels.program.statement import Program
from graphc.ops.fused import KernelNode

MOST_WORDS = 64
"""Of sums and scores in a thread's registers: a multiprocessor then holds two blocks."""


def lower_attend(node: KernelNode) -> Kernel:
    """The kernel of a fused node around an attention or attention_grad; every value is
    row-major. The gradients of queries, and those of keys and values, are a launch each."""
    problem = find_problem(node)
    pointers = Names(problem.arrays).pointers(problem.body)
    n, h, g, t, u, e, d = problem.extents
    results = problem.writes(pointers)
    launches = Launches(node, pointers)

    def launch(
        part: str, function: str, writes: list[str], heads: int, places: int, features: int
    ) -> None:
        rows = _rows(problem, n * heads, places, features)
        blocks = n * heads * -(-places // (16 * rows))
        lines = _call(problem, pointers, function, writes, rows)
        launches.add(lines, blocks, part, resident=1 if rows == 1 else 2)

    if problem.forward:
        launch("kernel", "forward", results, h, t, d)
    elif problem.wanted[0]:
        launch("query", "query_gradient", results[:1], h, t, e)
    if not problem.forward and any(problem.wanted[1:]):
        launch("key", "key_gradient", results[1:], g, u, e + d)
    sections = [constant_arrays(Program((), problem.arrays, {})), shape_text(problem)]
    return launches.kernel(("attend",), sections, problem.flops)


def _call(
    problem: Problem, pointers: dict[Value, str], function: str, writes: list[str], rows: int
) -> list[str]:
    reads = problem.reads(pointers)
    return [
        f"const attend::Arrays<Shape> arrays{{{', '.join(reads[:4])},",
        f"                                    {', '.join(reads[4:])}, 0}};",
        f"attend::{function}<Shape, {rows}>(arrays, {', '.join(writes)});",
    ]


def _rows(problem: Problem, heads: int, places: int, features: int) -> int:
    """Rows of a thread, of 16 that share them: as many as its registers hold sums and scores for,
    but two where four would leave much of a device idle."""
    op: Any = problem.node.op
    scores = (4 if problem.forward else 8) + (4 if op.dropout else 0)
    words = (-(-features // 16) + scores) * (2 if problem.dtype == "f64" else 1)
    rows = next((r for r in (4, 2) if r * words <= MOST_WORDS), 1)
    blocks = heads * -(-places // 64)
    return 2 if rows == 4 and blocks < BLOCKS // 2 else rows
