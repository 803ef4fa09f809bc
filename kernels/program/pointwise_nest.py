"""Group the outputs of a pointwise body into loop nests.

Nests that do the same to other arrays, such as the updates of all parameters, share one function,
so that the text does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphc.ir import Graph, Value
from graphc.kernels.program.access import Domain, merge_axes
from graphc.kernels.program.body.expression import BodyWriter
from graphc.kernels.program.body.names import Identifiers, Pointers
from graphc.kernels.program.body.statement import RegisterProgram
from graphc.kernels.program.pieces import pieces, space

MOST = 32
"""The most outputs of a nest: reading an array once more costs less than compiling a function of
hundreds of outputs."""


@dataclass(frozen=True)
class PointwiseNest:
    """A loop nest whose `program` stores `outputs` at each index of `domain`."""

    outputs: tuple[Value, ...]
    """The outputs that it stores."""
    domain: Domain
    """The indices that it runs at."""
    program: RegisterProgram
    """The statements of one index."""
    pointers: Pointers = field(compare=False)
    """Pointer names of the body's inputs and outputs."""

    @property
    def used(self) -> dict[str, Value]:
        """The pointers that the program uses, in order of first use."""
        values = self.pointers.values_by_name
        return {name: values[name] for name in self.program.pointers if name in values}

    @property
    def merged(self) -> PointwiseNest:
        """The nest over as few axes as visit the same elements in the same order."""
        domain, groups = merge_axes(self.domain, self.program.accesses)
        return PointwiseNest(self.outputs, domain, self.program.merged(groups), self.pointers)


def group_outputs(body: Graph) -> list[tuple[Value, ...]]:
    """The outputs in groups of at most `MOST`, of one shape (of a section's shape for a concat),
    that read a common array of more than one element or none at all."""
    arrays: dict[Value, frozenset[Value]] = {
        v: frozenset((v,)) if v.type.size > 1 else frozenset() for v in body.inputs
    }
    for node in body.nodes:
        read = frozenset[Value]().union(*(arrays[v] for v in node.inputs))
        made = {v for v in node.outputs if not node.inputs and v.type.size > 1}
        arrays.update(dict.fromkeys(node.outputs, read | made))
    groups: dict[int, list[Value]] = {}
    group_of: dict[tuple[tuple[int, ...], Value | None], int] = {}
    """The group of a shape that reads an array, or reads none."""
    read_by: dict[int, list[tuple[tuple[int, ...], Value | None]]] = {}
    """The keys of each group."""
    for number, output in enumerate(dict.fromkeys(body.outputs)):
        shape = space(body, output)
        keys: list[tuple[tuple[int, ...], Value | None]]
        keys, members = [(shape, v) for v in arrays[output]] or [(shape, None)], [output]
        for other in {group_of[key] for key in keys if key in group_of}:
            if len(members) + len(groups[other]) <= MOST:
                members += groups.pop(other)
                keys += read_by.pop(other)
        groups[number], read_by[number] = members, keys
        group_of.update(dict.fromkeys(keys, number))
    order = {v: i for i, v in enumerate(body.outputs)}
    return [tuple(sorted(members, key=order.__getitem__)) for members in groups.values()]


def make_pointwise_nest(
    body: Graph,
    outputs: Sequence[Value],
    domain: Domain,
    pointers: Pointers,
    names: Identifiers | None = None,
    order: Sequence[int] = (),
) -> PointwiseNest:
    """The nest that stores `outputs` of one shape, over a domain with their axes in `order`."""
    walk = BodyWriter(body, domain, pointers, names)
    here, shape = domain.identity(order), domain.shape(order)
    walk.store_all([(v, p) for v in outputs for p in pieces(body, v, here[: v.type.rank], shape)])
    return PointwiseNest(tuple(outputs), domain, walk.flush(), pointers)
