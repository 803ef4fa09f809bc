"""Descriptions of library calls: matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CallMatrix:
    """A batch of matrices among a kernel's arguments. One of `row` and `column` is 1."""

    argument: int
    """The argument's number."""
    row: int
    """Elements from one row to the next."""
    column: int
    """Elements from one column to the next."""
    batch: int
    """Elements from one matrix to the next."""
    dtype: str
    """The dtype of an element."""

    @property
    def leading(self) -> int:
        """The leading dimension: elements between neighbouring rows, or columns if these are
        further apart."""
        return max(self.row, self.column)


@dataclass(frozen=True)
class Product:
    """d = a b for each of `batches`, a of [m, k], b of [k, n], accumulated in float32."""

    batches: int
    m: int
    n: int
    k: int
    a: CallMatrix
    b: CallMatrix
    d: CallMatrix
    bias: int | None = None
    """The argument with n float32 values that are added to each row of d; None if there is none."""
    relu: bool = False
    """Whether relu is applied to the result."""

    def text(self, names: Sequence[str]) -> str:
        """The call as a formula over the arguments' `names`."""

        def matrix(x: CallMatrix, rows: int, columns: int) -> str:
            turned = f"^T of [{columns}, {rows}]" if x.column != 1 else f"[{rows}, {columns}]"
            return f"{names[x.argument]} {x.dtype}{turned} (rows of {x.leading})"

        added = f" + {names[self.bias]}" if self.bias is not None else ""
        a, b = matrix(self.a, self.m, self.k), matrix(self.b, self.k, self.n)
        formula = f"{a} times {b}{added}"
        formula = f"relu({formula})" if self.relu else formula
        batches = f", {self.batches} batches" if self.batches > 1 else ""
        return f"{matrix(self.d, self.m, self.n)} = {formula}{batches}"


@dataclass(frozen=True)
class CallTensor:
    """An array among a kernel's arguments, or an intermediate tensor of the call."""

    argument: int | None
    """The argument's number; None for a tensor that is not in memory."""
    shape: tuple[int, ...]
    """The extents."""
    strides: tuple[int, ...]
    """Elements between neighbouring indices along each axis."""
    dtype: str
    """The dtype of an element."""

    def text(self, names: Sequence[str]) -> str:
        """The tensor's argument name and type."""
        name = "" if self.argument is None else f"{names[self.argument]} "
        return f"{name}{self.dtype}{list(self.shape)} (strides {list(self.strides)})"


@dataclass(frozen=True)
class PointwiseStep:
    """A step of a call's epilogue: tensor `output` is `op` of the tensors `inputs`, which
    broadcast."""

    op: str
    """The op's name in graphc."""
    inputs: tuple[int, ...]
    """Numbers of the input tensors."""
    output: int
    """Number of the output tensor."""


@dataclass(frozen=True)
class Convolution:
    """A convolution, or a gradient of one, accumulated in float32, with an epilogue.

    The first two of `tensors` are its operands, the third its result; the others belong to the
    epilogue.
    """

    op: str
    """The op's name in graphc."""
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    tensors: tuple[CallTensor, ...]
    epilogue: tuple[PointwiseStep, ...] = ()
    """Pointwise steps on the result, in order."""
    tf32: bool = False
    """Whether operands are rounded to tf32."""

    def text(self, names: Sequence[str]) -> str:
        """The call as steps over the arguments' `names`."""
        a, b, y = (tensor.text(names) for tensor in self.tensors[:3])
        settings = f"stride {self.stride}, padding {self.padding}, dilation {self.dilation}"
        tf32 = ", operands of tf32" if self.tf32 else ""
        lines = [f"{y} = {self.op}({a}, {b}), {settings}, groups {self.groups}{tf32}"]
        for step in self.epilogue:
            operands = ", ".join(self.tensors[i].text(names) for i in step.inputs)
            lines.append(f"{self.tensors[step.output].text(names)} = {step.op}({operands})")
        return "\n".join(lines)


Call = Product | Convolution
