"""Bodies of one op that goes along one axis: rows, the axis, what is read and what is written.

The text that reads an element and the text that stores a result are functors of the row's indices
`i`, its last index `r` and the place `j` along the axis. The results are a struct's `value` and,
if there are two outputs, `place`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphc.ir import Node, Value
from graphc.kernels.access import Domain, access_cost, merge_axes
from graphc.kernels.expression import C_TYPES, Names, Program, Walk
from graphc.kernels.shell import argument_order, array_dtypes, array_text, domain_text
from graphc.ops.fused import Fused


@dataclass(frozen=True)
class Space:
    """The rows and the axis of a body: `read` computes `operand`, an element of type `dtype`,
    `write` stores the results. The merged domain's axes other than `axis` are the rows'."""

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
    def extent(self) -> int:
        """Elements along the axis."""
        return self.domain.extents[self.axis]

    def strips(self, registers: int) -> int:
        """The rows, in strips of so many registers of neighbours."""
        count = 1
        for axis in self.kept:
            count *= self.domain.steps(axis)
        last = self.domain.steps(self.kept[-1]) if self.kept else 1
        return count // last * -(-last // registers) if last else 0

    @property
    def whole(self) -> Program:
        arrays = {**self.read.arrays, **self.write.arrays}
        return Program((*self.read.statements, *self.write.statements), arrays, {})

    @property
    def cost(self) -> float:
        """Loads and stores per element, in contiguous registers, with the lanes' waste."""
        return self.waste * sum(access_cost(a, self.domain.width) for a in self.whole.accesses)

    @property
    def waste(self) -> float:
        """Lanes there are per lane that lives."""
        domain = self.domain
        assert domain.lane is not None
        return domain.steps(domain.lane) * domain.width / max(domain.extents[domain.lane], 1)


def only_node(node: Node, template: str) -> Node:
    """The node of the body whose own template this is."""
    assert isinstance(node.op, Fused)
    (inner,) = (n for n in node.op.body.nodes if n.op.own_template == template)
    values = (*node.op.body.inputs, *node.op.body.outputs)
    assert all(v.type.layout.axis is None for v in values), f"{template} is row-major"
    return inner


def lane_axes(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The axes that may lie in the lanes: `axis` itself, and the last of the others."""
    others = [d for d in range(len(shape)) if d != axis and shape[d] != 1]
    return (axis, *others[-1:])


def space_of(node: Node, inner: Node, axis: int, domain: Domain) -> Space:
    """What to read and to write for `inner`, whose input has the axes of `domain`."""
    assert isinstance(node.op, Fused)
    body, x, names = node.op.body, inner.inputs[0], Names()
    pointers = {v: names.fresh(v.name, "data") for v in (*body.inputs, *body.outputs)}
    walk = Walk(body, domain, pointers, names)
    operand = walk.value(x, domain.identity())
    read, walk.statements = walk.program(), []
    for output, field in zip(inner.outputs, ("value", "place"), strict=False):
        if output in body.outputs:
            result = "convert<int64_t>(state.place)" if field == "place" else "state.value"
            walk.store(output, domain.identity(), result)
    write = walk.program()
    kinds = [d == axis for d in range(domain.rank)]
    merged, groups = merge_axes(domain, (*read.accesses, *write.accesses), kinds)
    place = next((i for i, g in enumerate(groups) if axis in g), None)
    if place is None:  # of extent 1: merged away
        place, groups = len(groups), (*groups, (axis,))
        merged = Domain((*merged.extents, 1), merged.lane, merged.width)
    read, write = read.merged(groups), write.merged(groups)
    return Space(x.type.dtype, merged, place, read, operand, write, pointers)


def rows_text(space: Space) -> str:
    """The constants, and the domain `Kept` of the rows."""
    kept = space.kept
    extents = tuple(space.domain.extents[d] for d in kept) or (1,)
    lane = -1 if space.in_lanes else len(kept) - 1
    arrays = array_text(space.whole.arrays, array_dtypes(space.whole))
    return arrays + domain_text("Kept", Domain(extents, lane, space.domain.width))


def functor_lines(space: Space, state: str) -> list[str]:
    """The two functors and the end of the call that takes them."""
    kept = space.kept
    names = [f"i[{kept.index(d)}]" if d in kept[:-1] else "r" for d in range(space.domain.rank)]
    names[space.axis] = "j"
    arguments = "const long* i, long r, long j"
    return [
        f"    [=]<int N>({arguments}) __attribute__((always_inline)) {{",
        *(f"      {line}" for line in space.read.lines(names)),
        f"      return {space.operand};",
        f"    }}, [=]<int N>({arguments}, const {state}& state) __attribute__((always_inline)) {{",
        *(f"      {line}" for line in space.write.lines(names)),
        "    });",
    ]


def pointer_lines(node: Node, space: Space) -> list[str]:
    """Definitions of the pointers that the functors use."""
    assert isinstance(node.op, Fused)
    used = frozenset().union(*(s.pointers for s in space.whole.statements))
    order, outputs = argument_order(node), set(node.op.body.outputs)
    return [
        f"  {'' if value in outputs else 'const '}{C_TYPES[value.type.dtype]}* const {name} = "
        f"({C_TYPES[value.type.dtype]}*)arguments[{order[value]}];"
        for value, name in space.pointers.items()
        if name in used
    ]
