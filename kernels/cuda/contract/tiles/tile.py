"""The interface of all tiles of a contraction, and the number of tiles of a product.

A tile is the share of the sums that one block computes, and how: in registers, by tensor cores, by
warp groups, with pixels held in shared memory, or with rows or weights kept for the iterations of a
loop. Each kind is a frozen dataclass with `m` rows and `n` columns of sums, `k` of a step,
`threads` of a block, `blocks` that a multiprocessor holds, `groups` of threads that share a step,
the `header` that defines its `template`, and the answers below where they differ from those here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from graphc.ir import Graph
from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.contract.split_k import Partial
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.program.epilogue import Epilogue
from graphc.kernels.program.kernel import TensorMap

PRODUCTS = {
    "half": "f16",
    "bfloat": "bf16",
    "tf32": "tf32",
    "as_bfloat": "bf16 as tf32",
    "float": "f32 in three of tf32",
}
"""What notes call the products of two elements."""


class Sized(Protocol):
    """The sums of a tile."""

    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def cluster(self) -> int: ...
    def units(self, sections: int) -> int: ...


def tiles_below(tile: Sized, rows: int) -> int:
    """Tiles of so many rows, whole clusters of them."""
    return -(-rows // (tile.m * tile.cluster)) * tile.cluster


def tiles_of(tile: Sized, batches: int, m: int, n: int, sections: int = 1) -> int:
    """Tiles of so many products of `m` rows and, in each of so many sections, `n` columns."""
    return tiles_below(tile, m) * -(-n // tile.units(sections)) * batches


class Splittable(Sized, Protocol):
    """Whose sums' parts of k may be added by blocks."""

    @property
    def draws(self) -> bool: ...
    @property
    def clusters(self) -> bool: ...


def parts_of(tile: Splittable, tiles: int, parts: int, sums: int, itemsize: int) -> Partial:
    """The `parts` of k of so many `sums` in so many `tiles`, of `itemsize` bytes."""
    draws = tile.draws and itemsize % 4 == 0
    return Partial(parts, sums, itemsize, tiles, tile.m * tile.n, draws, tile.clusters)


