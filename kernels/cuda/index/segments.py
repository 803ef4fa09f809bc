"""Lower the gradient of a gather with many indices to index.cuh.

The indices are sorted, then each row of the table sums its segment in ascending order of the
elements' positions.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.kernels.cuda.prefix.sort import PER_THREAD, merges
from graphc.kernels.cuda.reduce.reduce import plain_address
from graphc.kernels.cuda.shared.kernel_source import (
    BLOCKS,
    RESIDENT,
    THREADS,
    constant_arrays,
    index_type,
)
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.cuda.shared.loop_printer import WorkerLoops
from graphc.kernels.cuda.shared.runs import RUN, aligned
from graphc.kernels.loops.index_nest import IndexNest
from graphc.kernels.loops.language import At
from graphc.kernels.loops.places import accumulated, in_lanes, looked_up, together
from graphc.kernels.program.body.statement import Statement
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
AHEAD = 8
"""Elements that are loaded before the first of them is added."""


def lower_segments(node: KernelNode, part: IndexNest) -> Kernel:
    """The kernel of a take_grad whose nest is `part`."""
    before, extent, count, after = part.sizes
    size = min(TILE, 1 << max(count - 1, 0).bit_length())
    tiles = -(-count // size)
    steps = tuple(merges(tiles, size, count))
    half = max(tiles * size, *(m.runs * m.run for m in steps), 0)
    """Entries of half the workspace; see sort.py."""

    def entries(which: int) -> str:
        offset = f" + {which * half * ENTRY_BYTES}ll" if which else ""
        return f"reinterpret_cast<Entry<int>*>(workspace{offset})"

    length, index, functors = _functors(part, index_type(node.body))
    launches = Launches(node, part.pointers, (2 if steps else 1) * half * ENTRY_BYTES)
    lines = [f"sort_places<{count}, {extent}, {size}>(", f"    {entries(0)},", *index]
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
    together, strips = _sharing(before, extent, -(-after // (32 * length)))
    kind = C_TYPES[part.node.output.type.dtype]
    sizes = f"{length}, {before}, {count}, {after}, {extent}, {together}, {strips}"
    lines = [f"add_segments<{kind}, {sizes}>(", f"    {entries(len(steps) % 2)},", *functors]
    blocks = before * -(-extent // together) * -(-after // (32 * length * strips))
    launches.add(lines, blocks, "sums", resident=RESIDENT)
    return launches.kernel(("index/segments",), [constant_arrays(part.program)])


def _functors(part: IndexNest, index: str) -> tuple[int, list[str], list[str]]:
    """The elements of a thread's run, the functor that gives an index, and those that give a run of
    elements and take one of sums."""
    a, j, i, b = part.letters
    (*find, at), kind = part.scan.body, C_TYPES[part.node.output.type.dtype]
    assert isinstance(at, At)
    *value, _, add, store = (s for s in at.body if isinstance(s, Statement))
    moves = len(value) == 1 and _moves_runs(part, value[0]) and _moves_runs(part, store)
    length = RUN if moves else 1
    nest = together(part.nest, (*a, *j, *b), "thread")
    nest = in_lanes(nest, b[-1], RUN) if moves else nest
    nest = looked_up(accumulated(nest, part.output), i, "sorted", AHEAD)
    loops, run = WorkerLoops(nest, index), f"Run<{kind}, {length}>"
    source, target = {"before": a, "i": i, "after": b}, {"before": a, "row": j, "after": b}
    if moves:
        give = f"return *reinterpret_cast<const {run}*>({loops.place(value[0])});"
        elements = [*loops.define(source, value), give]
        take = f"*reinterpret_cast<{run}*>({loops.place(store)}) = sums;"
        sums = [*loops.define(target, [store]), take]
    else:
        elements = [*loops.functor(source, value), f"return {run}{{{{{add.operands[-1]}}}}};"]
        one = replace(store, arguments=(store.arguments[0], "sums.at[0]"))
        sums = loops.functor(target, [one])
    found = [*loops.functor({"i": i}, find), f"return {at.register};"]
    return (
        length,
        ["    [&](int i) {", *(f"      {x}" for x in found), "    });"],
        [
            "    [&](int before, int i, int after) {",
            *(f"      {x}" for x in elements),
            "    },",
            f"    [&](int before, int row, int after, const {run}& sums) {{",
            *(f"      {x}" for x in sums),
            "    });",
        ],
    )


def _moves_runs(part: IndexNest, statement: Statement) -> bool:
    """Whether it moves whole aligned runs along the last axis."""
    values, inner = part.pointers.values_by_name, part.letters[3][-1]
    address = plain_address(statement, values)
    if address is None or part.nest.domain.extents[inner] % RUN:
        return False
    return aligned(address.access, values[address.pointer], inner, RUN)


def _sharing(before: int, extent: int, strips: int) -> tuple[int, int]:
    """Rows and strips per block, few enough that there are many blocks."""
    together, own = min(TOGETHER, extent), min(STRIPS, strips)
    while together * own > THREADS // 32:
        if before * -(-extent // together) * -(-strips // own) >= BLOCKS:
            break
        together, own = (-(-together // 2), own) if together > 1 else (together, -(-own // 2))
    return together, own
