"""The gradients of attention by five products for attend_serialized.cuh: blocks of keys that add
to the gradients of queries in turns. Where that is worth it, and how large a block is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.cuda.shared.kernel_source import BLOCKS, Launches
from graphc.kernels.program.attend_shape import AttentionProblem

TILES = ((4, 2, 64), (4, 1, 64), (4, 1, 32))
"""Warps of a block, sixteens of keys of each, and queries of a tile. The first that fits is taken:
the more keys, the fewer terms of queries' gradients go to memory."""
MOST_WORDS = 128
"""Sums of a thread in registers: scores and their gradients fit beside them."""
FEWEST = BLOCKS // 2
"""Blocks below which multiprocessors are idle, that smaller blocks of seven products keep busy."""
MOST_BEHIND = 4
"""How many blocks of a head, that follow each other through its tiles, there may be for a tile."""
MOST_BYTES = 24 * 2**20
"""Of queries, their gradients and the terms of these, that blocks beside each other shall share:
then they are in the second-level cache of a large device."""


@dataclass(frozen=True)
class SerializedSums:
    """Blocks of `warps` warps, each with `sixteens` of 16 keys, through tiles of `queries`, of
    which `columns` are taken at once. The blocks of the heads of keys that are `together` are
    numbered by their keys first. `workspace` are bytes, 0 where a block has all keys."""

    warps: int
    sixteens: int
    queries: int
    columns: int
    together: int
    shared_bytes: int
    blocks: int
    counters: int
    workspace: int

    @property
    def keys(self) -> int:
        return 16 * self.warps * self.sixteens

    def add(self, launches: Launches, arrays: list[str], writes: list[str]) -> None:
        """The launch, of a problem with such `arrays` whose results go to `writes`."""
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
    """The blocks of a gradient that takes five products, None where seven are better: where not
    the gradients of queries and of others are wanted, where a block's sums do not fit, or where
    blocks are few, or many that follow each other through few queries."""
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
    """Bytes of a place in shared memory."""
    chunks = -(-features // 16) * size
    return 16 * (-(-chunks // 8) * 8 if chunks > 4 else 4 if chunks > 2 else chunks)


def element_bytes(problem: AttentionProblem) -> int:
    """Of an operand's element."""
    return 4 if problem.element == "tf32" else 2


def _width(features: int) -> int:
    """Features in whole fragments."""
    return -(-features // 16) * 16


def _shared_bytes(problem: AttentionProblem, warps: int, sixteens: int, queries: int) -> int:
    """Bytes of shared memory of a block, more than there are if its sums do not fit a thread."""
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
    """Queries that are taken at once: fewer where random numbers want registers too."""
    op: Any = problem.node.op
    return 16 if op.dropout and sixteens > 1 else 32


def _heads_together(problem: AttentionProblem) -> int:
    """How many heads of keys may be beside each other: a divisor of their number."""
    n, h, g, t, _, e, d = problem.extents
    of_head = h // g * t * ((e + d) * element_bytes(problem) + 4 * e)
    most = max(1, min(n * g, MOST_BYTES // max(of_head, 1)))
    return next(i for i in range(most, 0, -1) if n * g % i == 0)
