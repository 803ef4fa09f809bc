"""Bodies whose one op runs along one axis, such as a scan or a sort: rows, axis, reads and
writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from graphc.ir import Node, Op, Value
from graphc.kernels.program.access import Domain, access_cost, merge_axes
from graphc.kernels.program.body.expression import BodyWriter
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.body.statement import RegisterProgram, joined
from graphc.ops.fused import KernelNode

OpT = TypeVar("OpT", bound=Op)


@dataclass(frozen=True)
class AxisBody:
    """A body with one op along an axis; the other axes of the merged domain are the rows."""

    dtype: str
    """The dtype of an element."""
    domain: Domain
    """The merged domain."""
    axis: int
    """The domain axis that the op runs along."""
    read: RegisterProgram
    """Computes the register `operand`, one element."""
    operand: str
    """The register that `read` computes."""
    write: RegisterProgram
    """Stores the results."""
    pointers: Mapping[Value, str]
    """Pointer names of inputs and outputs."""

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

    def strips(self, registers: int) -> int:
        """The number of strips that cover the rows, each of `registers` neighbouring registers."""
        count = 1
        for axis in self.kept:
            count *= self.domain.steps(axis)
        last = self.domain.steps(self.kept[-1]) if self.kept else 1
        return count // last * -(-last // registers) if last else 0

    @property
    def program(self) -> RegisterProgram:
        """The statements of `read` and `write`."""
        return joined((self.read, self.write))

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


def axis_body(node: KernelNode, inner: Node, axis: int, domain: Domain) -> AxisBody:
    """The reads and writes around `inner`, whose input has the axes of `domain`."""
    body, x, names = node.body, inner.inputs[0], Identifiers()
    pointers = names.pointers(body)
    walk = BodyWriter(body, domain, pointers, names)
    operand = walk.value(x, domain.identity())
    read = walk.flush()
    for output, field in zip(inner.outputs, ("value", "place"), strict=False):
        if output in body.outputs:
            result = "convert<int64_t>(state.place)" if field == "place" else "state.value"
            walk.store(output, domain.identity(), result)
    write = walk.flush()
    kinds = [d == axis for d in range(domain.rank)]
    merged, groups = merge_axes(domain, (*read.accesses, *write.accesses), kinds)
    place = next((i for i, g in enumerate(groups) if axis in g), None)
    if place is None:  # of extent 1: merged away
        place, groups = len(groups), (*groups, (axis,))
        merged = Domain((*merged.extents, 1), merged.lane, merged.width)
    read, write = read.merged(groups), write.merged(groups)
    return AxisBody(x.type.dtype, merged, place, read, operand, write, pointers)
