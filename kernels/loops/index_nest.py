"""The plain nest of a gather's gradient and of a scatter: elements that are put, or combined, at
indices that are data.

    for a, j, b serial
      store out[a, j, b], what was there or 0
    for a, i, b serial
      p = load indices[i], or [a, i, b]
      at j = p serial
        store out[a, j, b], out[a, j, b] combined with source[a, i, b]

Each letter stands for axes that were merged where all accesses step through them as through one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graphc.ir import Node
from graphc.kernels.loops.language import At, Loop, Nest, Unless
from graphc.kernels.loops.plain import memory_of
from graphc.kernels.program.access import Domain, merge_axes
from graphc.kernels.program.axis import only_node, overwritten
from graphc.kernels.program.body.expression import BodyWriter
from graphc.kernels.program.body.names import Identifiers, Pointers
from graphc.kernels.program.body.statement import RegisterProgram, joined
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import TakeGrad
from graphc.ops.pointwise.arithmetic import Add, Maximum, Minimum, Multiply
from graphc.ops.scatter import Scatter

COMBINE = {"sum": Add(), "prod": Multiply(), "max": Maximum(), "min": Minimum()}
"""The op of an element and of what is combined with it, by `Scatter.combine`."""


@dataclass(frozen=True)
class IndexNest:
    """The nest of a kernel whose op is that of `node`, and what its memory is."""

    node: Node
    nest: Nest
    letters: tuple[tuple[int, ...], ...]
    """The domain's axes of each letter: a, j, i and b."""
    program: RegisterProgram
    """All statements, over the axes before they were merged."""
    pointers: Pointers
    """Pointer names of the body's inputs and outputs."""
    inplace: tuple[tuple[int, int], ...]
    """The (input, output) pair that may be one array, if there is one."""

    @property
    def output(self) -> str:
        """The memory that is written."""
        return self.pointers[self.node.output]

    @property
    def scan(self) -> Loop:
        """The loop over the indices, whose last step is an `At`."""
        loop = self.nest.body[-1]
        assert isinstance(loop, Loop), f"no loop: {loop}"
        return loop

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements along the axes of each letter."""
        extents = self.nest.domain.extents
        return tuple(math.prod(extents[d] for d in axes) for axes in self.letters)


def index_nest(node: KernelNode, kind: type[TakeGrad] | type[Scatter]) -> IndexNest:
    """The nest of a body with one op of this kind on row-major values, read through views."""
    inner, op = only_node(node, kind)
    assert isinstance(op, TakeGrad | Scatter)
    assert node.body.outputs == inner.outputs, f"nothing follows {op.name}"
    (*old, indices, source), output, axis = inner.inputs, inner.output, op.axis
    count, shape = indices.type.rank if isinstance(op, TakeGrad) else 1, source.type.shape
    extents = (*shape[:axis], output.type.shape[axis], *shape[axis:], 1)
    domain, names = Domain(extents), Identifiers()
    behind = axis + 1 + count
    axes = range(axis), (axis,), range(axis + 1, behind), range(behind, len(extents))
    a, j, i, (*b, _) = (tuple(domain.axis(d) for d in letter) for letter in axes)
    pointers = names.pointers(node.body)
    walk, place = BodyWriter(node.body, domain, pointers, names), (*a, *j, *b)
    first = [walk.value(x, place) for x in old] or [walk.constant("zero", output.type.dtype, 0)]
    walk.store(output, place, *first)
    begin = walk.flush()
    walk.forget(None)
    index = walk.value(indices, i if isinstance(op, TakeGrad) else (*a, *i, *b))
    find = walk.flush()
    value = walk.value(source, (*a, *i, *b))
    combine = "sum" if isinstance(op, TakeGrad) else op.combine
    if combine != "replace":
        found = walk.load(output, output.type, place, ())
        value = walk.compute(output.name, output.type.dtype, COMBINE[combine], found, value)
    walk.store(output, place, value)
    programs = begin, find, walk.flush()
    inplace = overwritten(node, inner) if old else ()
    kept = pointers[inner.inputs[0]] if inplace else ""
    nest, letters = _nest(domain, axes, programs, index, pointers, pointers[output], kept)
    return IndexNest(inner, nest, letters, joined(programs), pointers, inplace)


def _nest(
    domain: Domain,
    axes: Sequence[Sequence[int]],
    programs: tuple[RegisterProgram, RegisterProgram, RegisterProgram],
    index: str,
    pointers: Pointers,
    output: str,
    source: str,
) -> tuple[Nest, tuple[tuple[int, ...], ...]]:
    """The nest over as few axes as visit the same elements in the same order, and those of each
    letter; memory `source` may be the output's."""
    kinds = [kind for kind, letter in enumerate(axes) for _ in letter]
    whole = joined(programs)
    _, groups = merge_axes(domain, whole.accesses, kinds)
    kept = {kinds[group[0]] for group in groups}
    single = [(letter[-1],) for kind, letter in enumerate(axes) if kind not in kept and letter]
    groups = tuple(sorted((*groups, *single)))  # what is of one element is a loop too
    extents = tuple(math.prod(domain.extents[d] for d in group) for group in groups)
    of = [kinds[group[0]] for group in groups]
    a, j, i, b = (tuple(d for d, kind in enumerate(of) if kind == letter) for letter in range(4))
    begin, find, change = (p.merged(groups).statements for p in programs)
    copy = Loop((*a, *j, *b), "serial", begin)
    at = At(j, "serial", change, register=index)
    body = (
        Unless(source, output, (copy,)) if source else copy,
        Loop((*a, *i, *b), "serial", (*find, at)),
    )
    values = pointers.values_by_name
    used = {name: values[name] for name in whole.pointers if name in values}
    memory = memory_of(used, {values[output]}, whole.arrays)
    return Nest(Domain(extents), memory, body), (a, j, i, b)
