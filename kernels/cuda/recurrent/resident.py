"""Choose tiles for products in loops whose blocks keep data on the chip for all iterations: rows of
the state (rows.cuh), or weights in registers (persistent.cuh, persistent_exact.cuh).

Persistent RNNs (Diamos et al., 2016) keep weights so, and FlashRNN (Poeppel et al., 2024) does for
products of two bytes by tensor cores, with the cell's pointwise part behind them. Each block holds
a share of the weights of all units; once per iteration the units exchange values through the
second-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphc.ir import ROW_MAJOR, Graph
from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.contract.tiles.tile import PRODUCTS, TileAnswers
from graphc.kernels.cuda.shared import patch_partition
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.cuda.shared.kernel_source import RESIDENT, SHARED_BYTES, THREADS
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.cuda.shared.patch_partition import PATCH, count
from graphc.kernels.loops.epilogues import epilogue_nest
from graphc.kernels.loops.shares import own_shares
from graphc.kernels.program.epilogue import Epilogue

NEAR_BYTES = 96 * 1024
"""Bytes of weights that stay in L1 from one iteration to the next, beside the shared memory of two
blocks: a multiprocessor of an H100 has 256 KB, of an A100 192 KB."""
MOST_KEPT = 64 * 1024
"""Bytes of weights that a block with rows of its own keeps at most: 64 registers of each thread,
half of those it has with two blocks on a multiprocessor."""
MOST_ROWS = 8
"""Rows of a block at most: each thread holds a sum of each row for several columns."""
NEIGHBOURS = 8
"""Threads that share the k of a column where weights are contiguous along k."""
ROWS_ALONE, ALONE = 1200, 2000
"""Cycles of a block besides its products, or its loads: latencies, barriers and the epilogue; with
held weights products and the sums of all warps too."""
WARPS = THREADS // 32
"""Warps of a block, which share k or columns."""
PAIRED = ("half", "bfloat", "as_bfloat")
"""C++ types of which a register holds two elements."""
MOST_HELD = 16
"""Pairs of fragments of 16 of k that a warp holds at most, of eight registers each: 128 of 255.
Twice as many of paired elements."""
MOST_SECTIONS = 5
"""Sections at most: the sums of all warps take 8 KB of shared memory for each."""
LEAST_PARTS = 3
"""Parts of k at least, so that storing sums of all columns and reading those of 16 moves fewer
bytes than reading all of k."""


class ResidentTile(TileAnswers):
    """The base of tiles for loops; `n` counts the columns of all sections."""

    n: int
    groups: ClassVar[int] = 1
    threads: ClassVar[int] = THREADS
    looped: ClassVar[bool] = True
    sums_columns: ClassVar[bool] = False

    def units(self, sections: int) -> int:
        """Columns of each of `sections`: all."""
        return self.n // sections


@dataclass(frozen=True)
class RowTile(ResidentTile):
    """A tile of rows.cuh: all `n` columns of `m` rows, which the block owns. It `keeps` the weights
    in registers for all iterations, or reads them from L1."""

    m: int
    n: int
    keeps: bool = False
    blocks: ClassVar[int] = RESIDENT
    header: ClassVar[str] = "recurrent/rows"
    template: ClassVar[str] = "RowProduct<Problem, Tile>"
    unit: ClassVar[str] = "registers"

    def kept_bytes(self, problem: Problem) -> int:
        size = problem.b.read.type.numpy_dtype.itemsize
        return problem.weights * size if self.keeps else 0

    def owned(
        self, body: Graph, problem: Problem, epilogue: Epilogue, tiles: int
    ) -> tuple[int, ...]:
        nest, values = epilogue_nest(epilogue), (*body.inputs, *body.outputs)
        own, touched = own_shares(nest, tiles), {m.name for m in nest.memory}
        multiplied = {problem.b.read.input: False, problem.a.read.input: _reads_own_rows(problem)}
        names = enumerate(epilogue.pointers[v] for v in values)
        return tuple(
            i
            for i, name in names
            if multiplied.get(i, name in touched) and (name in own or name not in touched)
        )

    def describe(self, cut: str) -> str:
        return f"blocks that own {self.m} rows, so that none waits for another in a loop"

    def __str__(self) -> str:
        return f"Rows<{self.m}, {self.threads}>"


@dataclass(frozen=True)
class PersistentTile(ResidentTile):
    """A tile of persistent.cuh: `m` rows and as many columns of each section, whose weights the
    block holds.

    Attributes:
        n: columns of all blocks and sections.
        parts: parts of k, each as long as there are columns. With several, a block has 16 of each
            part, for all columns, and a second launch adds its sums.
        exact: whether registers multiply, in float32 (persistent_exact.cuh).
        strips: parts of the columns of a product of one section. A block has 16 of each.
    """

    n: int
    parts: int = 1
    exact: bool = False
    strips: int = 1
    m: ClassVar[int] = PATCH
    blocks: ClassVar[int] = 1
    template: ClassVar[str] = ""
    """None: its launches call what they need."""

    @property
    def header(self) -> str:
        return "recurrent/persistent_exact" if self.exact else "recurrent/persistent"

    def workspace(self, rows: int) -> int:
        """Bytes of the sums of all blocks."""
        across = -(-self.n // PATCH)
        return count(rows, self.n) * across * PATCH * PATCH * 4 if self.parts > 1 else 0

    @property
    def double_buffered(self) -> bool:
        return self.parts > 1

    def kept_bytes(self, problem: Problem) -> int:
        return problem.weights * (2 if problem.b.element in PAIRED else 4)

    def declaration(self) -> list[str]:
        return []

    def add_launches(
        self,
        launches: Launches,
        problem: Problem,
        epilogue: Epilogue,
        operands: Sequence[str],
        whole: str,
    ) -> bool:
        """Add the launch, or those of partial sums and of what adds them, and what blocks hold."""
        (_, m, columns, _), body, (rows, weights) = problem.sizes, launches.node.body, operands
        n = columns // self.strips
        across, blocks = -(-n // PATCH), count(m, n)
        a, b = (x.read.input for x in (problem.a, problem.b))
        name = "Exact" if self.exact else "Persistent"
        own = patch_partition.owned(body, epilogue.program, epilogue.pointers, (m, n))
        if self.parts == 1:
            product = f"{name}Product<Problem, {self.strips}>"
            launches.add(
                [f"multiply_held<{product}>(block, {rows}, {weights}, {whole});"],
                blocks,
                owned=tuple(i for i in own if i not in (a, b)),
            )
        else:
            product = f"{name}Parts<Problem, {self.parts}>"
            partial = "const auto partial = reinterpret_cast<float*>(workspace);"
            parts = f"multiply_held<{product}>(block, {rows}, {weights}, partial);"
            # Arguments that a launch does not touch at all are owned too.
            values = range(len(body.inputs) + len(body.outputs))
            others = (b,) if _reads_own_rows(problem) else (a, b)
            launches.add([partial, parts], blocks, owned=tuple({*values} - {*others}))
        launches.set_patches((m, n), multiple=across)
        launches.add_resident_loader(
            [f"{product}::hold(held, block, {weights});"], f"{product}::Weights"
        )
        if self.parts > 1:
            finish = f"{product}::finish(block, partial, {whole});"
            launches.add([partial, finish], blocks, "finish", owned=own)
            launches.set_patches((m, n), multiple=across)
        return True

    def multiplied(self, element: str) -> tuple[str, str, str] | None:
        if self.exact:
            return None
        packed = "bfloat" if element == "as_bfloat" else element  # where they are read
        return "tensor cores", PRODUCTS[packed], f"{self.m} x {self.m} of each section"

    def describe(self, cut: str) -> str:
        rows = f"blocks of {self.m} rows that hold their columns' operand"
        return f"{rows} in registers in a loop"


def row_tile(m: int, n: int, k: int, sections: int, along_k: bool) -> tuple[float, RowTile] | None:
    """The tile of a product of floats in a loop whose blocks own as many rows of results as they
    have threads for, or fewer so that there are more blocks, with the cycles that it takes; None
    where its rows are no whole blocks, or what its columns read does not stay near. That lies
    `along_k`, or along columns."""
    columns, operand = n * sections, n * sections * k * 4
    across = THREADS // NEIGHBOURS if along_k else columns // 4
    if not across or columns % across or THREADS % across or k % (4 * THREADS // across):
        return None
    if THREADS % n or THREADS // n > MOST_ROWS or operand > NEAR_BYTES:
        return None
    groups = 1 if along_k else THREADS // across
    keeps = operand <= MOST_KEPT
    found = []
    for rows in range(1, THREADS // n + 1):
        whole = m % rows == rows * n % 32 == 0
        if not whole or rows * (k + groups * columns) * 4 > SHARED_BYTES:
            continue
        beside = -(-(m // rows) // GPU.multiprocessors)
        cycles = beside * max(
            0 if keeps else operand / GPU.l1_rate, rows * columns * k / GPU.multiply_adds
        )
        cycles += -(-beside // RESIDENT) * ROWS_ALONE
        found.append((cycles, RowTile(rows, columns, keeps)))
    # Of the same work the most blocks: two on a multiprocessor hide each other's latencies.
    return min(found, key=lambda each: (each[0], each[1].m), default=None)


def _reads_own_rows(problem: Problem) -> bool:
    """Whether the rows' operand has a row for each row, with all of k side by side."""
    a, (_, m, _, k) = problem.a, problem.sizes
    steps = [[(f.step, f.stride) for f in factors] for factors in (a.outer, a.depth)]
    plain = a.read.type.layout == ROW_MAJOR and a.read.offset == 0 and a.read.type.size == m * k
    return plain and steps == [[(1, k)], [(1, 1)]]


