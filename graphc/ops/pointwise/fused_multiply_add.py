"""The fused multiply-add: a product and a sum that are rounded once."""

from __future__ import annotations

from typing import ClassVar

from graphc.base.multiply_add import fma
from graphc.ir import FLOATS
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.base import Array, Pointwise


class FusedMultiplyAdd(Pointwise):
    """y = a * b + c, rounded once."""

    name: ClassVar[str] = "fma"
    called: ClassVar[str] = ""
    accepts = FLOATS
    negate_product: ClassVar[bool] = False
    negate_sum: ClassVar[bool] = False
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "fma({a}, {b}, {c})"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        a, b, c = inputs
        return (fma(-a if self.negate_product else a, b, -c if self.negate_sum else c),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a, b, _), (d,) = inputs, grads
        product = -d if self.negate_product else d
        return product * b, product * a, -d if self.negate_sum else d


class FusedMultiplySubtract(FusedMultiplyAdd):
    """y = a * b - c, rounded once."""

    name: ClassVar[str] = "fms"
    negate_sum = True
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "fma({a}, {b}, -{c})"


class FusedNegateMultiplyAdd(FusedMultiplyAdd):
    """y = c - a * b, rounded once."""

    name: ClassVar[str] = "fnma"
    negate_product = True
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "fma(-{a}, {b}, {c})"
