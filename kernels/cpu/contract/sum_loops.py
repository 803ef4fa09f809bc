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
    """The axis whose terms go to `lanes` partial sums in turn, the outermost or the innermost; None
    if lanes are not summed."""
    lanes: int
    """Partial sums that are added by halves; 1 without a lane."""
    parts: int
    """Partial sums along the outermost axis that are added one after the other."""

    blocks: bool = False
    """Whether the outermost loop goes over blocks of lanes; else the innermost does."""

    @property
    def inner(self) -> int | None:
        """The axis of the innermost loop."""
        axes = [a for a in self.axes if not self.blocks or a != self.lane]
        return axes[-1] if axes else None

    def followed_by(self, roles: Roles) -> bool:
        """Whether the loops of `roles` are these."""
        inner = () if roles.inner is None else (roles.inner,)
        lane = roles.lane if roles.lanes_summed else None
        return (*roles.sums, *inner) == self.axes and lane == self.lane

    def passes(self, roles: Roles) -> int:
        """Passes over the blocks of lanes, one for each register of lanes."""
        return self._registers(roles) if self.blocks else 1

    def sets(self, roles: Roles) -> int:
        """Registers of lanes for each sum, to which the steps of the innermost loop add in turn."""
        return 1 if self.blocks else self._registers(roles)

    def _registers(self, roles: Roles) -> int:
        several = self.lane is not None and roles.steps(self.lane) > 1
        return self.lanes // roles.width if several else 1


def sum_loops(nest: Nest, order: str) -> SumLoops | None:
    """The loops that add in `order`, of which there is one for each summed axis, and with lanes
    along the first another; None if no order is stated."""
    if not order:
        return None
    stated = SumOrder.parse(order)
    numbers = {nest.axes[a].name: a for a in nest.summed}
    loops, lane, blocks = list(stated.loops), None, False
    if stated.lanes > 1:
        lane, blocks = numbers[loops[-1].axes[0]], loops[0].step == stated.lanes
        if blocks:
            assert loops.pop().axes == loops[0].axes, order
    axes = tuple(numbers[name] for loop in loops for name in loop.axes)
    assert axes == nest.summed and all(loop.step == 1 for loop in loops[blocks:]), order
    axes = tuple(a for a in axes if nest.axes[a].extent != 1)
    return SumLoops(axes, lane, stated.lanes, stated.parts, blocks)
