"""What is said of the tile that a contraction takes, in the dump and in the plan's notes."""

from __future__ import annotations

from graphc.kernels.cuda.bulk_tiles import BulkTile
from graphc.kernels.cuda.contract import Problem
from graphc.kernels.cuda.contract_ways import SHORT
from graphc.kernels.cuda.finishing import Finish
from graphc.kernels.cuda.patch_gradient import GradientTile
from graphc.kernels.cuda.patch_tile import PatchTile
from graphc.kernels.cuda.persistent_tile import PersistentTile
from graphc.kernels.cuda.row_tile import RowTile
from graphc.kernels.cuda.tiles import AnyTile, GroupTile, TensorTile

LoopedTile = AnyTile | PatchTile | GradientTile | RowTile | PersistentTile
PRODUCTS = {
    "half": "f16",
    "bfloat": "bf16",
    "tf32": "tf32",
    "as_bfloat": "bf16 as tf32",
    "float": "f32 in three of tf32",
}
"""What notes call them."""


def told(
    problem: Problem,
    tile: LoopedTile,
    splits: int,
    element: str,
    lack: str,
    rank: int,
    finish: Finish | None,
) -> tuple[str, str]:
    """What is said of the tile, and what the plan notes of a contraction of reduced precision."""
    batches, m, n, k = problem.sizes
    cut = f", k in {splits} parts added {finish.value}" if finish else ""
    shared = f", shared by {tile.groups} groups of threads" if tile.groups > 1 else ""
    if isinstance(tile, RowTile):
        of = f"blocks that own {tile.m} rows, so that none waits for another in a loop"
    elif isinstance(tile, PersistentTile):
        of = f"blocks of {tile.m} rows that hold their columns' operand in registers in a loop"
    elif isinstance(tile, PatchTile):
        of = (
            f"blocks that hold what {tile.lines} lines of {tile.images} images read, "
            f"{tile.m} x {tile.n} sums, {tile.k * tile.taps} of k per step{cut}"
        )
    elif isinstance(tile, GradientTile):
        of = f"blocks that hold what {tile.held_by_block}{cut}"
    else:
        of = f"a {tile.m} x {tile.n} tile of sums per block, {tile.k} of k per step{shared}{cut}"
    why = "of those tried the cheapest" if rank == 1 else f"number {rank} of those by the model,"
    product = f"{batches} x " * (batches > 1) + f"{m} x {n} sums of {k} products"
    if isinstance(tile, PatchTile):
        by, multiplied = "tensor cores", f"patches of {tile.images} x {tile.lines} lines"
    elif isinstance(tile, GradientTile):
        by, multiplied = "tensor cores", f"{tile.m} x {tile.n} channels of all taps"
    elif isinstance(tile, PersistentTile) and not tile.exact:
        by, multiplied = "tensor cores", f"{tile.m} x {tile.m} of each section"
        element = {"as_bfloat": "bfloat"}.get(element, element)  # packed where they are read
    elif isinstance(tile, TensorTile):
        by = "tensor cores by wgmma" if isinstance(tile, GroupTile) else "tensor cores"
        by += " of what TMA copies" if isinstance(tile, BulkTile) else ""
        multiplied = f"{tile.m} x {tile.n} x {tile.k}"
    else:
        narrow = any(x.element in SHORT for x in (problem.a, problem.b))
        apart = lack or "for sums so few they are estimated to be slower"
        note = f"no tensor cores: {apart}" if narrow else ""
        return f"registers, {of}: {why} for {product}", note
    note = f"{by}, products of {PRODUCTS[element]}, {multiplied}"
    return f"{by}, {of}: {why} for {product}", note
