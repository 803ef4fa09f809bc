"""The order of a row's sums as the loops of a kernel of some width keep to it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc.ir.sum_order import LANES, SumLoop, SumOrder
from graphc.kernels.loops.rows import RowLoop, Rows
from graphc.kernels.program.body.reduce import Reduce

MOST_STATEMENTS = 48
"""The most statements of the chains that a loop adds one after another in its text."""
OPERATIONS = 8
"""Operations of a function that count as one statement."""


def order_of(reductions: Sequence[Reduce]) -> SumOrder:
    """The order of reductions that have one order; of none, or over no axes, that of one term."""
    orders = {s.order for s in reductions if isinstance(s.order, SumOrder)}
    assert len(orders) <= 1, f"several orders: {orders}"
    return next(iter(orders), SumOrder((SumLoop(()),)))


def order_text(name: str, order: SumOrder, rows: Rows) -> str:
    """A C++ struct of the order; see reduce.h."""
    steps, registers = first_steps(order, rows, rows.reduced_axes)
    return (
        f"struct {name} {{\n"
        f"  static constexpr int CHAINS = {chains(order, rows)}, "
        f"GROUPS = {groups(rows)}, PARTS = {order.parts};\n"
        f"  static constexpr long STEPS = {steps}, REGISTERS = {registers};\n"
        "};\n"
    )


def chains(order: SumOrder, rows: Rows) -> int:
    """Sums that registers along the last reduced axis take in turn."""
    if rows.domain.lane in rows.reduced_axes:
        return order.lanes // (groups(rows) * rows.domain.width)
    return order.lanes


def groups(rows: Rows) -> int:
    """Sums that blocks of a lane axis in front of the last reduced one take in turn."""
    return LANES // rows.domain.width if rows.domain.lane in rows.reduced_axes[:-1] else 1


def first_steps(order: SumOrder, rows: Rows, axes: Sequence[int]) -> tuple[int, int]:
    """The steps of the order's first loop, of which parts are made, and the registers of each."""
    domain, (first, *others) = rows.domain, order.loops
    registers = [domain.steps(d) for d in axes]
    if order.parts == 1:
        return 1, math.prod(registers)
    if not others:  # all rows as one
        return math.prod(registers), 1
    step = first.step // domain.width if domain.lane == axes[0] else first.step
    return -(-registers[0] // step), step * math.prod(registers[1:])


def chains_together(loop: RowLoop, side: int, count: int) -> int:
    """Of `count` chains of `side` rows, those that the loop adds one after another in its text,
    with sums in registers if it is all."""
    weight = 0
    for statement in loop.body.statements:
        operations = getattr(statement, "operations", 0)
        weight += side * max(1, operations // OPERATIONS)
    fitting = (n for n in (count, 4, 2) if n <= count and n * weight <= MOST_STATEMENTS)
    return next(fitting, 1)
