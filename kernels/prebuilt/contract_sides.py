"""Which operand of a contraction is broadcast, which lies in registers, and what indexes each."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir import Type
from graphc.kernels.cpu.contract.sum_loops import SumLoops
from graphc.kernels.program.nest import Nest, Read
from graphc.ops.base import Affine


@dataclass(frozen=True)
class Walk:
    """The offset of an index along an axis: i * stride, or in blocks of lanes, or of windows of
    `scale` indices i // scale * stride + i % scale * plane."""

    stride: int = 0
    block: int = 0
    """Elements from one block of lanes to the next; 0 without lanes."""
    scale: int = 1
    """Indices of a window."""
    plane: int = 0
    """Elements from one index of a window to the next."""


@dataclass(frozen=True)
class Sides:
    """The operands and the kept axes by what they index. Axes of extent 1 are left out,
    but for those in lanes."""

    x: Read
    """The operand that rows index."""
    y: Read
    """The operand that columns index, the last of them in the lanes."""
    batches: tuple[int, ...]
    """Axes that index both."""
    rows: tuple[int, ...]
    """Axes that index X, or neither."""
    columns: tuple[int, ...]
    """Axes that index Y alone."""
    summed: tuple[int, ...]
    """The summed axes, from the outermost loop."""

    @property
    def kept(self) -> tuple[int, ...]:
        """The kept axes in the order of the description."""
        return (*self.batches, *self.rows, *self.columns)


def sides_of(nest: Nest, order: SumLoops) -> Sides | None:
    """The sides of a nest; None where no axis can lie in the lanes."""
    laned = {r.lanes for r in (nest.a, nest.b)} | {_laned_output(nest)}
    kept = [a for a in nest.kept if nest.axes[a].extent > 1 or a in laned]
    summed = tuple(order.axes)
    if order.blocks and order.lane is not None and order.lane not in summed:
        summed = (order.lane, *summed)  # of one block
    lane = _lane(nest, kept, order.blocks)
    x, y = nest.a, nest.b
    if lane is not None and (x.depends_on(lane), y.depends_on(lane)) == (True, False):
        x, y = y, x
    of = {a: (x.depends_on(a), y.depends_on(a)) for a in kept}
    columns = [a for a in kept if of[a] == (False, True)]
    if lane is not None:
        if lane not in columns:
            return None
        columns = [*(a for a in columns if a != lane), lane]
    batches = tuple(a for a in kept if of[a] == (True, True))
    rows = tuple(a for a in kept if a not in columns and a not in batches)
    return Sides(x, y, batches, rows, tuple(columns), summed)


def _lane(nest: Nest, kept: list[int], lanes_summed: bool) -> int | None:
    """The axis to lie in the lanes; None if no kept axis has more than one index.

    That is one that does in the output or an operand, else one along which the output's elements
    are neighbours, else any. Which products exist does not depend on it.
    """
    own = _laned_output(nest)
    if own is not None:
        return own
    laned = [r.lanes for r in (nest.a, nest.b) if r.lanes in kept]
    if laned:
        return laned[0]
    reads = (nest.a, nest.b)
    used = [a for a in kept if sum(read.depends_on(a) for read in reads) == 1]
    if not lanes_summed:
        borders = [
            b for read in reads for b in (*read.borders, *(q.border for q in read.quotients))
        ]
        used = [a for a in used if not any(a in border.axes for border in borders)]
    last = [a for a in used if nest.output[-1].coefficients[a] == 1]
    return last[0] if last else (used[-1] if used else None)


def _laned_output(nest: Nest) -> int | None:
    """The axis along which the output has lanes; None if it has none."""
    axis = nest.node.output.type.layout.axis
    if axis is None:
        return None
    return next(a for a in nest.kept if nest.output[axis].coefficients[a] == 1)


def operand_walk(read: Read, axis: int) -> Walk:
    """How an operand's offset depends on an axis, but for divided terms."""
    if read.lanes == axis:
        return Walk(block=read.block)
    return Walk(read.strides[axis])


def output_walk(type: Type, places: tuple[Affine, ...], axis: int) -> Walk | None:
    """How the output's offset depends on an axis; None where it has no such form."""
    steps = type.strides if type.layout.axis is None else _block_steps(type)
    stride, block = 0, 0
    for d, (place, step) in enumerate(zip(places, steps, strict=True)):
        factor = place.coefficients[axis]
        if not factor:
            continue
        if d != type.layout.axis:
            stride += factor * step
        elif factor == 1 and sum(map(bool, place.coefficients)) == 1:
            block = step
        elif factor % type.layout.width == 0:
            stride += factor // type.layout.width * step
        else:
            return None
    return None if block and stride else Walk(stride, block)


def _block_steps(type: Type) -> tuple[int, ...]:
    """Elements per step of each axis; along the one in lanes, per block."""
    storage = type.storage_shape
    steps, step = [0] * type.rank, storage[-1]
    for d in reversed(range(type.rank)):
        steps[d] = step
        step *= storage[d]
    return tuple(steps)
