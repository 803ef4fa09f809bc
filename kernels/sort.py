"""Lowering of sort: the first elements of rows in order, and their places."""

from __future__ import annotations

from graphc.ir import DTYPES, Node
from graphc.kernels.access import Domain
from graphc.kernels.axis import (
    Space,
    functor_lines,
    lane_axes,
    only_node,
    pointer_lines,
    rows_text,
    space_of,
)
from graphc.kernels.expression import C_TYPES
from graphc.kernels.kernel import Kernel
from graphc.kernels.shell import argument_order, chunk_count, framed, symbol
from graphc.ops.sort import Sort
from graphc.target import Target

SHORT = 256
"""Rows of at most so many elements lie in the lanes, if there are enough of them."""
BUFFER = 1024
"""Elements, at least, of the buffer of a selection."""
MOST_CHUNKS = 32
"""Each chunk of long rows has memory of its own."""


def lower_sort(node: Node, target: Target) -> Kernel:
    """The kernel of a body of one sort; it reads row-major inputs through views."""
    inner = only_node(node, "sort")
    op, x = inner.op, inner.inputs[0]
    assert isinstance(op, Sort)
    along, *across = (
        space_of(node, inner, op.axis, Domain(x.type.shape, lane, target.lanes))
        for lane in lane_axes(x.type.shape, op.axis)
    )
    wide = DTYPES[x.type.dtype].itemsize == 8
    short = SHORT // 2 if wide else SHORT
    in_lanes = bool(across) and across[0].waste <= 2 and along.extent <= short
    space = across[0] if in_lanes else along
    rows = space.strips(1) if op.count else 0
    if in_lanes:
        pairs = space.extent * max(space.extent.bit_length(), 1) ** 2 / 4
        chunks = chunk_count(rows * (pairs * 3 + 20 * space.extent), rows)
        room, workspace = 0, 0
    else:
        room = _room(space.extent, op.count)
        passes = 1 if room < space.extent else 8 if wide else 4
        chunks = min(chunk_count(rows * space.extent * (2 + 2 * passes), rows), MOST_CHUNKS)
        workspace = chunks * 2 * room * (16 if wide else 8)
    return Kernel(
        symbol(node),
        "sort",
        _text(node, op, space, rows, chunks, room),
        phases=(chunks,),
        workspace=workspace if rows else 0,
        flops=x.type.size,
        bytes=sum(v.type.nbytes for v in (*node.inputs, *node.outputs)),
    )


def _room(extent: int, count: int) -> int:
    """Elements of the memory that a row is sorted in: all, or a buffer for the first ones."""
    buffer = max(2 * count, BUFFER)
    return buffer if 2 * buffer <= extent else max(extent, 1)


def _text(node: Node, op: Sort, space: Space, rows: int, chunks: int, room: int) -> str:
    name = symbol(node)
    if not rows:
        return framed(node, "sort", f'extern "C" void {name}(void* const*, int, int) {{}}\n')
    kind = C_TYPES[space.dtype]
    settings = f"Kept, {kind}, {str(op.descending).lower()}, {space.extent}, {op.count}"
    span = f"chunk * {rows}L / {chunks}, (chunk + 1) * {rows}L / {chunks}"
    if room:
        memory = f"(char*)arguments[{len(argument_order(node))}] + chunk * 2 * {room}L"
        call = f"sort_rows<{settings}, {room}>({span},\n    {memory} * sizeof(Entry<{kind}>),"
    else:
        call = f"sort_columns<{settings}>({span},"
    lines = [
        f'extern "C" void {name}(void* const* arguments, int, int chunk) {{',
        *pointer_lines(node, space),
        f"  {call}",
        *functor_lines(space, f"Ordered<{kind}>"),
        "}",
    ]
    return framed(node, "sort", rows_text(space), "".join(f"{line}\n" for line in lines))
