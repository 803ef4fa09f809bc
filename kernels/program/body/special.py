"""Lower ops that are more than one expression per element: pad and concat, iota and Philox, take
and searchsorted.

Each function writes the statements of one node at `indices` under `guards` and returns the register
of each output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphc.ir import Node
from graphc.kernels.program.access import (
    AffineIndex,
    Guard,
    bounds_guard,
    compose_index,
    index_access,
    linear_index,
)
from graphc.kernels.program.body.literals import TRUE, splat_literal, word_literal
from graphc.kernels.program.body.statement import Address, NamedFunction
from graphc.kernels.program.body.window import WINDOWS, strides, window
from graphc.kernels.program.body.writer import Guards, Indices, StatementWriter
from graphc.ops.base import Affine
from graphc.ops.pointwise.logic import C_TYPES


def iota(walk: StatementWriter, node: Node, indices: Indices, guards: Guards) -> tuple[str, ...]:
    """The index along the op's axis."""
    op: Any = node.op
    access = index_access(indices[op.axis], walk.domain)
    dtype = node.output.type.dtype
    iota = NamedFunction("iota", (C_TYPES[dtype], access.lane_stride, access.divisor))
    return (walk.compute(node.output.name, dtype, iota, access, operations=0),)


def philox_uniform(
    walk: StatementWriter, node: Node, indices: Indices, guards: Guards
) -> tuple[str, ...]:
    """A uniform random number from the op's seed, its number, the step and the element index."""
    op: Any = node.op
    step = walk.value(node.inputs[0], (), guards)
    access = linear_index(node.output.type.shape, indices, walk.domain)
    lanes = (access.lane_stride, access.divisor)
    key = word_literal(int(op.seed) & 0xFFFFFFFF), word_literal(op.number)
    results = [(node.output.name, "f32")]
    word = word_literal(op.part)
    return walk.call(results, "philox_uniform", lanes, *key, step, access, word, live=False)


def pad(walk: StatementWriter, node: Node, indices: Indices, guards: Guards) -> tuple[str, ...]:
    """The input's element, or the op's fill value outside the input."""
    op: Any = node.op
    x = node.inputs[0]
    name, dtype = node.output.name, x.type.dtype
    inner: list[AffineIndex] = []
    added: list[Guard] = []
    for d, index in enumerate(indices):
        gap = op.interior[d] + 1
        shifted = compose_index(Affine((1,), -op.low[d]), (index,), walk.domain.rank)
        shifted = AffineIndex(shifted.coefficients, shifted.offset, shifted.divisor * gap)
        verdict = bounds_guard(shifted, x.type.shape[d], walk.domain)
        if verdict is False:
            return (walk.constant(name, dtype, op.value),)
        if isinstance(verdict, Guard):
            added.append(verdict)
        inner.append(shifted)
    whole = guards + tuple(g for g in added if g not in guards)
    register = walk.value(x, tuple(inner), whole)
    if not added:
        return (register,)
    condition = walk.condition(tuple(added))
    outside = splat_literal(op.value, dtype)
    return (walk.compute(name, dtype, NamedFunction("select"), condition, register, outside),)


def concat(walk: StatementWriter, node: Node, indices: Indices, guards: Guards) -> tuple[str, ...]:
    """The element, from the input that contains it."""
    op: Any = node.op
    dtype, start = node.output.type.dtype, 0
    candidates: list[tuple[Guard | None, str]] = []
    for value in node.inputs:
        extent = value.type.shape[op.axis]
        index = compose_index(Affine((1,), -start), (indices[op.axis],), walk.domain.rank)
        start += extent
        at = (*indices[: op.axis], index, *indices[op.axis + 1 :])
        verdict = bounds_guard(index, extent, walk.domain)
        if isinstance(verdict, Guard):
            # Exactness is the business of the guard that brought the divisor.
            whole = guards if verdict in guards else (*guards, verdict)
            candidates.append((verdict, walk.value(value, at, whole)))
        elif verdict:
            candidates.append((None, walk.value(value, at, guards)))
    result = candidates.pop()[1]
    for guard, register in reversed(candidates):
        assert guard is not None
        operands = (walk.condition((guard,)), register, result)
        result = walk.compute(node.output.name, dtype, NamedFunction("select"), *operands)
    return (result,)


def take(walk: StatementWriter, node: Node, indices: Indices, guards: Guards) -> tuple[str, ...]:
    """The element of the table at the index along the op's axis that the second input holds."""
    op: Any = node.op
    positions = node.inputs[1]
    last = op.axis + positions.type.rank
    index = walk.value(positions, indices[op.axis : last], guards)
    return _taken(walk, node, op.axis, index, indices[: op.axis], indices[last:], guards)


def _taken(
    walk: StatementWriter,
    node: Node,
    axis: int,
    index: str,
    before: Indices,
    after: Indices,
    guards: Guards,
) -> tuple[str, ...]:
    """The element of the node's first input at the register `index` along `axis`."""
    table = node.inputs[0]
    lane = walk.domain.lane
    uniform = lane is None or lane not in walk.axes[index]
    pointer, accesses = strides(walk, table, (*before, None, *after))
    extent = table.type.shape[axis]
    base, stride = accesses[0], accesses[1].offset
    shape = (base.lane_stride, base.divisor, stride, extent, str(uniform).lower())
    condition = walk.condition(guards) if guards else TRUE
    results = [(node.output.name, table.type.dtype)]
    return walk.call(results, "take", shape, condition, Address(pointer), base, index)


def take_along_axis(
    walk: StatementWriter, node: Node, indices: Indices, guards: Guards
) -> tuple[str, ...]:
    """The element of the table at the index that the second input holds for the same element."""
    op: Any = node.op
    index = walk.value(node.inputs[1], indices, guards)
    return _taken(walk, node, op.axis, index, indices[: op.axis], indices[op.axis + 1 :], guards)


def searchsorted(
    walk: StatementWriter, node: Node, indices: Indices, guards: Guards
) -> tuple[str, ...]:
    """The position of an element of the second input in the sorted row of the first."""
    op: Any = node.op
    table, values = node.inputs
    register = walk.value(values, indices, guards)
    pointer, (base, step) = strides(walk, table, (*indices[:-1], None))
    right, extent = str(op.right).lower(), table.type.shape[-1]
    shape = (base.lane_stride, base.divisor, step.offset, extent, right)
    condition = walk.condition(guards) if guards else TRUE
    results = [(node.output.name, "i64")]
    return walk.call(results, "search", shape, condition, Address(pointer), base, register)


SPECIAL: Mapping[str, Callable[[StatementWriter, Node, Indices, Guards], tuple[str, ...]]] = {
    "iota": iota,
    "philox_uniform": philox_uniform,
    "pad": pad,
    "concat": concat,
    "take": take,
    "take_along_axis": take_along_axis,
    "searchsorted": searchsorted,
    **dict.fromkeys(WINDOWS, window),
}
"""The lowering function of each op by its name."""
