"""Gradients of attention with five products for attend_serialized.cuh: blocks of keys add to the
gradients of queries in turns. This module decides where that pays and how large a block is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.cuda.shared.kernel_source import BLOCKS
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.program.attend_shape import AttentionProblem

TILES = ((4, 2, 64), (4, 1, 64), (4, 1, 32))
"""Tiles as (warps of a block, groups of 16 keys per warp, queries), the first that fits being
chosen: more keys mean fewer partial gradients of queries in memory."""
MOST_WORDS = 128
"""The most registers of sums per thread; scores and their gradients fit beside them."""
FEWEST = BLOCKS // 2
"""Blocks below which multiprocessors idle, where smaller blocks with seven products do better."""
MOST_BEHIND = 4
"""The most blocks of a head per tile of queries, which follow each other through the tiles."""
MOST_BYTES = 24 * 2**20
"""The most bytes of queries, their gradients and partial gradients that concurrent blocks share, to
stay in the second-level cache of a large device."""


@dataclass(frozen=True)
class SerializedSums:
    """The tiling of a gradient with five products."""

    warps: int
    """Warps of a block."""
    sixteens: int
    """Groups of 16 keys per warp."""
    queries: int
    """Queries of a tile."""
    columns: int
    """Queries per step."""
    together: int
    """Heads of keys whose blocks are numbered by key first, so that they run concurrently."""
    shared_bytes: int
    blocks: int
    counters: int
    """Ticket counters of the launch."""
    workspace: int
    """Bytes of partial gradients; 0 where a block has all keys."""

    @property
    def keys(self) -> int:
        """Keys of a block."""
        return 16 * self.warps * self.sixteens

    def add(self, launches: Launches, arrays: list[str], writes: list[str]) -> None:
        """Add the launch for a problem with `arrays`, whose results go to `writes`."""
        counters = launches.counters(self.counters) if self.workspace else "nullptr"
        workspace = "reinterpret_cast<float*>(workspace)" if self.workspace else "nullptr"
        sizes = (self.warps, self.sixteens, self.queries, self.columns, self.together)
        lines = [
            *arrays,
            f"using Work = attend::TurnGradient<Shape, {', '.join(map(str, sizes))}>;",
            f"static_assert(Work::shared_bytes == {self.shared_bytes});",
            f"Work::run(dynamic_shared, arrays, {', '.join(writes)}, {workspace}, {counters});",
        ]
        threads, shared = 32 * self.warps, self.shared_bytes
        launches.add(lines, self.blocks, threads=threads, resident=2, shared=shared)


def serialized_of(problem: AttentionProblem) -> SerializedSums | None:
    """The tiling for five products; None where seven are better.

    That is where not all gradients are used, where a block's sums do not fit, or where there are
    few blocks, or many that follow each other through few queries.
    """
    if problem.forward or not problem.used_results[0] or not any(problem.used_results[1:]):
        return None
    n, h, g, t, u, e, _ = problem.extents
    for sizes in TILES:
        warps, sixteens, queries = sizes
        shared = _shared_bytes(problem, warps, sixteens, queries)
        if shared > GPU.block_shared:
            continue
        of_head, tiles = -(-u // (16 * warps * sixteens)), -(-t // queries)
        if n * g * of_head < FEWEST or of_head > MOST_BEHIND * tiles * (h // g):
            return None
        workspace = 4 * n * h * tiles * queries * _width(e) if of_head > 1 else 0
        blocks, counters = n * g * of_head, n * h * tiles
        columns, together = _columns(problem, sixteens), _heads_together(problem)
        return SerializedSums(*sizes, columns, together, shared, blocks, counters, workspace)
    return None


def line_bytes(features: int, size: int) -> int:
    """Bytes of a row in shared memory."""
    chunks = -(-features // 16) * size
    return 16 * (-(-chunks // 8) * 8 if chunks > 4 else 4 if chunks > 2 else chunks)


def element_bytes(problem: AttentionProblem) -> int:
    """Bytes of an operand's element."""
    return 4 if problem.element == "tf32" else 2


def _width(features: int) -> int:
    """Features rounded up to whole fragments."""
    return -(-features // 16) * 16


def _shared_bytes(problem: AttentionProblem, warps: int, sixteens: int, queries: int) -> int:
    """Bytes of shared memory of a block; more than available if its sums do not fit a thread."""
    *_, e, d = problem.extents
    keys, size, width = 16 * warps * sixteens, element_bytes(problem), _width(e)
    words = sixteens * (width + _width(d)) // 2
    parts = 32 if width % 32 == 0 else 64  # queries that a block's warps share
    if words > MOST_WORDS or queries % parts:
        return GPU.block_shared + 1
    line = line_bytes(e, size) + line_bytes(d, size)
    exchanged = keys * line_bytes(queries, 2) if size == 2 else queries * line_bytes(keys, 4)
    return keys * line + 2 * queries * (line + 8) + exchanged


def _columns(problem: AttentionProblem, sixteens: int) -> int:
    """Queries per step; fewer where random numbers need registers too."""
    op: Any = problem.node.op
    return 16 if op.dropout and sixteens > 1 else 32


def _heads_together(problem: AttentionProblem) -> int:
    """Heads of keys that may run concurrently: a divisor of their number."""
    n, h, g, t, _, e, d = problem.extents
    of_head = h // g * t * ((e + d) * element_bytes(problem) + 4 * e)
    most = max(1, min(n * g, MOST_BYTES // max(of_head, 1)))
    return next(i for i in range(most, 0, -1) if n * g % i == 0)