class TileAnswers:
    """The answers that most tiles give."""

    unit: ClassVar[str] = "tensor cores"
    """What multiplies: "registers", "tensor cores" or "wgmma"."""
    by: ClassVar[str] = "tensor cores"
    """The same, as notes say it."""
    clusters: ClassVar[bool] = False
    """Whether blocks of a cluster may add what each has of a tile (cluster_sums.cuh)."""
    looped: ClassVar[bool] = False
    """Whether blocks own rows, or keep weights, for all iterations of a loop."""
    interleaved: ClassVar[bool] = False
    """Whether a tile has some columns of each section."""
    sums_columns: ClassVar[bool] = True
    """Whether its blocks can add up columns of the output."""
    size_name: ClassVar[str] = ""
    """What the template calls its bytes of shared memory; "" where it has no such constant."""

    @property
    def draws(self) -> bool:
        """Whether the last block of a tile may add what others have of it (tickets.cuh): a thread
        has sums of its own, and registers for as many besides."""
        return False

    @property
    def cluster(self) -> int:
        """Blocks, below each other, that read the same columns once."""
        return 1

    @property
    def keeps(self) -> bool:
        """Whether blocks read the weights once, before a loop, and keep them."""
        return False

    @property
    def double_buffered(self) -> bool:
        """Whether iterations of a loop write its workspace in two places in turn."""
        return False

    def tiles(self: Sized, problem: Problem) -> int:
        """The blocks of a launch, for one part of k."""
        batches, m, n, _ = problem.sizes
        return tiles_of(self, batches, m, n, problem.nest.section_count)

    def dynamic_bytes(self, problem: Problem) -> int:
        """Bytes of shared memory that a launch gives each block."""
        return 0

    def maps(self, problem: Problem) -> Mapping[str, TensorMap]:
        """What TMA is told of the operands, by the names of the kernel's parameters."""
        return {}

    @property
    def header(self) -> str:
        """The header of its template."""
        return "contract/contract"

    @property
    def template(self) -> str:
        """The template of what a block computes."""
        return "Contract<Problem, Tile>"

    def call(self, operands: Sequence[str], maps: Sequence[str]) -> str:
        """The call that computes a tile, without its last argument, the epilogue."""
        run = "run_in(block, dynamic_shared" if self.size_name else "run(block"
        return f"{self.template}::{run}, {', '.join(operands)}"

    def text(self) -> list[str] | None:
        """The struct that says where the pixels of an image lie, for tiles that hold them; None
        where the rows' operand is read row by row."""
        return None

    def declaration(self) -> list[str]:
        """The lines that name the tile."""
        return [f"using Tile = {self};"]

    def workspace(self, rows: int) -> int:
        """Bytes of workspace of a product of so many rows, besides parts of k."""
        return 0

    def kept_bytes(self, problem: Problem) -> int:
        """Bytes of weights that all blocks together keep in a loop."""
        return 0

    def owned(
        self, body: Graph, problem: Problem, epilogue: Epilogue, tiles: int
    ) -> tuple[int, ...]:
        """The arguments of the kernel of which each block touches its own rows alone."""
        return ()

    def add_launches(
        self,
        launches: Launches,
        problem: Problem,
        epilogue: Epilogue,
        operands: Sequence[str],
        whole: str,
    ) -> bool:
        """Add the launches, if they are not those of most tiles; whether that was so. `operands`
        and `whole` are the text of the operands and of the epilogue."""
        return False

    def order(self, element: str, rows: int) -> str:
        """In which order it adds the products of `element`, of which input `rows` has the rows:
        tiles of one order make the same bits. "" where nothing is promised."""
        return ""

    def partials(self: Sized, rows: int, strips: int) -> int:
        """Partial sums of each column of so many rows, where `strips` tiles lie side by side."""
        return -(-rows // self.m)

    def room(self, size: int) -> float:
        """Bytes of shared memory in which its threads' sums of columns meet, with operands of
        `size` bytes."""
        return math.inf

    def worth(self, skipping: bool) -> float:
        """The share of another tile's time that it must not exceed to be taken in its place, of one
        that is `skipping` steps or takes all."""
        return 1.0

    @property
    def shape(self) -> str:
        """The shape of a block's products, as notes say it; "" of registers, which change
        nothing."""
        return ""

    def multiplied(self, element: str) -> tuple[str, str, str] | None:
        """What notes say of products of `element`: by what, of which products, and in which shape.
        None of registers."""
        return (self.by, PRODUCTS[element], self.shape) if self.shape else None

    def describe(self, cut: str) -> str:
        """The tile in words; `cut` says how k is cut."""
        raise NotImplementedError


@dataclass(frozen=True)
class RingTile(TileAnswers):
    """`m` x `n` sums per block, `tm` x `tn` of them per thread, or per warp of tensor cores; `k`
    per step, whose operands are one of `stages` pairs of shared tiles; `blocks` per multiprocessor.
    `speed` is what it reaches of the best one."""

    m: int
    n: int
    k: int
    tm: int
    tn: int
    stages: int
    blocks: int
    speed: float
    clusters: ClassVar[bool] = True
    interleaved: ClassVar[bool] = True

    @property
    def threads(self) -> int:
        """Of a block."""
        raise NotImplementedError

    def ring_bytes(self, size: int) -> int:
        """Of all stages, with operands of `size` bytes."""
        return self.stages * (self.m + self.n) * self.k * size

    def room(self, size: int) -> float:
        return self.ring_bytes(size)

    def copying(self, size: int, each: int) -> float:
        """Instructions of a thread that copies operands for a step, 16 bytes at a time, `each` for
        that."""
        return each * (self.m + self.n) * self.k * size / 16 / self.threads

    def describe(self, cut: str) -> str:
        return f"a {self.m} x {self.n} tile of sums per block, {self.k} of k per step{cut}"
