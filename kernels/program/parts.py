"""The parts of a pointwise body: outputs of one shape that are computed together.

Parts that do the same to other arrays, as the update of every parameter does, share one function,
so that the text does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphc.ir import Graph, Value
from graphc.kernels.program.access import Domain, merge_axes
from graphc.kernels.program.expression import Walk
from graphc.kernels.program.names import Names
from graphc.kernels.program.pieces import pieces, space
from graphc.kernels.program.statement import Program


@dataclass(frozen=True)
class Part:
    """One loop: `program` stores `outputs` at each index of `domain`."""

    outputs: tuple[Value, ...]
    domain: Domain
    program: Program
    pointers: Mapping[Value, str] = field(compare=False)

    @property
    def used(self) -> dict[str, Value]:
        """The pointers that the program mentions, in the order in which it does."""
        values = {name: value for value, name in self.pointers.items()}
        return {name: values[name] for name in self.program.pointers if name in values}

    @property
    def likeness(self) -> object:
        """Equal for parts that one function can do, given pointers and, of one axis, an extent."""
        registers = [r.name for s in self.program.statements for r in s.results]
        names = {name: f"name{i}" for i, name in enumerate((*self.used, *registers))}
        indices = [f"i{d}" for d in range(self.domain.rank)]
        lines = self.program.renamed(names).lines(indices)
        dtypes = tuple(value.type.dtype for value in self.used.values())
        return self.domain if self.domain.rank > 1 else None, dtypes, tuple(lines)

    @property
    def merged(self) -> Part:
        """This part over as few axes as visit the same elements in the same order."""
        domain, groups = merge_axes(self.domain, self.program.accesses)
        return Part(self.outputs, domain, self.program.merged(groups), self.pointers)


def grouped(body: Graph) -> list[tuple[Value, ...]]:
    """The outputs in groups of one shape (of a section, where a concat makes it) that read a common
    array of more than one element, or none."""
    arrays: dict[Value, frozenset[Value]] = {
        v: frozenset((v,)) if v.type.size > 1 else frozenset() for v in body.inputs
    }
    for node in body.nodes:
        read = frozenset[Value]().union(*(arrays[v] for v in node.inputs))
        made = {v for v in node.outputs if not node.inputs and v.type.size > 1}
        arrays.update(dict.fromkeys(node.outputs, read | made))
    groups: list[tuple[list[Value], frozenset[Value]]] = []
    for output in dict.fromkeys(body.outputs):
        members, read = [output], arrays[output]
        for group in list(groups):
            same_shape = space(body, group[0][0]) == space(body, output)
            if same_shape and (group[1] & read or not group[1] | read):
                groups.remove(group)
                members, read = [*group[0], *members], group[1] | read
        groups.append((members, read))
    order = {v: i for i, v in enumerate(body.outputs)}
    return [tuple(sorted(members, key=order.__getitem__)) for members, _ in groups]


def make_part(
    body: Graph,
    outputs: Sequence[Value],
    domain: Domain,
    pointers: Mapping[Value, str],
    names: Names | None = None,
    order: Sequence[int] = (),
) -> Part:
    """The part that stores these outputs of one shape, in the domain of their own axes, which are
    in `order`."""
    walk = Walk(body, domain, pointers, names)
    here, shape = domain.identity(order), domain.shape(order)
    walk.store_all([(v, p) for v in outputs for p in pieces(body, v, here[: v.type.rank], shape)])
    return Part(tuple(outputs), domain, walk.taken(), pointers)
