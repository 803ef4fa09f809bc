"""Lower running results along an axis to prefix.cuh."""

from __future__ import annotations

from graphc.ir import DTYPES
from graphc.kernels.cuda.shared.kernel_source import (
    BLOCKS,
    THREADS,
    WARP,
    constant_arrays,
    index_type,
)
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.cuda.shared.loop_printer import axis_indices, row_lines
from graphc.kernels.loops.along import along_loops
from graphc.kernels.loops.language import Nest
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.rewrites import along_last, bind, in_order
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import Domain
from graphc.kernels.program.axis import AxisNest, make_axis_nest, only_node
from graphc.kernels.program.body.literals import literal
from graphc.kernels.program.body.statement import joined
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.running_state import STATE, StateTypes, state_struct
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES
from graphc.ops.prefix import Prefix

FEW_COLUMNS = 16
"""Columns of a row up to which one thread has the whole row."""
LEAST_COLUMNS = 32
"""The fewest columns per thread of a piece."""
_STATE_BYTES = 16
"""The most bytes of a state: a value and an index of eight bytes each."""


def lower_prefix(node: KernelNode) -> Kernel:
    """The kernel of a body with one running result; every value is row-major."""
    inner, prefix = only_node(node, Prefix)
    space = make_axis_nest(node, inner, Domain(inner.inputs[0].type.shape))
    rows, columns, index = space.rows, space.extent, index_type(node.body)
    if prefix.combine.picks:
        check_counts(node, elements_per_row=columns)
    along = _along(space, columns)
    across = THREADS // along
    blocks = -(-rows // across)
    most = columns // (along * LEAST_COLUMNS)
    pieces = max(1, min(most, -(-BLOCKS // blocks))) if 2 * blocks <= BLOCKS else 1
    nest = schedule(space, along, pieces)
    verify_nest(nest)
    settings = f"{index}, {rows}, {columns}, {across}, {along}, {str(prefix.reverse).lower()}"
    kinds = [f"using Rows = Prefix<{settings}, {pieces}, {STATE}>;"]
    workspace = _STATE_BYTES * rows * pieces if pieces > 1 else 0
    inplace = inplace_pairs(node.body, [space.program], space.pointers)
    launches = Launches(node, space.pointers, workspace, inplace)
    for part in ("kernel", "finish") if pieces > 1 else ("kernel",):
        last = pieces == 1 or part == "finish"
        launches.add(_lines(nest, index, pieces, last), blocks, part, pieces)
    sections = [constant_arrays(space.program), _state(prefix, space.dtype), kinds]
    return launches.kernel(("prefix/prefix",), sections, space.domain.size)


def schedule(space: AxisNest, along: int = 1, pieces: int = 1) -> Nest:
    """Threads that each have a row, or blocks whose rows have `along` threads each."""
    if along == 1:
        return in_order(along_last(bind(plain_nest(space), "thread")), 1, pieces)
    nest = along_last(bind(plain_nest(space), "block"), "thread", each=THREADS // along)
    return in_order(nest, WARP, pieces)


def _along(space: AxisNest, columns: int) -> int:
    """Threads per row; neighbouring threads read neighbouring elements."""
    accesses = space.program.accesses
    last = space.kept[-1] if space.kept else space.axis
    by_column = sum(a.strides[space.axis] == 1 for a in accesses)
    by_row = sum(a.strides[last] == 1 for a in accesses) if space.kept else 0
    if columns <= FEW_COLUMNS or by_row > by_column:
        return 1
    return 32 if columns <= THREADS else THREADS


def _state(prefix: Prefix, dtype: str) -> list[str]:
    """The struct of an element's state. What is smaller than a word waits in one."""
    kind, small = C_TYPES[dtype], DTYPES[dtype].itemsize < 4
    types = StateTypes(
        "int" if small else kind,
        "int",
        "GRAPHC_INLINE",
        lambda number: literal(number, dtype),
        f"{kind}({{}})" if small else "{}",
    )
    return state_struct(prefix.combine, types, dtype)


def _lines(nest: Nest, index: str, pieces: int, last: bool) -> list[str]:
    """The statements of one launch; the last one writes."""
    states = f"reinterpret_cast<{STATE}*>(workspace)" if pieces > 1 else "nullptr"
    loops, indices = along_loops(nest), axis_indices(nest)
    used = joined((loops.before, loops.after)) if last else loops.before
    call = [
        f"rows.{'run' if last else 'totals'}(",
        f"    {states},",
        f"    [&]({index} j) {{",
        *(f"      {line}" for line in loops.read(indices, "1")),
        "    }" + ("," if last else ");"),
    ]
    if last:
        call += [
            f"    [&]({index} j, const {STATE}& state) {{",
            *(f"      {line}" for line in loops.write(indices, "1")),
            "    });",
        ]
    return ["const Rows rows;", *row_lines(nest, "rows.row", index, used), *call]
