"""Lower the gradient of a gather with many indices to index.cuh.

The indices are sorted, then each row of the table sums its segment in ascending order of the
elements' positions.
"""

from __future__ import annotations

import math

from graphc.ir import Node
from graphc.kernels.cuda.index.index_text import FunctorText, split_axes
from graphc.kernels.cuda.prefix.sort import PER_THREAD, merges
from graphc.kernels.cuda.shared.kernel_source import BLOCKS, RESIDENT, THREADS, Launches
from graphc.kernels.cuda.shared.runs import RUN
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES

ENTRY_BYTES = 8
"""Bytes of an index with its position."""
TILE = 1024
"""Entries that a block sorts. Larger tiles wait longer for shared memory than a merge takes."""
TOGETHER = 32
"""The most table rows that a block sums."""
STRIPS = 8
"""The most strips of a row that a block sums, each with a run per lane of a warp."""


def lower_segments(node: KernelNode, gather: Node, axis: int) -> Kernel:
    """The kernel of the take_grad `gather` along `axis` in the fused `node`."""
    (indices, dy), table = gather.inputs, gather.output
    names = Identifiers()
    text = FunctorText(node.body, names.pointers(node.body), names)
    shape, count = table.type.shape, indices.type.size
    size = min(TILE, 1 << max(count - 1, 0).bit_length())
    tiles = -(-count // size)
    steps = tuple(merges(tiles, size, count))
    half = max(tiles * size, *(m.runs * m.run for m in steps), 0)
    """Entries of half the workspace; see sort.py."""

    def entries(which: int) -> str:
        offset = f" + {which * half * ENTRY_BYTES}ll" if which else ""
        return f"reinterpret_cast<Entry<int>*>(workspace{offset})"

    launches = Launches(node, text.pointers, (2 if steps else 1) * half * ENTRY_BYTES)
    lines = [
        f"sort_places<{count}, {shape[axis]}, {size}>(",
        f"    {entries(0)},",
        "    [&](int i) {",
        *text.read(indices, {"i": indices.type.shape}),
        "    });",
    ]
    launches.add(lines, tiles, threads=max(32, size // 2))
    for number, step in enumerate(steps):
        place = f"static_cast<long long>(run) * {step.next} + j"
        lines = [
            f"merge_runs<1, {step.runs}, {step.run}, {step.next}, {PER_THREAD}>(",
            f"    {entries(step.half)},",
            "    [&](int, int run, int j, const Entry<int>& entry) {",
            f"      {entries(1 - step.half)}[{place}] = entry;",
            "    });",
        ]
        threads = -(-step.runs // 2) * -(-step.next // PER_THREAD)
        launches.add(lines, -(-threads // THREADS), f"merge{number}")
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    moves = axis + 1 < len(shape) and text.runs(dy, table, RUN)
    length, kind = RUN if moves else 1, C_TYPES[dy.type.dtype]
    together, strips = _sharing(before, shape[axis], -(-after // (32 * length)))
    sizes = f"{kind}, {length}, {before}, {count}, {after}, {shape[axis]}, {together}, {strips}"
    run = f"Run<{kind}, {length}>"
    lines = [
        f"add_segments<{sizes}>(",
        f"    {entries(len(steps) % 2)},",
        "    [&](int before, int i, int after) {",
        *text.read_run(dy, split_axes(dy, axis, indices.type.rank), length),
        "    },",
        f"    [&](int before, int i, int after, const {run}& sums) {{",
        *text.write_run(table, split_axes(table, axis, 1), length),
        "    });",
    ]
    parts = -(-after // (32 * length * strips))
    launches.add(lines, before * -(-shape[axis] // together) * parts, "sums", resident=RESIDENT)
    return launches.kernel(("index/index",), [text.constants])


def _sharing(before: int, extent: int, strips: int) -> tuple[int, int]:
    """Rows and strips per block, few enough that there are many blocks."""
    together, own = min(TOGETHER, extent), min(STRIPS, strips)
    while together * own > THREADS // 32:
        if before * -(-extent // together) * -(-strips // own) >= BLOCKS:
            break
        together, own = (-(-together // 2), own) if together > 1 else (together, -(-own // 2))
    return together, own
