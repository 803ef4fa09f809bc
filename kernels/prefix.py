"""Lowering of running results along an axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphc.ir import Node, Value
from graphc.kernels.access import Domain, access_cost, merge_axes
from graphc.kernels.expression import C_TYPES, Names, Program, Walk
from graphc.kernels.kernel import Kernel
from graphc.kernels.shell import (
    argument_order,
    array_dtypes,
    array_text,
    chunk_count,
    domain_text,
    framed,
    inplace_pairs,
    program_cost,
    symbol,
)
from graphc.ops.fused import Fused
from graphc.ops.prefix import Prefix
from graphc.target import Target

STRIP = 4
"""Registers of neighbouring rows that go down the axis together."""
ENOUGH_STRIPS = 16
"""Where there are so many, no axis is cut: its elements would be joined twice."""
FEW_STEPS = 64
"""The fewest steps per piece of an axis that is cut."""
STATES = {
    "sum": "RunningSum",
    "prod": "RunningProd",
    "max": "RunningMax",
    "min": "RunningMin",
    "logsumexp": "RunningLogsumexp",
}
_JOIN_NANOSECONDS = {"logsumexp": 12.0}
_LANE_BYTES = 12
"""Bytes per lane of a state at most: a double and a place."""


@dataclass(frozen=True)
class Space:
    """The rows and the axis of a body: `read` computes `operand`, `write` stores the results. The
    merged domain's axes other than `axis` are the rows'."""

    op: Prefix
    dtype: str
    domain: Domain
    axis: int
    read: Program
    operand: str
    write: Program
    pointers: Mapping[Value, str]

    @property
    def in_lanes(self) -> bool:
        """Whether the axis lies in the lanes."""
        return self.domain.lane == self.axis

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(d for d in range(self.domain.rank) if d != self.axis)

    @property
    def strip(self) -> int:
        """Registers per strip."""
        return 1 if self.in_lanes else min(STRIP, self.domain.steps(self.kept[-1]))

    @property
    def strips(self) -> int:
        count = 1
        for axis in self.kept:
            count *= self.domain.steps(axis)
        last = self.domain.steps(self.kept[-1]) if self.kept else 1
        return count // last * -(-last // self.strip) if last else 0

    @property
    def whole(self) -> Program:
        arrays = {**self.read.arrays, **self.write.arrays}
        return Program((*self.read.statements, *self.write.statements), arrays, {})


def lower_prefix(node: Node, target: Target) -> Kernel:
    """The kernel of a body of one running result; it reads row-major inputs through views."""
    assert isinstance(node.op, Fused)
    body = node.op.body
    values = (*body.inputs, *body.outputs)
    assert all(v.type.layout.axis is None for v in values), "prefix is row-major"
    space = find_space(node, target.lanes)
    width, steps = target.lanes, space.domain.steps(space.axis)
    per_strip = (program_cost(space.whole, width) + _joins(space)) * steps * space.strip
    strips = space.strips if steps else 0
    wanted = chunk_count(per_strip * strips, strips * max(steps // FEW_STEPS, 1))
    pieces = -(-wanted // strips) if 0 < strips < ENOUGH_STRIPS and wanted >= 2 * strips else 1
    chunks = strips * pieces if pieces > 1 else min(wanted, max(strips, 1))
    states = strips * space.strip * pieces
    return Kernel(
        symbol(node),
        "prefix",
        _text(node, space, strips, pieces, chunks),
        phases=(chunks,) * (2 if pieces > 1 else 1),
        workspace=states * _LANE_BYTES * width if pieces > 1 else 0,
        flops=space.domain.size,
        bytes=sum(v.type.nbytes for v in values),
        inplace=inplace_pairs(node, [(space.whole, space.domain, space.pointers)]),
    )


def find_space(node: Node, width: int) -> Space:
    """The cheaper of the two: the axis in the lanes, or the last of the other axes."""
    assert isinstance(node.op, Fused)
    inner = running(node)
    assert isinstance(inner.op, Prefix)
    shape, axis = inner.inputs[0].type.shape, inner.op.axis
    others = [d for d in range(len(shape)) if d != axis and shape[d] != 1]
    spaces = [space_of(node, inner, Domain(shape, d, width)) for d in (axis, *others[-1:])]
    return min(spaces, key=_cost)


def running(node: Node) -> Node:
    """The node of the body that makes the running result."""
    assert isinstance(node.op, Fused)
    (inner,) = (n for n in node.op.body.nodes if isinstance(n.op, Prefix))
    return inner


def space_of(node: Node, inner: Node, domain: Domain) -> Space:
    """What to read and to write for `inner`, whose values have the axes of `domain`."""
    assert isinstance(node.op, Fused) and isinstance(inner.op, Prefix)
    body, x, names = node.op.body, inner.inputs[0], Names()
    pointers = {v: names.fresh(v.name, "data") for v in (*body.inputs, *body.outputs)}
    walk = Walk(body, domain, pointers, names)
    operand = walk.value(x, domain.identity())
    read, walk.statements = walk.program(), []
    for output, field in zip(inner.outputs, ("value", "place"), strict=False):
        if output in body.outputs:
            convert = "convert<int64_t>(state.place)" if field == "place" else "state.value"
            walk.store(output, domain.identity(), convert)
    write = walk.program()
    kinds = [d == inner.op.axis for d in range(domain.rank)]
    merged, groups = merge_axes(domain, (*read.accesses, *write.accesses), kinds)
    axis = next((i for i, g in enumerate(groups) if inner.op.axis in g), None)
    if axis is None:  # of extent 1: merged away
        axis, merged = len(groups), Domain((*merged.extents, 1), merged.lane, merged.width)
        groups = (*groups, (inner.op.axis,))
    read, write = read.merged(groups), write.merged(groups)
    return Space(inner.op, x.type.dtype, merged, axis, read, operand, write, pointers)


def _cost(space: Space) -> float:
    """Per element, in contiguous registers."""
    domain = space.domain
    assert domain.lane is not None
    waste = domain.steps(domain.lane) * domain.width / max(domain.extents[domain.lane], 1)
    moved = sum(access_cost(a, domain.width) for a in space.whole.accesses)
    return waste * (moved + _joins(space))


def _joins(space: Space) -> float:
    """Nanoseconds per register: in the lanes a register joins copies of itself."""
    return _JOIN_NANOSECONDS.get(space.op.combine, 0.3) * (5 if space.in_lanes else 1)


def _text(node: Node, space: Space, strips: int, pieces: int, chunks: int) -> str:
    name, domain = symbol(node), space.domain
    if not strips:
        return framed(node, "prefix", f'extern "C" void {name}(void* const*, int, int) {{}}\n')
    kept = space.kept
    lane = -1 if space.in_lanes else len(kept) - 1
    extents = tuple(domain.extents[d] for d in kept) or (1,)
    indices = [f"i[{kept.index(d)}]" if d in kept[:-1] else "r" for d in range(domain.rank)]
    indices[space.axis] = "j"
    state = f"{STATES[space.op.combine]}<{C_TYPES[space.dtype]}>"
    extent, reverse = domain.extents[space.axis], str(space.op.reverse).lower()
    settings = f"Kept, {state}, {reverse}, {extent}, {space.strip}, {pieces}"
    if pieces == 1:
        span, piece = f"chunk * {strips}L / {chunks}, (chunk + 1) * {strips}L / {chunks}", "0"
    else:
        span, piece = f"chunk / {pieces}, chunk / {pieces} + 1", f"chunk % {pieces}"
    workspace = f"(char*)arguments[{len(argument_order(node))}]" if pieces > 1 else "nullptr"
    lines = [
        f'extern "C" void {name}(void* const* arguments, int phase, int chunk) {{',
        *(f"  {line}" for line in _pointers(node, space)),
        f"  prefix<{settings}>({span}, phase, {piece}, {workspace},",
        "    [=]<int N>(const long* i, long r, long j) __attribute__((always_inline)) {",
        *(f"      {line}" for line in space.read.lines(indices)),
        f"      return {space.operand};",
        f"    }}, [=]<int N>(const long* i, long r, long j, const {state}& state) "
        "__attribute__((always_inline)) {",
        *(f"      {line}" for line in space.write.lines(indices)),
        "    });",
        "}",
    ]
    arrays = array_text(space.whole.arrays, array_dtypes(space.whole))
    kept_text = domain_text("Kept", Domain(extents, lane, domain.width))
    return framed(node, "prefix", arrays, kept_text, "".join(f"{x}\n" for x in lines))


def _pointers(node: Node, space: Space) -> list[str]:
    used = frozenset().union(*(s.pointers for s in space.whole.statements))
    order = argument_order(node)
    outputs = set(node.op.body.outputs)  # type: ignore[attr-defined]
    return [
        f"{'' if value in outputs else 'const '}{C_TYPES[value.type.dtype]}* const {name} = "
        f"({C_TYPES[value.type.dtype]}*)arguments[{order[value]}];"
        for value, name in space.pointers.items()
        if name in used
    ]
