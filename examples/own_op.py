"""An op of your own is one class: what it computes per element, in NumPy, and its gradient.

The expression is printed into the kernel that the op ends up in, beside whatever else that kernel
computes; nothing else needs to know about the op.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import graphc
from graphc.ops.base import Pointwise
from graphc.trace import emit


@dataclass(frozen=True)
class Softsign(Pointwise):
    """y = x / (scale + |x|)."""

    scale: float = 1.0
    name: ClassVar[str] = "softsign"
    expression: ClassVar[str] = "{a} / ({scale}f + abs({a}))"

    def reference(self, x):
        return (x / (x.dtype.type(self.scale) + np.abs(x)),)

    def grad(self, f, inputs, outputs, grads):  # f: graphc's functions
        denominator = self.scale + abs(inputs[0])
        return (grads[0] * self.scale / (denominator * denominator),)


def softsign(x, scale=1.0):
    return emit(Softsign(scale), x)


def main() -> float:
    """The largest difference between the compiled gradient and the formula."""
    gradient = graphc.grad(lambda x: graphc.sum(softsign(x, 2.0)))
    program = graphc.compile(gradient, graphc.spec((1000,)))
    x = np.linspace(-4, 4, 1000, dtype=np.float32)
    difference = float(np.max(np.abs(program(x) - 2 / (2 + np.abs(x)) ** 2)))
    print(program.graph)
    print(f"largest difference {difference:.1e}")
    return difference


if __name__ == "__main__":
    main()
