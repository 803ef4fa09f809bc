"""Lower sort to sort.cuh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphc.ir import DTYPES
from graphc.kernels.cuda.shared.kernel_source import THREADS, constant_arrays, index_type
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.cuda.shared.loop_printer import axis_indices, row_lines
from graphc.kernels.loops.along import along_loops
from graphc.kernels.loops.language import Nest
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.rewrites import along_last, bind
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import Domain
from graphc.kernels.program.axis import AxisNest, make_axis_nest, only_node
from graphc.kernels.program.body.statement import RegisterProgram
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import REGISTER_TYPES
from graphc.ops.sort import Sort

TILE_BYTES = 16384
"""Bytes of entries that a block sorts in shared memory: a third of the limit of static arrays."""
PER_BLOCK = 512
"""The fewest entries that a block sorts, if there are that many."""
PER_THREAD = 4
"""Entries that a thread merges."""


@dataclass(frozen=True)
class Merge:
    """A launch that merges the sorted runs of each row in pairs."""

    runs: int
    """Runs of a row before it."""
    run: int
    """Entries of a run before it."""
    next: int
    """Entries of a run after it."""
    half: int
    """The half of the workspace that it reads."""

    @property
    def last(self) -> bool:
        """Whether it leaves a single run."""
        return self.runs <= 2


def lower_sort(node: KernelNode) -> Kernel:
    """The kernel of a body with one sort; every value is row-major."""
    inner, op = only_node(node, Sort)
    x = inner.inputs[0]
    text = _SortText(node, op, make_axis_nest(node, inner, Domain(x.type.shape)))
    check_counts(node, elements_per_row=text.space.extent, tiles=text.rows * text.per_row)
    launches = Launches(node, text.space.pointers, text.workspace)
    for part, blocks, lines in text.launches():
        launches.add(lines, blocks, part)
    return launches.kernel(("prefix/sort",), [constant_arrays(text.space.program)], x.type.size)


def schedule(space: AxisNest) -> Nest:
    """Blocks whose threads share rows."""
    return along_last(bind(plain_nest(space), "block"), "thread")


def merges(runs: int, run: int, most: int) -> Iterator[Merge]:
    """The launches that merge each row's `runs` of `run` entries into one of at most `most`."""
    half = 0
    while runs > 1:
        yield Merge(runs, run, min(2 * run, most), half)
        runs, run, half = -(-runs // 2), min(2 * run, most), 1 - half


class _SortText:
    """Prints the launches of a sort."""

    def __init__(self, node: KernelNode, op: Sort, space: AxisNest) -> None:
        self.space, self.count, self.rows = space, op.count, space.rows
        self.nest, self.index = schedule(space), index_type(node.body)
        verify_nest(self.nest)
        self.loops, self.indices = along_loops(self.nest), axis_indices(self.nest)
        self.kind, self.descending = REGISTER_TYPES[space.dtype], str(op.descending).lower()
        self.entry_bytes = 16 if DTYPES[space.dtype].itemsize == 8 else 8
        power = 1 << max(space.extent - 1, 0).bit_length()
        self.size = min(power, TILE_BYTES // self.entry_bytes)
        self.per_row = -(-space.extent // self.size)
        self.run = min(self.size, self.count)
        self._merges = tuple(merges(self.per_row, self.run, self.count))
        self.half = self.rows * max((m.runs * m.run for m in self._merges), default=0)
        """Entries of half the workspace. With an odd number of runs the last has no partner but
        takes the space of a pair."""
        self.workspace = 2 * self.half * self.entry_bytes

    def launches(self) -> Iterator[tuple[str, int, list[str]]]:
        """For each launch its suffix of the kernel's name, its blocks and its statements."""
        tiles = max(1, min(PER_BLOCK // self.size, self.rows * self.per_row))
        tiles = 1 << (tiles.bit_length() - 1)
        yield "kernel", -(-self.rows * self.per_row // tiles), self._sort(tiles)
        for number, merge in enumerate(self._merges):
            threads = self.rows * -(-merge.runs // 2) * -(-merge.next // PER_THREAD)
            yield f"merge{number}", -(-threads // THREADS), self._merge(merge)

    def _sort(self, tiles: int) -> list[str]:
        extents = f"{self.rows}, {self.space.extent}, {self.per_row}, {tiles}, {self.size}"
        lines = [
            f"sort_tiles<{self.kind}, {self.descending}, {extents}, {self.run}>(",
            "    [&](int row, int j) {",
            *self._row("row", self.loops.before, self.loops.read(self.indices, "1")),
            "    },",
            f"    [&](int tile, int j, const Entry<{self.kind}>& entry) {{",
        ]
        if self.per_row == 1:
            return [*lines, *self._write("tile"), "    });"]
        place = f"static_cast<long long>(tile) * {self.run} + j"
        return [*lines, f"      {self._entries(0)}[{place}] = entry;", "    });"]

    def _merge(self, merge: Merge) -> list[str]:
        sizes = f"{self.rows}, {merge.runs}, {merge.run}, {merge.next}, {PER_THREAD}"
        lines = [
            f"merge_runs<{sizes}>(",
            f"    {self._entries(merge.half)},",
            f"    [&](int row, int run, int j, const Entry<{self.kind}>& entry) {{",
        ]
        if merge.last:
            return [*lines, *self._write("row"), "    });"]
        runs = -(-merge.runs // 2)
        place = f"(static_cast<long long>(row) * {runs} + run) * {merge.next} + j"
        return [*lines, f"      {self._entries(1 - merge.half)}[{place}] = entry;", "    });"]

    def _write(self, row: str) -> list[str]:
        state = f"const Ordered<{self.kind}> state = unpack<{self.kind}, {self.descending}>(entry);"
        lines = self.loops.write(self.indices, "1")
        return [f"      {state}", *self._row(row, self.loops.after, lines)]

    def _row(self, row: str, program: RegisterProgram, lines: list[str]) -> list[str]:
        indices = row_lines(self.nest, row, self.index, program)
        return [f"      {line}" for line in (*indices, *lines)]

    def _entries(self, half: int) -> str:
        offset = f" + {half * self.half * self.entry_bytes}ll" if half else ""
        return f"reinterpret_cast<Entry<{self.kind}>*>(workspace{offset})"
