"""The loops of a tile over summed axes that add products in the order stated."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir.sum_order import SumOrder
from graphc.kernels.cpu.contract.tile import Roles
from graphc.kernels.program.nest import Nest


@dataclass(frozen=True)
class SumLoops:
    """The loops of a sum, as the axes of a nest."""

    axes: tuple[int, ...]
    """The axes of more than one index, from the outermost."""
    lane: int | None
    """The axis whose terms go to `lanes` partial sums in turn, the outermost; None if lanes are not
    summed."""
    lanes: int
    """Partial sums that are added by halves; 1 without a lane."""
    parts: int
    """Partial sums along the outermost axis that are added one after the other."""

    @property
    def inner(self) -> int | None:
        """The axis of the innermost loop, which lanes do not go along."""
        axes = [a for a in self.axes if a != self.lane]
        return axes[-1] if axes else None

    def followed_by(self, roles: Roles) -> bool:
        """Whether the loops of `roles` are these."""
        inner = () if roles.inner is None else (roles.inner,)
        lane = roles.lane if roles.lanes_summed else None
        return (*roles.sums, *inner) == self.axes and lane == self.lane


def sum_loops(nest: Nest, order: str) -> SumLoops | None:
    """The loops that add in `order`, of which there is one for each summed axis, or one over blocks
    of an axis and one over lanes along it; None if no order is stated."""
    if not order:
        return None
    stated = SumOrder.parse(order)
    numbers = {nest.axes[a].name: a for a in nest.summed}
    loops, lane = list(stated.loops), None
    if stated.lanes > 1:
        last = loops.pop()
        lane = numbers[last.axes[0]]
        assert loops[0].axes == last.axes and loops[0].step == stated.lanes, order
    axes = tuple(numbers[name] for loop in loops for name in loop.axes)
    assert axes == nest.summed and all(loop.step == 1 for loop in loops[lane is not None :]), order
    axes = tuple(a for a in axes if nest.axes[a].extent != 1)
    return SumLoops(axes, lane, stated.lanes, stated.parts)
