"""Reductions over loops, as statements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphc.ir.sum_order import SumOrder
from graphc.kernels.program.body.statement import Address, Statement
from graphc.ops.combine import end_of

JOINS = {
    "sum": "{0} = {0} + {1};",
    "prod": "{0} = {0} * {1};",
    "max": "{0} = maximum({0}, {1});",
    "min": "{0} = minimum({0}, {1});",
    "deviations": "{0}.add({1});",
    "products": "{0} = {0} + {1};",
}
"""How two results combine, as statements of C++ that change the first. Terms of "products" are
products of two registers, which are added by a fused multiply-add, and only where a third register
holds, if there is one."""
_THREADS = re.compile(r"threads (\d+) runs (\d+) trees (\d+(?:,\d+)*) parts (\d+)")


@dataclass(frozen=True)
class ThreadOrder:
    """The order in which threads combine the iterations over some axes, counted as one.

    Each of `parts` has nearly as many iterations; its `threads` take runs of `run` in turn. What
    they come to is combined by trees of neighbours, of which each has the results of the one before
    it, and then one after another. The results of parts are combined likewise: threads take them in
    turn.
    """

    threads: int
    run: int = 1
    trees: tuple[int, ...] = (1,)
    parts: int = 1

    def __str__(self) -> str:
        trees = ",".join(map(str, self.trees))
        return f"threads {self.threads} runs {self.run} trees {trees} parts {self.parts}"


Order = SumOrder | ThreadOrder
"""An order of iterations. The axes of a `SumOrder` are the numbers of the domain's."""


def parse_order(text: str) -> Order:
    """The order that prints as `text`; raises GraphError if there is none."""
    found = _THREADS.fullmatch(text)
    if not found:
        return SumOrder.parse(text)
    threads, run, parts = (int(found[i]) for i in (1, 2, 4))
    return ThreadOrder(threads, run, tuple(map(int, found[3].split(","))), parts)


@dataclass(frozen=True)
class Reduce(Statement):
    """What a register comes to in all iterations over `axes`, by the name of how two of them
    `combine`, in `order`, or in that of the loops if there is none.

    The result is a register that is known behind the outermost loop over these axes, or behind the
    innermost loop of no lanes if there are no axes; or it is the element at an address in front of
    the operand.
    """

    combine: str
    axes: tuple[int, ...]
    order: Order | None = None

    @property
    def operand(self) -> str:
        """The register that is reduced."""
        return self.operands[0]

    @property
    def address(self) -> Address | None:
        """The element that is the result, if it is no register."""
        first = self.arguments[0]
        return first if isinstance(first, Address) else None

    @property
    def result(self) -> str:
        """The name of the register that is the result."""
        return self.results[0].name

    @property
    def dtype(self) -> str:
        """The dtype of this register."""
        return self.results[0].dtype

    @property
    def identity(self) -> float | int:
        """The neutral element; of extremes it depends on the dtype of the result."""
        if self.combine in ("max", "min"):
            return end_of(self.dtype, low=self.combine == "max")
        return int(self.combine == "prod")

    def joined(self, owner: str, other: str) -> str:
        """The C++ statement that combines `other` into the owner's result."""
        return JOINS[self.combine].format(f"{owner}{self.result}", other)

    def merged(self, groups: Sequence[Sequence[int]]) -> Statement:
        axes = tuple(i for i, group in enumerate(groups) if set(group) & {*self.axes})
        return replace(self, arguments=super().merged(groups).arguments, axes=axes)
