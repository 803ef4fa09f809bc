"""Nests whose one op, a running result or a sort, runs along an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

from graphc.ir import Node, Op
from graphc.kernels.program.access import Domain, access_cost, merge_axes
from graphc.kernels.program.body.along import FIELDS, Along
from graphc.kernels.program.body.expression import BodyWriter
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.body.statement import NamedFunction
from graphc.kernels.program.pointwise_nest import PointwiseNest
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES

OpT = TypeVar("OpT", bound=Op)


@dataclass(frozen=True)
class AxisNest(PointwiseNest):
    """A nest whose one op runs along an axis of the domain; the other axes are the rows."""

    @property
    def along(self) -> Along:
        """The op's statement."""
        (found,) = (s for s in self.program.statements if isinstance(s, Along))
        return found

    @property
    def dtype(self) -> str:
        """The dtype of an element."""
        return self.along.results[0].dtype

    @property
    def axis(self) -> int:
        """The domain axis that the op runs along."""
        return self.along.op.axis

    @property
    def in_lanes(self) -> bool:
        """Whether the axis lies in the lanes."""
        return self.domain.lane == self.axis

    @property
    def kept(self) -> tuple[int, ...]:
        """The axes of the rows."""
        return tuple(d for d in range(self.domain.rank) if d != self.axis)

    @property
    def extent(self) -> int:
        """Elements along the axis."""
        return self.domain.extents[self.axis]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return math.prod(self.domain.extents[d] for d in self.kept)

    def strips(self, registers: int) -> int:
        """The number of strips that cover the rows, each of `registers` neighbouring registers."""
        count = 1
        for axis in self.kept:
            count *= self.domain.steps(axis)
        last = self.domain.steps(self.kept[-1]) if self.kept else 1
        return count // last * -(-last // registers) if last else 0

    @property
    def cost(self) -> float:
        """Loads and stores per element, in contiguous registers, unused lanes included."""
        return self.waste * sum(access_cost(a, self.domain.width) for a in self.program.accesses)

    @property
    def waste(self) -> float:
        """Lanes computed per lane used."""
        domain = self.domain
        assert domain.lane is not None
        return domain.steps(domain.lane) * domain.width / max(domain.extents[domain.lane], 1)

    @property
    def merged(self) -> AxisNest:
        """The nest over as few axes as visit the same elements in the same order; the op has an
        axis of its own."""
        kinds = [d == self.axis for d in range(self.domain.rank)]
        domain, groups = merge_axes(self.domain, self.program.accesses, kinds)
        if all(self.axis not in group for group in groups):  # of extent 1
            groups = (*groups, (self.axis,))
            domain = Domain((*domain.extents, 1), domain.lane, domain.width)
        return AxisNest(self.outputs, domain, self.program.merged(groups), self.pointers)


def only_node(node: KernelNode, kind: type[OpT]) -> tuple[Node, OpT]:
    """The one node of the body with a template of its own, and its op."""
    ((inner, op),) = ((n, n.op) for n in node.body.nodes if isinstance(n.op, kind))
    values = (*node.body.inputs, *node.body.outputs)
    assert all(v.type.layout.axis is None for v in values), f"{op.name} is row-major"
    return inner, op


def overwritten(node: KernelNode, inner: Node) -> tuple[tuple[int, int], ...]:
    """The (input, output) pair of a scatter that may update its input in place: an input of the
    kernel that nothing else reads. Empty if there is none."""
    x, inputs = inner.inputs[0], node.body.inputs
    once = sum(n.inputs.count(x) for n in node.body.nodes) == 1
    return ((inputs.index(x), 0),) if x in inputs and once else ()


def lane_axes(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The axes that may lie in the lanes: `axis` itself, and the last of the others."""
    others = [d for d in range(len(shape)) if d != axis and shape[d] != 1]
    return (axis, *others[-1:])


def make_axis_nest(node: KernelNode, inner: Node, domain: Domain) -> AxisNest:
    """The nest that stores what `inner`, a running result or a sort, makes of its input; the input
    has the axes of `domain`."""
    body, names, here = node.body, Identifiers(), domain.identity()
    pointers = names.pointers(body)
    walk = BodyWriter(body, domain, pointers, names)
    registers = walk.along(inner, walk.value(inner.inputs[0], here))
    stored = []
    for output, register, field in zip(inner.outputs, registers, FIELDS, strict=False):
        if output in body.outputs:
            dtype = output.type.dtype
            if field == "place":
                to_index = NamedFunction("convert", (C_TYPES[dtype],))
                register = walk.compute("index", dtype, to_index, register, operations=0)
            walk.store(output, here, register)
            stored.append(output)
    return AxisNest(tuple(stored), domain, walk.flush(), pointers).merged
