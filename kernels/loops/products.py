"""The plain nest of a contraction: sums of products in the order that its node states.

    for n, m serial
      for k serial
        a_ = load a[n, k], where it exists
        b_ = load b[k, m]
        sum_ = reduce products a_, b_ over k in k
      store y[n, m], sum_

Operands are read through views and conversions. What is done to the sums is a nest of its own,
which reads them from memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphc.ir import Graph, Node, Value
from graphc.ir.affine import Operand
from graphc.ir.sum_order import SumOrder
from graphc.kernels.loops.language import Loop, Nest
from graphc.kernels.loops.plain import memory_of
from graphc.kernels.loops.sum_orders import contraction_order
from graphc.kernels.program.access import AffineIndex, Domain, Guard, bounds_guard
from graphc.kernels.program.body.expression import BodyWriter
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.body.reduce import Reduce
from graphc.kernels.program.body.statement import Register
from graphc.kernels.program.nest import contraction_nest
from graphc.ops.base import Contraction


def products_nest(
    body: Graph, node: Node, pointers: Mapping[Value, str], names: Identifiers
) -> Nest:
    """The nest that stores the output of the contraction `node` of `body`."""
    op, output = node.op, node.output
    assert isinstance(op, Contraction)
    iteration = op.iteration(*(v.type for v in node.inputs))
    domain, kept = Domain(iteration.extents), tuple(range(iteration.kept))
    summed = tuple(range(iteration.kept, domain.rank))
    walk = BodyWriter(body, domain, pointers, names)
    guards, operands = list[Guard](), list[str]()
    for value, operand in zip(node.inputs, (iteration.a, iteration.b), strict=True):
        indices, own = _read(value, operand, domain)
        operands.append(walk.value(value, indices, own))
        guards += own
    if guards:
        operands.append(walk.condition(guards))
    each = walk.flush()
    result = Register(names.fresh("sum"), output.type.dtype)
    named = op.order or contraction_order(contraction_nest(body))
    order = _of_domain(SumOrder.parse(named), iteration.names) if named else None
    reduce = Reduce((result,), tuple(operands), "products", summed, order)
    walk.axes[result.name] = frozenset(kept)
    place = tuple(AffineIndex(p.coefficients, p.offset) for p in iteration.output)
    walk.store(output, place, result.name)
    after = walk.flush()
    used = {*each.pointers, *after.pointers}
    values = {name: value for value, name in pointers.items() if name in used}
    inner = Loop(summed, "serial", (*each.statements, reduce))
    loop = Loop(kept, "serial", (inner, *after.statements))
    return Nest(domain, memory_of(values, {output}, each.arrays), (loop,))


def _read(
    value: Value, operand: Operand, domain: Domain
) -> tuple[tuple[AffineIndex, ...], tuple[Guard, ...]]:
    """The index along each axis of an operand, and the conditions under which there is such an
    element."""
    indices = tuple(
        AffineIndex(place.coefficients, place.offset, divisor)
        for place, divisor in zip(operand.index, operand.divisors, strict=True)
    )
    verdicts = [
        bounds_guard(place, extent, domain)
        for place, extent in zip(indices, value.type.shape, strict=True)
    ]
    assert domain.size == 0 or False not in verdicts, f"no element of {value} is read"
    return indices, tuple(dict.fromkeys(g for g in verdicts if isinstance(g, Guard)))


def _of_domain(order: SumOrder, names: tuple[str, ...]) -> SumOrder:
    """The order with the numbers of the domain's axes for their names."""
    loops = (
        replace(loop, axes=tuple(str(names.index(axis)) for axis in loop.axes))
        for loop in order.loops
    )
    return replace(order, loops=tuple(loops))
