"""Pointwise bodies that read images with channels last and store one row-major, such as a pooling
before a layer over all features of an image.

A block has an image. Its threads read runs of channels of a pixel; what is stored row-major waits
in shared memory until it is complete and then leaves in contiguous runs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from graphc.ir import ROW_MAJOR, Graph, Value
from graphc.kernels.cuda.shared.kernel_source import (
    BLOCKS,
    SHARED_BYTES,
    THREADS,
    delinearize,
    index_type,
)
from graphc.kernels.cuda.shared.loop_printer import run_lines, statements_of
from graphc.kernels.cuda.shared.runs import RUN, aligned, makes_runs
from graphc.kernels.loops.language import Alloc, Loop, Nest
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.rewrites import bind, in_runs, staged
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.names import Identifiers, Pointers
from graphc.kernels.program.body.statement import (
    Address,
    Call,
    Load,
    Store,
)
from graphc.kernels.program.pointwise_nest import PointwiseNest, make_pointwise_nest
from graphc.ops.pointwise.logic import C_TYPES

ORDER = (0, 2, 3, 1)
"""The axes of an image in channels-last order."""
NAMES = ["i0", "i1", "i2", "i3"]
"""The names of the indices along them."""
WAITING = "waiting"
"""The name of the shared memory that holds what is stored row-major."""
SHORTEST = 16
"""Contiguous elements, in either order, from which the transposition is worth a barrier."""
MOST_RUNS = 4
"""The most runs per thread, if there are fewer images than multiprocessors."""


@dataclass(frozen=True)
class NhwcToNchw:
    """A pointwise nest whose output `value` is transposed in shared memory."""

    part: PointwiseNest
    """The nest over all elements."""
    nest: Nest
    """Its schedule: a block for each image."""
    value: Value

    @property
    def images(self) -> int:
        """Images, one per block."""
        return self.part.domain.extents[0]

    @property
    def threads(self) -> int:
        """Threads of a block: whole warps for all runs of an image."""
        return min(THREADS, -(-self._pixels * self._runs // 32) * 32)

    @property
    def nests(self) -> tuple[Nest, ...]:
        return (self.nest,)

    @property
    def settings(self) -> Hashable:
        return self.threads

    @property
    def lines(self) -> list[str]:
        """The statements of a block."""
        (image,) = self.nest.body
        assert isinstance(image, Loop)
        shared, runs, _, _ = image.body
        assert isinstance(shared, Alloc) and isinstance(runs, Loop)
        kind, channels = C_TYPES[shared.dtype], self.part.domain.extents[3]
        settings = f"<{self._pixels}, {channels}, {RUN}, {self.threads}>"
        pointer = self.part.pointers[self.value]
        return [
            f"{kind}* const {WAITING} = block.template shared<{kind}, {shared.size}>();",
            f"const int {NAMES[0]} = block.x();",
            f"each_run_of_image{settings}(",
            *_functor(self._index_lines(), run_lines(runs, NAMES, self.part.used), ","),
            *_functor(self._index_lines(), statements_of(runs.body).lines(NAMES, "1"), ");"),
            "block.sync();",
            f"store_turned{settings}(",
            f"    {pointer} + {channels * self._pixels} * {NAMES[0]}, {WAITING});",
        ]

    @property
    def _pixels(self) -> int:
        return math.prod(self.part.domain.extents[1:3])

    @property
    def _runs(self) -> int:
        """Runs of a pixel's channels; the last may be partial."""
        return -(-self.part.domain.extents[3] // RUN)

    def _index_lines(self) -> list[str]:
        """The row and the column of a pixel, where they are used."""
        extents, used = self.part.domain.extents, self.part.program.used(NAMES)
        return delinearize("pixel", NAMES[1:3], extents[1:3], "int", used)


def _functor(indices: Sequence[str], body: Sequence[str], end: str) -> list[str]:
    """A function of a pixel and a channel."""
    return [
        f"    [&](int pixel, int {NAMES[3]}) {{",
        *(f"      {line}" for line in indices),
        *(line if line[0] == "#" else f"      {line}" for line in body),
        f"    }}{end}",
    ]


def turned(
    body: Graph, groups: Sequence[tuple[Value, ...]], pointers: Pointers, names: Identifiers
) -> NhwcToNchw | None:
    """The transposing form of the body; None if element-wise code is better.

    That is if not exactly one output is a row-major image, or if its reads are not runs of
    channels.
    """
    rows = [v for v in groups[0] if v.type.layout == ROW_MAJOR]
    if len(groups) != 1 or len(rows) != 1 or rows[0].type.rank != 4 or index_type(body) != "int":
        return None
    (group,), (value,), (n, channels, *pixels) = groups, rows, rows[0].type.shape
    count = math.prod(pixels)
    size = channels * (count + 1) * value.type.numpy_dtype.itemsize
    if channels * count % RUN or channels < RUN or size > SHARED_BYTES:
        return None
    if max(channels, count) < SHORTEST or not _are_last(body):
        return None
    if n < BLOCKS // 2 and channels * count > MOST_RUNS * RUN * THREADS:
        return None
    domain = Domain((n, *pixels, channels))
    part = make_pointwise_nest(body, group, domain, pointers, names, ORDER)
    shared = Alloc(WAITING, value.type.dtype, channels * (count + 1))
    # A channel's pixels have a place more than they are: neighbours lie in different banks.
    place = AffineAccess(0, (0, pixels[1], 1, count + 1))
    nest = in_runs(bind(plain_nest(part), "thread"), RUN)
    nest = staged(nest, pointers[value], shared, place, (3, 1, 2))
    verify_nest(nest)
    return NhwcToNchw(part, nest, value) if _in_runs(part, value) else None


def _are_last(body: Graph) -> bool:
    """Whether all images that it reads have channels last."""
    images = [v for v in body.inputs if v.type.rank == 4 and v.type.size > 1]
    return bool(images) and all(v.type.layout.axis == 1 for v in images)


def _in_runs(part: PointwiseNest, waiting: Value) -> bool:
    """Whether all memory that varies along channels, except `waiting`, is in whole runs."""
    used = part.used
    for s in part.program.split(frozenset(range(3)))[1].statements:
        if isinstance(s, Call) and s.pointers and not makes_runs(s, used, 3, RUN):
            return False
        if not isinstance(s, Load | Store) or part.pointers[waiting] in s.pointers:
            continue
        address = s.arguments[0]
        if not isinstance(address, Address) or address.pointer not in used:
            return False
        if not aligned(address.access, used[address.pointer], 3, RUN):
            return False
    return True
