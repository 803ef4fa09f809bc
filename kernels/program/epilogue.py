"""The epilogue of a contraction: the pointwise rest of the body, as a nest on its sums."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphc.ir import Graph, Node, Value
from graphc.ir.sections import sections_of_sums
from graphc.kernels.program.access import AffineIndex, Domain, linear_index, merge_axes
from graphc.kernels.program.body.expression import BodyWriter
from graphc.kernels.program.body.names import Identifiers, Pointers
from graphc.kernels.program.body.statement import Address, NamedFunction
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.nest import Nest
from graphc.kernels.program.pieces import every_section, pieces
from graphc.kernels.program.pointwise_nest import PointwiseNest
from graphc.ops.pooling import MaxPool2d


@dataclass(frozen=True)
class Epilogue(PointwiseNest):
    """A nest on sums, which a caller has in registers of `dtype`."""

    dtype: str
    inplace: tuple[tuple[int, int], ...]
    """(input, output) pairs that may share memory."""
    live_out: tuple[str, ...] = ()
    """Registers of values that a caller reads after the program, without a store."""

    @property
    def used(self) -> dict[str, Value]:
        """The pointers that the program uses, in the order of the kernel's arguments."""
        mentioned = self.program.pointers
        return {name: value for value, name in self.pointers.items() if name in mentioned}

    def over(self, kinds: Sequence[object] = ()) -> tuple[Epilogue, tuple[tuple[int, ...], ...]]:
        """The epilogue over merged axes, and the old axes that each new axis replaces."""
        domain, groups = merge_axes(self.domain, self.program.accesses, kinds)
        return replace(self, program=self.program.merged(groups), domain=domain), groups


def epilogue_of(
    body: Graph,
    nest: Nest,
    domain: Domain,
    indices: tuple[AffineIndex, ...],
    parts: int = 0,
    live_out: Sequence[Value] = (),
    pointers: Pointers | None = None,
    names: Identifiers | None = None,
) -> Epilogue:
    """The epilogue on a register `sum` at `indices` of the contraction's output.

    If the body pools, it runs over the pooled pixels, on the registers `sum[0]`, `sum[1]`, ... of a
    window; if it reads sections of the output, on a register for each section. With `parts` it adds
    that many partial sums from the workspace, which lie in the output's order. `live_out` are
    values of the output's shape that stay in registers. `pointers` and `names` belong to an
    enclosing kernel.
    """
    names = names or Identifiers()
    pointers = pointers or names.pointers(body)
    walk = BodyWriter(body, domain, pointers, names)
    output, sections, pool = nest.node.output, sections_of_sums(body), pooling(body)
    type = pool.outputs[0].type if pool else output.type
    shape = sections.shape(type.shape) if sections else type.shape
    if pool:
        _give_largest(walk, pool, output, indices)
    else:
        sums = every_section(indices, sections) if sections else [indices]
        for number, here in enumerate(sums):
            register = f"sum[{number}]" if sections else "sum"
            if parts:
                memory = Address("workspace", linear_index(type.shape, here, domain))
                settings, result = (parts, type.size), ("sum", type.dtype)
                (register,) = walk.call([result], "add_parts", settings, memory)
            walk.bind(output, here, register)
    stored = [(v, p) for v in body.outputs for p in pieces(body, v, indices, shape, sections)]
    walk.store_all(stored)
    registers = tuple(walk.value(v, indices) for v in live_out)
    program = walk.flush()
    # Operands are read by many tiles: they are never overwritten.
    operands = [body.inputs[read.input] for read in (nest.a, nest.b)]
    inplace = inplace_pairs(body, [program], pointers, operands)
    return Epilogue(body.outputs, domain, program, pointers, output.type.dtype, inplace, registers)


def pooling(body: Graph) -> Node | None:
    """The max_pool2d of the body, if it has one."""
    return next((n for n in body.nodes if isinstance(n.op, MaxPool2d)), None)


def _give_largest(
    walk: BodyWriter, pool: Node, sums: Value, indices: tuple[AffineIndex, ...]
) -> None:
    """Compute the outputs of `pool` from the window's sums in `sum[0]`, `sum[1]`, ..."""
    assert isinstance(pool.op, MaxPool2d)
    n, k, p, q = indices
    largest = []
    rows, columns = pool.op.kernel_size
    for number, (r, s) in enumerate(itertools.product(range(rows), range(columns))):
        here = (n, k, _scaled(p, rows, r), _scaled(q, columns, s))
        walk.bind(sums, here, f"sum[{number}]")
        largest.append(walk.value(pool.inputs[0], here))
    results = [(v.name, v.type.dtype) for v in pool.outputs]
    registers = walk.compute_all(results, NamedFunction("largest"), *largest)
    for value, register in zip(pool.outputs, registers, strict=True):
        walk.bind(value, indices, register)


def _scaled(index: AffineIndex, factor: int, offset: int) -> AffineIndex:
    """The index `factor * index + offset`."""
    return AffineIndex(tuple(factor * c for c in index.coefficients), offset)
