"""Describe contractions to `contract.cpp`: matrix products, convolutions and their gradients."""

from __future__ import annotations

import math

import numpy as np

from graphc.base.target import LANES, Target
from graphc.ir import Node
from graphc.ir.sections import sections_of_sums
from graphc.kernels.cpu.contract.epilogue import batch_lane
from graphc.kernels.cpu.contract.sum_loops import sum_loops
from graphc.kernels.loops.sum_orders import stated_order
from graphc.kernels.prebuilt.contract_epilogue import Finish, finish_of
from graphc.kernels.prebuilt.contract_pairs import Pair, pairs_of
from graphc.kernels.prebuilt.contract_plan import SUMMED, Plan, PlannedAxis
from graphc.kernels.prebuilt.contract_sides import Walk, output_walk, sides_of
from graphc.kernels.prebuilt.description import Prebuilt
from graphc.kernels.program.epilogue import pooling
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.nest import contraction_nest, pooled_nest, sectioned_nest
from graphc.ops.base import Array
from graphc.ops.fused import KernelNode
from graphc.ops.pooling import MaxPool2d

AXES, PAIRS, FINISHED = 12, 4, 8
"""The lengths of the arrays of contraction.h."""
AXIS, PAIR = 15, 7
"""Words of their elements."""
SIZE = 8 * (34 + 4 * FINISHED + 6 + AXIS * AXES + PAIR * PAIRS)
"""Bytes of a `Contraction`."""
HEAD = -(-SIZE // 64) * 64
"""Where tables begin."""


def contraction(node: Node, kernel: Kernel, target: Target) -> Prebuilt | None:
    """The description of a fused contraction; None where the library has no function for it."""
    if not isinstance(node, KernelNode):
        return None
    body = node.body
    nest, window = contraction_nest(body), None
    reads = (nest.a, nest.b)
    if {r.type.dtype for r in reads} != {"f32"} or any(r.rounded for r in reads):
        return None
    if pool := pooling(body):
        assert isinstance(pool.op, MaxPool2d)
        nest, window = pooled_nest(nest, pool.op)
    elif sections := sections_of_sums(body):
        nest = sectioned_nest(nest, sections)
    order = sum_loops(nest, stated_order(nest, target))
    if order is None or not all(axis.extent for axis in nest.axes):
        return None
    sides = sides_of(nest, order)
    if sides is None or len(sides.summed) > SUMMED or len(sides.kept) + SUMMED + 2 > AXES:
        return None
    if None in (output_walk(nest.node.output.type, nest.output, a) for a in sides.kept):
        return None
    if any(axis in sides.columns[-1:] for axis, _ in window or ()):
        return None
    if max(read.type.size for read in reads) >= 1 << 31:
        return None
    pairs = pairs_of(nest, sides, order.blocks)
    if pairs is None or len(pairs) > PAIRS:
        return None
    alone = body.outputs == nest.node.outputs
    plan = Plan(nest, order, sides, pairs, window, alone, kernel, target)
    finish = None
    if not alone:
        finish = _finish(node, plan, kernel)
        if finish is None:
            return None
    return Prebuilt("graphc_contract", _Writer(node, plan, kernel, finish).data())


def _finish(node: KernelNode, plan: Plan, kernel: Kernel) -> Finish | None:
    """The epilogue of a unit; None where strips lack an operation."""
    _, walks = plan.sums
    own = {a.number: w for a, w in zip(plan.kept, walks, strict=True) if a.number is not None}
    lane = batch_lane(node.body, plan.nest)
    if lane is None:
        lane = plan.nest.kept[-1] if plan.lane.number is None else plan.lane.number
    return finish_of(node, plan.nest, lane, plan.window, own, kernel, plan.target)


class _Writer:
    """Writes the words of a `Contraction` (contraction.h), and the tables behind them."""

    def __init__(self, node: KernelNode, plan: Plan, kernel: Kernel, finish: Finish | None) -> None:
        self.node, self.plan, self.kernel, self.finish = node, plan, kernel, finish
        self.tables = b""

    def data(self) -> bytes:
        """All bytes."""
        words = [*self._head(), *self._finish_words(), bool(self.plan.lane.out.block)]
        words += [*self._axis_words(), *self._pair_words()]
        data = np.asarray(words, np.int64).tobytes()
        assert len(data) == SIZE, "the words of contraction.h"
        return data + bytes(HEAD - SIZE) + self.tables

    def _head(self) -> list[int]:
        plan, kernel, node = self.plan, self.kernel, self.node
        reads = (plan.sides.x, plan.sides.y)
        moved = [kernel.offset(read.input) // 4 for read in reads]
        boxes, first = math.prod(plan.pieces), plan.summed[0]
        units = boxes * (plan.order.parts if plan.parts_apart else 1)
        sums, _ = plan.sums
        return [
            kernel.phases.index(plan.chunks),
            min(plan.chunks, units),
            units,
            plan.lanes_summed,
            *(read.input for read in reads),
            len(node.inputs),
            *(read.offset - m for read, m in zip(reads, moved, strict=True)),
            *(read.type.nbytes // 4 - m for read, m in zip(reads, moved, strict=True)),
            len(plan.batches),
            len(plan.rows),
            len(plan.columns),
            SUMMED,
            len(plan.pairs),
            plan.order.parts,
            *self._parts_words(),
            *plan.strided,
            *plan.block,
            plan.shifts,
            plan.packed(plan.cuts[1].lines),
            plan.lane_step,
            *(plan.neighbours(walk) for walk in (first.x, first.y)),
            *plan.lane_blocks,
            sums,
            plan.direct,
        ]

    def _parts_words(self) -> list[int]:
        if not self.plan.parts_apart:
            return [0, 0, 0]
        node, kernel = self.node, self.kernel
        return [1, len(node.inputs) + len(node.outputs), kernel.phases[1]]

    def _finish_words(self) -> list[int]:
        finish = self.finish
        if finish is None:
            return [0] * (4 * FINISHED + 5)
        kept = [axis.number for axis in self.plan.kept]
        self.tables += bytes(-len(self.tables) % 64)
        at = HEAD + len(self.tables)
        self.tables += finish.program
        apart = -1 if finish.apart is None else kept.index(finish.apart)
        words = [at, len(self.node.inputs) + len(self.node.outputs), apart, finish.apart_step]
        words.append(len(finish.axes))
        numbers = [-1 if a.kept is None else kept.index(a.kept) for a in finish.axes]
        columns = [
            numbers,
            *zip(*((a.factor, a.divisor, a.extent) for a in finish.axes), strict=True),
        ]
        for column in columns:
            words += [*column, *([0] * (FINISHED - len(column)))]
        return words

    def _axis_words(self) -> list[int]:
        plan, words = self.plan, list[int]()
        _, walks = plan.sums
        axes, filled = [*plan.kept, *plan.summed], [Walk()] * SUMMED
        pieces = [*plan.pieces, *([1] * SUMMED)]
        for axis, piece, walk in zip(axes, pieces, [*walks, *filled], strict=True):
            words += [axis.extent, piece, axis.step]
            words += self._walk_words(axis, axis.x, True) + self._walk_words(axis, axis.y, False)
            words += [walk.stride, walk.block, self._windows(axis, walk)]
            words += [axis.out.stride, axis.out.block, 0]
        return words + [0] * (AXIS * (AXES - len(axes)))

    def _windows(self, axis: PlannedAxis, walk: Walk) -> int:
        """Where the offsets lie of an axis that windows divide; 0 for others."""
        if walk.scale == 1:
            return 0
        i = np.arange(axis.extent)
        places = i // walk.scale * walk.stride + i % walk.scale * walk.plane
        return self._table(places.astype(np.int32))

    def _walk_words(self, axis: PlannedAxis, walk: Walk, of_x: bool) -> list[int]:
        """A walk of an operand; a table where addresses are divided."""
        pairs = [p for p in self.plan.pairs if p.kept == axis.number and p.of_x is of_x]
        divided = [p.line for p in pairs if p.line is not None and axis.number is not None]
        if not divided:
            return [walk.stride, walk.block, 0]
        i, width = np.arange(axis.extent), self.plan.target.lanes
        base = i // width * walk.block + i % width if walk.block else i * walk.stride
        return [walk.stride, walk.block, self._table((base + sum(divided)).astype(np.int32))]

    def _pair_words(self) -> list[int]:
        words = [w for pair in self.plan.pairs for w in self._pair(pair)]
        return words + [0] * (PAIR * (PAIRS - len(self.plan.pairs)))

    def _pair(self, pair: Pair) -> list[int]:
        plan = self.plan
        kept = [axis.number for axis in plan.kept]
        summed = [axis.number for axis in plan.summed]
        side = len(plan.batches) + (0 if pair.of_x else len(plan.rows))
        a = side if pair.kept is None else kept.index(pair.kept)
        z = 0 if pair.summed is None else summed.index(pair.summed)
        class_of = pair.class_of
        if pair.kept is None:  # the same for all indices of any axis
            class_of = np.zeros(plan.kept[a].extent + LANES, np.uint8)
        number, extent = plan.strided
        extent = extent if number == 0 else plan.summed[0].extent
        count = extent if pair.summed is None else 1
        exists = np.repeat(pair.exists, count, axis=1)
        term = 0 if pair.term is None else self._table(np.repeat(pair.term, count, axis=1))
        words = [a, len(kept) + z, len(exists), self._table(class_of), self._table(exists)]
        return words + ([term, 0] if pair.of_x else [0, term])

    def _table(self, array: Array) -> int:
        """Where the description holds `array`, in bytes."""
        at = HEAD + len(self.tables)
        data = np.ascontiguousarray(array).tobytes()
        self.tables += data + bytes(-len(data) % 8)
        return at
