"""Divide the rows and columns of a reduction among threads and blocks; see reduce.cuh.

A row is a kept index, its columns are the reduced ones. Elements move in runs of 16 bytes where
neighbours in memory, columns or rows, are whole aligned runs in all reads and writes. A thread
keeps what it reads of a short row in registers for all loops. Where rows are few, the columns are
split among blocks. Then each loop of the body is a launch, which begins by combining the partial
results of the loops before it, in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphc.ir import DTYPES, Value
from graphc.kernels.cuda.shared.kernel_source import BLOCKS, SHARED_BYTES, THREADS, WARP
from graphc.kernels.cuda.shared.runs import NARROW_RUN, RUN, aligned
from graphc.kernels.loops.rewrites import in_sum_order, rows_by, rows_in_runs
from graphc.kernels.loops.rows import Rows
from graphc.kernels.program.body.reduce import Reduce, ThreadOrder
from graphc.kernels.program.body.statement import Address, Load, Statement, Store

LEAST_COLUMNS = 8
"""The fewest columns, or runs, per thread that a split is worth."""
LEAST_ACROSS = 8
"""The fewest neighbouring threads where rows are contiguous; with runs of 16 bytes they read one
line of memory."""
UNSPLIT_COLUMNS = 32
"""Columns per thread up to which adding them is faster than a second launch."""
MANY_SPLITS = 64
"""Parts of a row from which narrower blocks read less: each combines the parts of its own rows."""
HELD_BYTES = 128
"""The most bytes of a row per thread in registers: half of those with 1024 threads per
multiprocessor."""
FEW_BLOCKS = 66
"""Blocks that are few enough to be doubled, with doubled threads: half the multiprocessors of a
large device."""
KEEPING_THREADS, KEEPING_ALONG = 512, 256
"""Threads of a block that keeps its columns, and how many of them share a column (`KEEPING_ALONG`):
with runs of 16 bytes they read sectors of 32."""
KEPT_BYTES = 256
"""Bytes of registers for the loads that such a thread keeps: half of its registers."""
KEPT_BESIDE = 480
"""Bytes of registers for these loads, the sums of two threads that are combined, and values per
row; beyond, registers spill."""
KEPT_SHARED = 80 << 10
"""Bytes of shared memory for kept loads. With the sums they fit the 96 KiB that every GPU of
compute capability 8.0 and newer has."""
ALONE_BYTES = 128 << 10
"""Bytes that a block loads in the time of a second launch, if few others load."""
MOST_IN_TURN = 8
"""The most results of threads that a thread adds one after another."""
MOST_THREADS = 1024
"""Threads of a block with one row."""


@dataclass(frozen=True)
class Shape:
    """How rows and columns are divided among threads and blocks."""

    rows: int
    """Rows of the reduction."""
    columns: int
    """Columns of a row."""
    across: int
    """Rows, or runs of rows, of a block."""
    along: int
    """Threads along a row, each with a column or a run of columns."""
    rows_apart: bool
    """Whether neighbouring threads have neighbouring columns; else neighbouring rows."""
    splits: int
    """Blocks that share a row."""
    length: int = 1
    """Elements of a run of columns, if `rows_apart`, or of rows; 1 for single elements."""
    register_steps: int = 0
    """Steps through a row whose loads a thread keeps in registers."""
    shared_steps: int = 0
    """Further steps whose loads it keeps in shared memory."""

    @property
    def keeps_row(self) -> bool:
        """Whether a thread loads its row once, except for what exceeds the memory for it."""
        return self.register_steps > 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.across * self.along

    @property
    def order(self) -> ThreadOrder:
        """The order in which reduce.cuh combines a row's elements."""
        lanes = min(self.along, WARP)
        trees: tuple[int, ...] = (lanes,)
        if not self.rows_apart:
            lanes = WARP // self.across if self.across < WARP <= self.threads else 1
            trees = (lanes, lanes) if self.along // lanes > MOST_IN_TURN else (lanes,)
        run = self.length if self.rows_apart else 1
        return ThreadOrder(self.along, run, trees, self.splits)

    @property
    def blocks(self) -> int:
        """Blocks that divide the rows."""
        return -(-self.rows // (self.across * (1 if self.rows_apart else self.length)))


def choose_shape(found: Rows) -> Shape:
    """The division of rows and columns: neighbouring threads read neighbours in memory, and columns
    are split where rows alone do not fill a large device."""
    kept, reduced, extents = found.kept_axes, found.reduced_axes, found.domain.extents
    accesses = found.loop_program.accesses
    rows, columns = (math.prod(extents[d] for d in axes) for axes in (kept, reduced))
    read = [math.prod(n for n, s in zip(extents, a.strides, strict=True) if s) for a in accesses]
    """The elements of each operand; an operand with one value per row has few."""

    def along_axis(axis: int) -> int:
        return sum(n for n, a in zip(read, accesses, strict=True) if a.strides[axis] == 1)

    by_column = along_axis(reduced[-1]) if columns > 1 else 0
    by_row = along_axis(kept[-1]) if rows > 1 else 0
    rows_apart = columns > 1 and by_column >= by_row
    if rows_apart:
        length = _run_length(found, reduced[-1])
        return _of_rows(rows, columns, length, _bytes_of_column(found))
    length = _run_length(found, kept[-1]) if rows > 1 else 1
    shape = _of_columns(rows, columns, length, _results(found))
    if shape.splits == 1:
        return shape
    if 2 * THREADS * _results(found) > SHARED_BYTES:  # of so many sums there is no room beside them
        return shape
    beside = length * (2 * _results(found) + _bytes_of_row(found))
    return _keeping_columns(rows, columns, length, reloaded_bytes(found, length), beside) or shape


def scheduled(found: Rows, shape: Shape) -> Rows:
    """The loops of blocks with `across` rows, or runs of rows, whose elements threads share."""
    nest = rows_by(found.nest, "block", shape.across, "thread")
    if shape.length > 1:
        nest = rows_in_runs(nest, shape.length, not shape.rows_apart)
    return replace(found, nest=in_sum_order(nest, shape.order))


def shape_behind(found: Rows) -> Shape | None:
    """The division of contiguous rows in runs whose first sums are known: as many blocks as fill a
    device twice. None where rows are not contiguous."""
    kept, reduced, extents = found.kept_axes, found.reduced_axes, found.domain.extents
    rows, columns = (math.prod(extents[d] for d in axes) for axes in (kept, reduced))
    if not kept or not found.loops or _run_length(found, kept[-1]) != RUN:
        return None
    across, along = LEAST_ACROSS, THREADS // LEAST_ACROSS
    blocks = -(-rows // (RUN * across))
    splits = max(1, min(-(-columns // along), BLOCKS // blocks))
    return Shape(rows, columns, across, along, False, splits, RUN)


def values_of(found: Rows) -> dict[str, Value]:
    """The values whose memory the body accesses, by pointer."""
    return {name: value for value, name in found.pointers.items()}


def plain_address(statement: Statement, values: Mapping[str, Value]) -> Address | None:
    """The address of an unconditional load or store; None for other statements."""
    if not isinstance(statement, Load | Store) or not isinstance(statement.arguments[0], Address):
        return None
    address = statement.arguments[0]
    return address if address.access and address.pointer in values else None


def result_bytes(sum: Reduce) -> int:
    """Bytes of a result in whole words, so that lanes can exchange it."""
    size = max(4, DTYPES[sum.dtype].itemsize)
    return 4 * size if sum.combine == "deviations" else size


def _of_rows(rows: int, columns: int, length: int, column_bytes: int) -> Shape:
    """The division where neighbouring threads have neighbouring columns, each with `column_bytes`
    of loads."""
    runs = columns // length
    least = min(32, _power(runs))

    def held_bytes(along: int) -> int:
        return -(-runs // along) * length * column_bytes

    along = least
    while along < THREADS and rows * along < BLOCKS * THREADS and 2 * along <= runs:
        along *= 2
    while along < MOST_THREADS and held_bytes(along) > HELD_BYTES:
        along *= 2
    if 0 < held_bytes(along) <= HELD_BYTES:
        across = max(1, THREADS // along)
        return Shape(rows, columns, across, along, True, 1, length, -(-runs // along))
    along = least
    while (
        along < THREADS
        and 8 * along <= runs
        and (rows * along < BLOCKS * THREADS or runs > 64 * along)
    ):
        along *= 2
    across = THREADS // along
    splits = _splits(-(-rows // across), runs, along)
    return Shape(rows, columns, across, along, True, splits, length)


def _of_columns(rows: int, columns: int, length: int, result: int) -> Shape:
    """The division where neighbouring threads have neighbouring rows or runs of rows, each with
    `result` bytes of sums."""
    places = rows // length
    widest = 32 if length == 1 else LEAST_ACROSS
    along = (
        1 if columns <= LEAST_COLUMNS else THREADS // min(widest, max(LEAST_ACROSS, _power(places)))
    )
    across = THREADS // along
    blocks = -(-places // across)
    narrow, wide = across // 2, 4 * along
    few = along > 1 and blocks < FEW_BLOCKS and columns >= along * LEAST_COLUMNS
    if few and columns <= wide * LEAST_COLUMNS and narrow * wide * length * result <= SHARED_BYTES:
        return Shape(rows, columns, narrow, wide, False, 1, length)
    if columns <= along * UNSPLIT_COLUMNS:
        return Shape(rows, columns, across, along, False, 1, length)
    splits = _splits(blocks, columns, along)
    if splits > MANY_SPLITS:
        across, along = narrow, 2 * along
        splits = _splits(-(-places // across), columns, along)
    return Shape(rows, columns, across, along, False, splits, length)


def _keeping_columns(
    rows: int, columns: int, length: int, step_bytes: int, other_bytes: int
) -> Shape | None:
    """Blocks that keep nearly all of the loads of their columns for later loops.

    A thread loads `step_bytes` per step and has `other_bytes` of results and row values in
    registers. None where that does not fit, or where the device's threads have less to load.
    """
    across, along = KEEPING_THREADS // KEEPING_ALONG, KEEPING_ALONG
    blocks, steps = -(-rows // (length * across)), -(-columns // along)
    if not step_bytes or length == 1:
        return None
    own = max(0, min(steps, min(KEPT_BYTES, KEPT_BESIDE - other_bytes) // step_bytes))
    shared = min(steps - own, KEPT_SHARED // (KEEPING_THREADS * step_bytes))
    most = steps if blocks >= FEW_BLOCKS else ALONE_BYTES // (KEEPING_THREADS * step_bytes)
    if own == 0 or steps > most or (own + shared) * 4 < steps * 3:
        return None
    return Shape(rows, columns, across, along, False, 1, length, own, shared)


def reloaded_bytes(found: Rows, length: int) -> int:
    """Bytes of registers for a step's loads, if several loops load some of it; else 0."""
    values = values_of(found)
    loads = [
        {
            address
            for s in loop.body.statements
            if isinstance(s, Load) and (address := plain_address(s, values))
        }
        for loop in found.loops
    ]
    if sum(map(len, loads)) == len(set().union(*loads)):
        return 0
    sizes = (values[a.pointer].type.numpy_dtype.itemsize * length for a in set().union(*loads))
    return sum(-(-size // 16) * 16 for size in sizes)


def _splits(blocks: int, steps: int, along: int) -> int:
    """Blocks that share each row, of `steps` columns or runs."""
    most = steps // (along * LEAST_COLUMNS)
    return max(1, min(most, BLOCKS // (blocks or 1)))


def _run_length(found: Rows, inner: int) -> int:
    """Neighbours along axis `inner` that move at once. 1 where some element that varies along it is
    not in whole aligned runs, or where a block has no room for the results of that many rows."""
    values = values_of(found)
    addresses = [a for s in found.loop_program.statements if (a := plain_address(s, values))]
    moved = [
        (a.access, values[a.pointer]) for a in addresses if a.access and a.access.strides[inner]
    ]
    if not moved or not found.domain.size:
        return 1
    widest = max(value.type.numpy_dtype.itemsize for _, value in moved)
    results = 0 if inner in found.reduced_axes else THREADS * _results(found)
    for length in (NARROW_RUN, RUN) if widest <= 2 else (RUN,):
        whole = found.domain.extents[inner] % length == 0 and results * length <= SHARED_BYTES
        if whole and all(aligned(access, value, inner, length) for access, value in moved):
            return length
    return 1


def _results(found: Rows) -> int:
    """Bytes of a row's sums."""
    return sum(result_bytes(s) for loop in found.loops for s in loop.sums)


def _bytes_of_column(found: Rows) -> int:
    """Bytes that loops read per column, each element of memory once."""
    values = values_of(found)
    loads = [s for loop in found.loops for s in loop.body.statements if isinstance(s, Load)]
    addresses = {a for s in loads if (a := plain_address(s, values))}
    return sum(values[a.pointer].type.numpy_dtype.itemsize for a in addresses)


def _bytes_of_row(found: Rows) -> int:
    """Bytes that loops read once per row."""
    values = values_of(found)
    loads = [s for loop in found.loops for s in loop.before if isinstance(s, Load)]
    addresses = {a for s in loads if (a := plain_address(s, values))}
    return sum(values[a.pointer].type.numpy_dtype.itemsize for a in addresses)


def _power(number: int) -> int:
    """The least power of two not below `number`."""
    return 1 << max(number - 1, 0).bit_length()
