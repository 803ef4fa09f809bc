"""Pointwise bodies that read images with channels last and store one row-major, such as a pooling
before a layer over all features of an image.

A block has an image. Its threads read runs of channels of a pixel; what is stored row-major waits
in shared memory until it is complete and then leaves in contiguous runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphc.ir import ROW_MAJOR, Graph, Value
from graphc.kernels.cuda.shared.kernel_source import (
    BLOCKS,
    SHARED_BYTES,
    THREADS,
    delinearize,
    index_type,
)
from graphc.kernels.cuda.shared.runs import RUN, Runs, aligned, makes_runs
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.names import Identifiers, Pointers
from graphc.kernels.program.body.statement import (
    Address,
    Call,
    Load,
    RegisterProgram,
    Statement,
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
    program: RegisterProgram
    """Its program, which stores `value` to shared memory."""
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
    def lines(self) -> list[str]:
        """The statements of a block."""
        _, rows, columns, channels = self.part.domain.extents
        kind, size = C_TYPES[self.value.type.dtype], channels * (self._pixels + 1)
        pointer = self.part.pointers[self.value]
        return [
            f"{kind}* const {WAITING} = block.template shared<{kind}, {size}>();",
            f"const int {NAMES[0]} = block.x();",
            f"each_run_of_image<{self._pixels}, {channels}, {RUN}, {self.threads}>(",
            f"    [&](int pixel, int {NAMES[3]}) {{",
            *(f"      {line}" for line in self._of_pixel(rows, columns)),
            *(line if line[0] == "#" else f"      {line}" for line in self._run()),
            "    },",
            f"    [&](int pixel, int {NAMES[3]}) {{",
            *(f"      {line}" for line in self._of_pixel(rows, columns)),
            *(f"      {line}" for line in self.program.lines(NAMES, "1")),
            "    });",
            "block.sync();",
            f"store_turned<{self._pixels}, {channels}, {RUN}, {self.threads}>(",
            f"    {pointer} + {channels * self._pixels} * {NAMES[0]}, {WAITING});",
        ]

    @property
    def _pixels(self) -> int:
        return math.prod(self.part.domain.extents[1:3])

    @property
    def _runs(self) -> int:
        """Runs of a pixel's channels; the last may be partial."""
        return -(-self.part.domain.extents[3] // RUN)

    def _of_pixel(self, rows: int, columns: int) -> list[str]:
        used = self.program.used(NAMES)
        return delinearize("pixel", NAMES[1:3], [rows, columns], "int", used)

    def _run(self) -> list[str]:
        once, each = self.program.split(frozenset(range(3)))
        return Runs(RUN, once, each, self.part.used).lines(NAMES, "int", lambda _: [])


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
    program = replace(part.program, statements=tuple(_waiting(part, value)))
    each = program.split(frozenset(range(3)))[1]
    return NhwcToNchw(part, program, value) if _in_runs(each, part) else None


def _are_last(body: Graph) -> bool:
    """Whether all images that it reads have channels last."""
    images = [v for v in body.inputs if v.type.rank == 4 and v.type.size > 1]
    return bool(images) and all(v.type.layout.axis == 1 for v in images)


def _waiting(part: PointwiseNest, value: Value) -> list[Statement]:
    """The statements, with stores of `value` redirected to shared memory. Each channel there has
    one element of padding, so that neighbouring channels are in different banks."""
    _, rows, columns, _ = part.domain.extents
    pointer = part.pointers[value]
    place = Address(WAITING, AffineAccess(0, (0, columns, 1, rows * columns + 1)))
    return [
        replace(s, arguments=(place, s.arguments[1]))
        if isinstance(s, Store) and pointer in s.pointers
        else s
        for s in part.program.statements
    ]


def _in_runs(each: RegisterProgram, part: PointwiseNest) -> bool:
    """Whether all memory that varies along channels, except `value`, is in whole runs."""
    used = part.used
    for s in each.statements:
        if isinstance(s, Call) and s.pointers and not makes_runs(s, used, 3, RUN):
            return False
        if not isinstance(s, Load | Store) or WAITING in s.pointers:
            continue
        address = s.arguments[0]
        if not isinstance(address, Address) or address.pointer not in used:
            return False
        if not aligned(address.access, used[address.pointer], 3, RUN):
            return False
    return True
