"""Running results and sorts along an axis, as statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from graphc.kernels.program.body.statement import Statement
from graphc.ops.prefix import Prefix
from graphc.ops.sort import Sort

FIELDS = ("value", "place")
"""What a result in C++ has: the value and, of ops with two results, its index along the axis."""


@dataclass(frozen=True)
class Along(Statement):
    """What `op` makes of a register that differs from iteration to iteration along the op's axis.

    A running result joins neighbours in the direction of the op: first runs of `by` of them, by
    doubling distances, then each run with those before it. An axis of several `pieces` is as many
    axes of nearly equal lengths; what the pieces before one come to is joined in front of it.

    A sort ends the iterations from its `count` on; in the others, its results are in order.
    """

    op: Prefix | Sort
    """The op, along an axis of the domain."""
    by: int = 1
    pieces: int = 1

    @property
    def count(self) -> int | None:
        """The iterations along the axis that have results; None for all."""
        return self.op.count if isinstance(self.op, Sort) else None

    def merged(self, groups: Sequence[Sequence[int]]) -> Statement:
        (axis,) = (i for i, group in enumerate(groups) if self.op.axis in group)
        return replace(self, op=replace(self.op, axis=axis))

    def lines(self, after: Iterable[Statement]) -> list[str]:
        """The C++ definitions, from a `state`, of the results that statements `after` it use."""
        used = {name for statement in after for name in statement.operands}
        pairs = zip(self.results, FIELDS, strict=False)
        return [f"const auto {r.name} = state.{field};" for r, field in pairs if r.name in used]