def persistent_tile(
    m: int, n: int, k: int, sections: int, element: str = "tf32"
) -> tuple[float, PersistentTile] | None:
    """The tile of a product in a loop, with the cycles that it takes there; None where a block's
    part of the columns' operand does not fit its registers, or all parts do not fit the
    multiprocessors. Tensor cores take less time than what they read; registers, which multiply
    "float", take theirs, and none where the operand is so small that it stays in L1: loops of
    float32 then are parts of launches that do more."""
    exact, most_held = element == "float", MOST_HELD * (2 if element in PAIRED else 1)
    if exact and n * sections * k * 4 <= NEAR_BYTES:
        return None
    parts = k // n if sections == 1 and k % n == 0 and k // n >= LEAST_PARTS else 1
    if max(sections, parts) > MOST_SECTIONS:
        return None
    shares = -(-(n if parts > 1 else k) // (PATCH * WARPS))
    moved = 2 * n if parts > 1 else k
    divided = range(1, MOST_SECTIONS + 1) if sections == 1 and parts == 1 else (1,)
    best: tuple[float, PersistentTile] | None = None
    for strips in (s for s in divided if n % s == 0):
        across = -(-n // (strips * PATCH))
        if shares * max(sections, parts, strips) > most_held or across > GPU.multiprocessors:
            continue
        blocks = count(m, n // strips)
        rounds = -(-blocks // (GPU.multiprocessors // across * across))
        products = PATCH * PATCH * sections * strips * k / GPU.multiply_adds if exact else 0.0
        cycles = rounds * (ALONE + products) + blocks * PATCH * moved * 4 / GPU.l2_rate
        if best is None or cycles < best[0]:
            best = cycles, PersistentTile(n * sections, parts, exact, strips)
        if rounds == 1:
            break
    return best
