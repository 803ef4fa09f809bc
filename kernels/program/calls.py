"""Descriptions of calls of libraries: matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CallMatrix:
    """Matrices among a kernel's arguments, at place `argument`: elements from one row, column and
    batch to the next. One of the first two is 1."""

    argument: int
    row: int
    column: int
    batch: int
    dtype: str

    @property
    def leading(self) -> int:
        """Elements between neighbouring rows, or columns where those lie apart."""
        return max(self.row, self.column)


@dataclass(frozen=True)
class Product:
    """d = a b for each of `batches`, a of [m, k], b of [k, n], whose sums are float32; to each row
    of d the `bias`, an argument of n float32, is added, and `relu` is taken of that."""

    batches: int
    m: int
    n: int
    k: int
    a: CallMatrix
    b: CallMatrix
    d: CallMatrix
    bias: int | None = None
    relu: bool = False

    def text(self, names: Sequence[str]) -> str:
        """As a formula, of these names of arguments."""

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
    """An array at place `argument` of a kernel's arguments, its strides in elements; or one that is
    nowhere in memory, and passes from step to step alone."""

    argument: int | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def text(self, names: Sequence[str]) -> str:
        """With its name, if it has one of these."""
        name = "" if self.argument is None else f"{names[self.argument]} "
        return f"{name}{self.dtype}{list(self.shape)} (strides {list(self.strides)})"


@dataclass(frozen=True)
class PointwiseStep:
    """Tensor number `output` is `op` of those of the numbers `inputs`, which broadcast."""

    op: str
    inputs: tuple[int, ...]
    output: int


@dataclass(frozen=True)
class Convolution:
    """Of the `tensors` the third is the convolution, or gradient of one (`op`, as graphc names it),
    of the first two, whose sums are float32; the others are what the `epilogue` reads and makes,
    step by step. With `tf32` its operands are multiplied as numbers of that."""

    op: str
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    tensors: tuple[CallTensor, ...]
    epilogue: tuple[PointwiseStep, ...] = ()
    tf32: bool = False

    def text(self, names: Sequence[str]) -> str:
        """As steps, of these names of arguments."""
        a, b, y = (tensor.text(names) for tensor in self.tensors[:3])
        settings = f"stride {self.stride}, padding {self.padding}, dilation {self.dilation}"
        tf32 = ", operands of tf32" if self.tf32 else ""
        lines = [f"{y} = {self.op}({a}, {b}), {settings}, groups {self.groups}{tf32}"]
        for step in self.epilogue:
            operands = ", ".join(self.tensors[i].text(names) for i in step.inputs)
            lines.append(f"{self.tensors[step.output].text(names)} = {step.op}({operands})")
        return "\n".join(lines)


Call = Product | Convolution
