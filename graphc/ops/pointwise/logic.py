"""Comparisons, logic, selection and conversion, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphc.base.dtypes import convert
from graphc.base.errors import GraphError
from graphc.ir import DTYPES, FLOATS, Type
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.base import ANY, Array, Pointwise, broadcast_shapes, same_dtype


class Comparison(Pointwise):
    """A boolean of two numbers. No gradient flows."""

    gives = "bool"

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (None,) * len(inputs)


class Less(Comparison):
    """y = a < b."""

    name: ClassVar[str] = "less"
    expression: ClassVar[str] = "{a} < {b}"
    meaning = np.less


class LessEqual(Comparison):
    """y = a <= b."""

    name: ClassVar[str] = "less_equal"
    expression: ClassVar[str] = "{a} <= {b}"
    meaning = np.less_equal


class Greater(Comparison):
    """y = a > b."""

    name: ClassVar[str] = "greater"
    expression: ClassVar[str] = "{a} > {b}"
    meaning = np.greater


class GreaterEqual(Comparison):
    """y = a >= b."""

    name: ClassVar[str] = "greater_equal"
    expression: ClassVar[str] = "{a} >= {b}"
    meaning = np.greater_equal


class Equal(Comparison):
    """y = (a = b); false where either is NaN."""

    name: ClassVar[str] = "equal"
    expression: ClassVar[str] = "{a} == {b}"
    meaning = np.equal


class NotEqual(Comparison):
    """y = (a != b); true where either is NaN."""

    name: ClassVar[str] = "not_equal"
    expression: ClassVar[str] = "{a} != {b}"
    meaning = np.not_equal


class Isnan(Comparison):
    """y = whether a, a float, is not a number."""

    name: ClassVar[str] = "isnan"
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "isnan({a})"
    meaning = np.isnan
    accepts = FLOATS


class Logical(Comparison):
    """A boolean of booleans."""

    accepts = ("bool",)


class LogicalAnd(Logical):
    """y = a and b."""

    name: ClassVar[str] = "logical_and"
    expression: ClassVar[str] = "{a} & {b}"
    meaning = np.logical_and


class LogicalOr(Logical):
    """y = a or b."""

    name: ClassVar[str] = "logical_or"
    expression: ClassVar[str] = "{a} | {b}"
    meaning = np.logical_or


class LogicalXor(Logical):
    """y = a or b but not both."""

    name: ClassVar[str] = "logical_xor"
    expression: ClassVar[str] = "{a} ^ {b}"
    meaning = np.logical_xor


class LogicalNot(Logical):
    """y = not a."""

    name: ClassVar[str] = "logical_not"
    expression: ClassVar[str] = "~{a}"
    meaning = np.logical_not


class Select(Pointwise):
    """y = b where a (a boolean) is true, else c. Called `where` in graphs and by users."""

    name: ClassVar[str] = "where"
    called: ClassVar[str] = ""
    takes_narrow: ClassVar[bool] = True
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "select({a}, {b}, {c})"
    meaning = np.where
    accepts = ANY

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        condition, b, c = inputs
        if condition.dtype != "bool":
            raise GraphError(f"where: expected a condition of dtype bool, got {condition}")
        return (Type(broadcast_shapes("where", inputs), same_dtype("where", (b, c))),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        condition, (d,) = inputs[0], grads
        return None, f.where(condition, d, 0), f.where(condition, 0, d)


C_TYPES = {
    "bool": "bool",
    "u8": "uint8_t",
    "i8": "int8_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "f16": "half",
    "bf16": "bfloat",
    "f32": "float",
    "f64": "double",
}
"""The name of each dtype in kernels."""
REGISTER_TYPES = {**C_TYPES, "f16": "float", "bf16": "float"}
"""The name of the type of one element in a kernel's registers."""


@dataclass(frozen=True)
class Cast(Pointwise):
    """y = a as `dtype`: floats are cut towards zero to integers; to bool is a != 0.

    From floats to integers of one byte by way of a wider one, so that -1.0 is 255 as u8. What that
    does not hold, and NaN, become anything.
    """

    dtype: str
    name: ClassVar[str] = "cast"
    called: ClassVar[str] = ""
    takes_narrow: ClassVar[bool] = True
    keeps_value: ClassVar[bool] = True
    operations: ClassVar[int] = 1
    accepts: ClassVar[tuple[str, ...]] = ANY
    expression: ClassVar[str] = "convert<{dtype}>({a})"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (a,) = inputs
        return (Type(a.shape, self.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (convert(inputs[0], DTYPES[self.dtype]),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (f.astype(d, a.dtype),)

    def scalar_expression(self, *names: str) -> str:
        return f"convert<{C_TYPES[self.dtype]}>({names[0]})"
