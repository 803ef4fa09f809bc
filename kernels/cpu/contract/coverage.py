"""Check that a contraction's loops visit each element of its epilogue's domain exactly once.

Each axis has one role: it is in lanes, or its indices are combined by the epilogue (sections,
pooling windows), or it is iterated one by one. An axis with two roles would be visited twice, and
elements of others overwritten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc.base.errors import PlanError
from graphc.kernels.cpu.contract.tile_schedule import TileSchedule
from graphc.kernels.program.access import Domain
from graphc.kernels.program.nest import Nest, Window

Loops = Sequence[tuple[int, int, int]]
"""Loops as (axis, iterations, index step)."""


def check_plain(name: str, nest: Nest, loops: Loops, lane: int, domain: Domain) -> None:
    """Raise PlanError unless the plain nest's `loops`, in registers along `lane`, cover
    `domain`."""
    made = math.prod(nest.axes[a].extent if a == lane else count for a, count, _ in loops)
    _check(name, made, math.prod(domain.extents))


def check_tiled(name: str, schedule: TileSchedule) -> None:
    """Raise PlanError unless the tiles of `schedule` hold the sums of each output element once."""
    roles = schedule.roles
    nest = roles.nest
    _check_roles(name, nest, roles.lane, roles.window)
    loops: dict[int | str, int] = {}
    for axis, count, _ in schedule.loops:
        loops[axis] = loops.get(axis, 1) * count
    made = {a: loops[a] * (roles.width if a == roles.lane else 1) for a in nest.kept if a in loops}
    tiles = {"rows": schedule.rows, "outer": schedule.outer, "columns": schedule.columns}
    for by, tile in tiles.items():
        if tile.axis is None:
            continue
        if tile.axis in made:
            raise PlanError(f"{name}: two loops go over axis {nest.axes[tile.axis].name}")
        if loops.get(by, 1) < tile.tiles:
            raise PlanError(
                f"{name}: its loops leave out tiles of axis {nest.axes[tile.axis].name}"
            )
        made[tile.axis] = sum(c.tiles * c.size for c in tile.cuts) * tile.step
    if roles.row_sections > 1 and nest.sections is not None:
        made[nest.sections] = roles.row_sections
    made.setdefault(roles.lane, roles.width)
    elements = math.prod(min(made.get(a, 1), nest.axes[a].extent) for a in nest.kept)
    _check(name, elements, nest.extents(nest.kept))


def _check_roles(name: str, nest: Nest, lane: int, window: Window | None) -> None:
    if lane in {nest.sections, *(axis for axis, _ in window or ())}:
        raise PlanError(f"{name}: axis {nest.axes[lane].name} is in the lanes and taken together")


def _check(name: str, actual: int, expected: int) -> None:
    if actual != expected:
        raise PlanError(f"{name}: its loops make {actual} elements of {expected}")
