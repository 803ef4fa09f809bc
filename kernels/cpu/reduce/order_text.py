"""The order of a row's sums as the loops of a kernel of some width keep to it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc.ir import Graph
from graphc.ir.sum_order import LANES, SumOrder
from graphc.kernels.program.reduction_orders import column_order, row_order
from graphc.kernels.program.rows import RowLoop, Rows, columns_of, reductions_of

MOST_STATEMENTS = 48
"""The most statements of the chains that a loop adds one after another in its text."""
OPERATIONS = 8
"""Operations of a function that count as one statement."""


def stated_orders(body: Graph, rows: Rows) -> tuple[SumOrder, SumOrder]:
    """The orders in which rows and columns are added: those that the nodes state, if they do."""
    orders = row_order(body, rows), column_order(body, rows)
    for order, nodes in zip(orders, (reductions_of(body), columns_of(body)), strict=True):
        for node in nodes:
            stated = node.op.attributes["order"]
            assert stated in ("", str(order)), f"{node.output} adds in {stated}, not in {order}"
    return orders


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
    if rows.domain.lane in rows.reduced:
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
