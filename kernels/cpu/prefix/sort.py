"""Lower sort: the first elements of rows in order, with their indices."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.base.target import Target
from graphc.ir import DTYPES
from graphc.kernels.cpu.shared.kernel_source import (
    argument_order,
    array_text,
    chunk_count,
    entry,
    make_kernel,
    pointer_lines,
    share,
)
from graphc.kernels.cpu.shared.loop_printer import along_lines, rows_text
from graphc.kernels.loops.language import Nest
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.rewrites import along_last, bind
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import Domain
from graphc.kernels.program.axis import AxisNest, lane_axes, make_axis_nest, only_node
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import REGISTER_TYPES
from graphc.ops.sort import Sort

SHORT = 256
"""The longest rows that are sorted in the lanes, if there are enough rows."""
ENOUGH_STRIPS = 4
"""Registers of long rows that are worth reading together."""
BUFFER = 48
"""The fewest elements of a selection's buffer."""
MOST_CHUNKS = 32
"""The most chunks of long rows, each of which has memory of its own."""
MOST_BYTES = 1 << 25
"""The most bytes of all chunks' memory, where each holds a register of rows."""


@dataclass(frozen=True)
class SortStrategy:
    """The function of sort.h that sorts, and how rows are divided."""

    name: str
    """The function of sort.h."""
    space: AxisNest
    """The rows and the axis."""
    units: int
    """Rows, or registers of rows."""
    chunks: int
    """Chunks of the kernel."""
    capacity: int = 0
    """Entries of a buffer."""
    buffers: int = 0
    """Buffers of each chunk."""


def lower_sort(node: KernelNode, target: Target) -> Kernel:
    """The kernel of a body with one sort of row-major inputs, read through views."""
    inner, op = only_node(node, Sort)
    x = inner.inputs[0]
    check_counts(node, elements_per_row=x.type.shape[op.axis])
    along, *across = (
        make_axis_nest(node, inner, Domain(x.type.shape, lane, target.lanes))
        for lane in lane_axes(x.type.shape, op.axis)
    )
    way = _choose(op, along, across[0] if across and across[0].waste <= 2 else None)
    nest = schedule(way.space)
    verify_nest(nest)
    arrays = array_text(way.space.program.arrays)
    sections = [arrays, rows_text(nest), _shell(node, op, way, nest)]
    workspace = way.chunks * way.buffers * way.capacity * _entry_bytes(along)
    return make_kernel(node, sections, (way.chunks,), workspace, x.type.size)


def schedule(space: AxisNest) -> Nest:
    """Chunks of rows, or of registers of them."""
    return along_last(bind(plain_nest(space), "chunk"))


def _choose(op: Sort, along: AxisNest, across: AxisNest | None) -> SortStrategy:
    """The fastest strategy; `across` has the rows in the lanes, if there are enough of them."""
    extent, entry = along.extent, _entry_bytes(along)
    capacity = _capacity(extent, op.count)
    passes = 1 if capacity < extent else 8 if entry == 16 else 4
    long_row = extent * (2 + 2 * passes)
    if across is not None:
        width, units = across.domain.width, across.strips(1)
        if extent <= SHORT * 8 // entry:
            pairs = extent * max(extent.bit_length(), 1) ** 2 / 4
            nanoseconds = units * (pairs * 3 + 20 * extent)
            return SortStrategy("sort_columns", across, units, chunk_count(nanoseconds, units))
        most = min(MOST_CHUNKS, MOST_BYTES // ((width + 1) * capacity * entry))
        if across.cost < along.cost and units >= ENOUGH_STRIPS <= most:
            chunks = min(chunk_count(units * width * long_row, units), most)
            return SortStrategy("sort_apart", across, units, chunks, capacity, width + 1)
    units = along.strips(1)
    return SortStrategy(
        "sort_rows",
        along,
        units,
        min(chunk_count(units * long_row, units), MOST_CHUNKS),
        capacity,
        2,
    )


def _entry_bytes(space: AxisNest) -> int:
    """Bytes of an entry: an element and its index."""
    return 16 if DTYPES[space.dtype].itemsize == 8 else 8


def _capacity(extent: int, count: int) -> int:
    """Entries that sorting a row needs: all elements, or a buffer for the first ones."""
    buffer = max(2 * count, BUFFER) if count <= BUFFER // 2 else 4 * count
    return buffer if 2 * buffer <= extent else max(extent, 1)


def _shell(node: KernelNode, op: Sort, way: SortStrategy, nest: Nest) -> str:
    kind = REGISTER_TYPES[way.space.dtype]
    settings = f"Kept, {kind}, {str(op.descending).lower()}, {way.space.extent}, {op.count}"
    span = share(way.units, way.chunks)
    if way.capacity:
        entries = f"chunk * {way.buffers * way.capacity}L * sizeof(Entry<{kind}>)"
        memory = f"(char*)arguments[{len(argument_order(node))}] + {entries}"
        call = f"{way.name}<{settings}, {way.capacity}>({span},\n      {memory},"
    else:
        call = f"{way.name}<{settings}>({span},"
    lines = [
        *pointer_lines(node, way.space.program, way.space.pointers),
        call,
        *along_lines(nest, f"Ordered<{kind}>"),
    ]
    return entry(node, lines)
