"""Reading floats of two bytes where kernels compute: in float32."""

from __future__ import annotations

from typing import ClassVar

from graphc.base.dtypes import widened
from graphc.base.errors import GraphError
from graphc.ir import NARROW, Type
from graphc.ops.base import Array, Pointwise


class Widen(Pointwise):
    """y = a, an f16 or bf16, as f32, exactly. Costs nothing where it is read; made by passes."""

    name: ClassVar[str] = "widen"
    called: ClassVar[str] = ""
    expression: ClassVar[str] = "convert<float>({a})"
    operations: ClassVar[int] = 1
    accepts: ClassVar[tuple[str, ...]] = NARROW
    gives: ClassVar[str] = "f32"
    converts_reads: ClassVar[bool] = True
    keeps_value: ClassVar[bool] = True

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (a,) = inputs
        if a.dtype not in NARROW:
            raise GraphError(f"widen: expected f16 or bf16, got {a}")
        return (Type(a.shape, "f32"),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (widened(inputs[0]),)
