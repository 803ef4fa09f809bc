"""Reductions over sorted axes: sum, product, largest, smallest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.base import NUMBERS, Array, Reduction, check_dtype


class NumberReduction(Reduction):
    """A reduction of numbers; `needs_elements` says that there is no result over nothing."""

    needs_elements: ClassVar[bool] = True

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        assert list(self.axes) == sorted(set(self.axes)), self.axes
        assert all(0 <= a < x.rank for a in self.axes), (self.axes, x)
        check_dtype(self.name, x.dtype, NUMBERS, inputs)
        if self.needs_elements and any(x.shape[a] == 0 for a in self.axes):
            raise GraphError(f"{self.name}: no elements along axes {self.axes} of {x}")
        return super().infer(x)

    def kept(self, x: Type) -> tuple[int, ...]:
        """The shape of the result with the reduced axes kept, so that it broadcasts with x."""
        return tuple(1 if i in self.axes else n for i, n in enumerate(x.shape))


@dataclass(frozen=True)
class Sum(NumberReduction):
    """y[kept] = sum of x[kept, reduced] over `axes`; 0 over nothing."""

    axes: tuple[int, ...]
    keepdims: bool = False
    name: ClassVar[str] = "sum"
    combine: ClassVar[str] = "sum"
    needs_elements: ClassVar[bool] = False

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        return (np.asarray(np.sum(x, axis=self.axes, keepdims=self.keepdims, dtype=x.dtype)),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (x,), (d,) = inputs, grads
        return (f.broadcast_to(f.reshape(d, self.kept(x.value.type)), x.shape),)


@dataclass(frozen=True)
class Prod(NumberReduction):
    """y[kept] = product of x[kept, reduced] over `axes`; 1 over nothing."""

    axes: tuple[int, ...]
    keepdims: bool = False
    name: ClassVar[str] = "prod"
    combine: ClassVar[str] = "prod"
    needs_elements: ClassVar[bool] = False

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        return (np.asarray(np.prod(x, axis=self.axes, keepdims=self.keepdims, dtype=x.dtype)),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """Return d times the product of the other elements.

        While no other element is 0, it is the product of those that are not 0 divided by the
        element.
        """
        (x,), (d,) = inputs, grads
        zero = x == 0
        rest = f.where(zero, 1, x)
        product = f.prod(rest, axis=self.axes, keepdims=True)
        others = f.sum(f.astype(zero, x.dtype), axis=self.axes, keepdims=True) - f.astype(
            zero, x.dtype
        )
        scaled = f.reshape(d, self.kept(x.value.type)) * product
        return (f.where(others == 0, scaled / rest, 0),)


class Extreme(NumberReduction):
    """The gradient goes to the elements that equal the result, in equal parts."""

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (x,), (y,), (d,) = inputs, outputs, grads
        kept = self.kept(x.value.type)
        chosen = x == f.reshape(y, kept)
        count = f.sum(f.astype(chosen, d.dtype), axis=self.axes, keepdims=True)
        return (f.where(chosen, f.reshape(d, kept) / count, 0),)


@dataclass(frozen=True)
class Max(Extreme):
    """y[kept] = the largest of x[kept, reduced] over `axes`; NaN if any is."""

    axes: tuple[int, ...]
    keepdims: bool = False
    name: ClassVar[str] = "max"
    combine: ClassVar[str] = "max"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (np.asarray(np.max(inputs[0], axis=self.axes, keepdims=self.keepdims)),)


@dataclass(frozen=True)
class Min(Extreme):
    """y[kept] = the smallest of x[kept, reduced] over `axes`; NaN if any is."""

    axes: tuple[int, ...]
    keepdims: bool = False
    name: ClassVar[str] = "min"
    combine: ClassVar[str] = "min"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (np.asarray(np.min(inputs[0], axis=self.axes, keepdims=self.keepdims)),)
