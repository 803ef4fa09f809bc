"""Running results along an axis: sums, products, extremes, logarithms of sums of exponentials.

Sums and products of floats are rounded in an order that depends on the axis and its extent alone.
A long axis is cut into pieces (`Prefix.pieces`). Within a piece the results run element by element.
Along the last axis they run block by block: a block of 16 elements that begins at a multiple of 16
is scanned by itself, each element joining the one 1, 2, 4 and then 8 places before it, and every
result then joins what the blocks before come to. Last, what the pieces before come to is joined.
Results of "cuda" have orders of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from graphc.ir import FLOATS, Type
from graphc.ir.vocabulary import Gradients, Tensor, Tensors, Vocabulary
from graphc.ops.axes import Axes, all_but
from graphc.ops.base import NUMBERS, Array, Flags, Op, check_dtype
from graphc.ops.combine import LATEST_MAX, LATEST_MIN, LOGSUMEXP, PROD, SUM, Combine

BLOCK = 16
"""Elements of the last axis that are scanned together."""
PIECE = 8192
"""Elements from which on an axis is cut, and about those of a piece."""
MOST_PIECES = 64
"""Pieces of an axis, however long it is: enough for all workers."""


@dataclass(frozen=True)
class Prefix(Op):
    """y[..., i, ...] combines x[..., j, ...] for all j <= i along `axis`, or j >= i if `reverse`.

    `combine` is the operation.
    """

    axis: int
    reverse: bool = False
    own_template: ClassVar[str] = "prefix"
    computes_reads: ClassVar[bool] = True
    combine: ClassVar[Combine]
    accepts: ClassVar[tuple[str, ...]] = NUMBERS

    @property
    def accumulates(self) -> bool:
        return not self.combine.picks

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        assert 0 <= self.axis < x.rank, (self.axis, x)
        check_dtype(self.name, x.dtype, self.accepts, inputs)
        return (Type(x.shape, x.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            y = self.running(self.turned(inputs[0]))
        return (np.ascontiguousarray(self.turned(y)),)

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        (x,) = inputs
        return ((all_but(self.axis, x.rank),),) * len(self.infer(x))

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        return f.emit_all(replace(self, axis=self.axis + 1), *inputs)

    def pieces(self, shape: tuple[int, ...]) -> int:
        """Return how many pieces the axis is cut into.

        Piece p of P has the steps from p * steps // P on, each an element or, along the last axis,
        a block.
        """
        return max(1, min(-(-shape[self.axis] // PIECE), MOST_PIECES))

    def running(self, x: Array) -> Array:
        """The results from the axis's start on, in NumPy."""
        raise AssertionError(f"{self.name} has no meaning")

    def joined(self, x: Array, join: np.ufunc) -> Array:
        """The results of a sum or product from the axis's start on, in the order of the module."""
        moved = np.moveaxis(x, self.axis, -1)
        extent, size = moved.shape[-1], BLOCK if self.axis == x.ndim - 1 else 1
        behind, zero = -extent % size, x.dtype.type(join.identity)
        blanks = (behind, 0) if self.reverse else (0, behind)
        padding = [*((0, 0) for _ in range(x.ndim - 1)), blanks]
        blocks = np.pad(moved, padding, constant_values=zero)
        blocks = blocks.reshape(*moved.shape[:-1], (extent + behind) // size, size)
        for distance in (1, 2, 4, 8) if size > 1 else ():
            blocks = np.concatenate(
                [blocks[..., :distance], join(blocks[..., :-distance], blocks[..., distance:])], -1
            )
        steps, pieces, results = blocks.shape[-2], self.pieces(x.shape), [blocks[..., :0, :]]
        before = np.full_like(blocks[..., :1, :1], zero)
        for piece in range(pieces):
            part = blocks[..., piece * steps // pieces : (piece + 1) * steps // pieces, :]
            ends = np.concatenate([np.full_like(before, zero), part[..., -1:]], -2)
            carries = join.accumulate(ends, -2, x.dtype)
            results.append(join(before, join(carries[..., :-1, :], part)))
            before = join(before, carries[..., -1:, :])
        whole = np.concatenate(results, -2).reshape(*moved.shape[:-1], steps * size)
        return np.moveaxis(whole[..., blanks[0] : blanks[0] + extent], -1, self.axis)

    def turned(self, x: Array) -> Array:
        return np.flip(x, self.axis) if self.reverse else x


@dataclass(frozen=True)
class Cumsum(Prefix):
    """y[..., i, ...] = x[..., 0, ...] + ... + x[..., i, ...] along `axis`.

    If `reverse`, the sum goes from i to the end.
    """

    name: ClassVar[str] = "cumsum"
    combine: ClassVar[Combine] = SUM

    def running(self, x: Array) -> Array:
        return self.joined(x, np.add)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (f.emit(Cumsum(self.axis, not self.reverse), grads[0]),)


@dataclass(frozen=True)
class Cumprod(Prefix):
    """y[..., i, ...] = x[..., 0, ...] * ... * x[..., i, ...] along `axis`.

    If `reverse`, the product goes from i to the end.
    """

    name: ClassVar[str] = "cumprod"
    combine: ClassVar[Combine] = PROD

    def running(self, x: Array) -> Array:
        return self.joined(x, np.multiply)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """Return (sum of the d * y from here on) / x before the first 0, and 0 after it.

        At the first 0 it is the sum of d times the products without it, up to the second 0.
        """
        (x,), (y,), (d,) = inputs, outputs, grads
        zero = x == 0
        zeros = f.emit(Cumsum(self.axis, self.reverse), f.astype(zero, "i32"))
        first = f.logical_and(zero, zeros == 1)
        others = f.emit(Cumprod(self.axis, self.reverse), f.where(first, 1, x))

        def following(products: Tensor) -> Tensor:
            return f.emit(Cumsum(self.axis, not self.reverse), products)

        before = following(f.where(zeros == 0, d * y, 0)) / f.where(zero, 1, x)
        at = following(f.where(zeros == 1, d * others, 0))
        return (f.where(zeros == 0, before, f.where(first, at, 0)),)


class _Extreme(Prefix):
    """Returns two outputs: the extreme, and its i64 index along the axis, the last of equal ones.

    NaN exceeds everything. The gradient goes to the indices.
    """

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (y,) = super().infer(*inputs)
        return y, Type(y.shape, "i64")

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x = self.turned(inputs[0])
        y = self.running(x)
        with np.errstate(all="ignore"):
            reached = (x == y) | (x != x)
        extent = x.shape[self.axis]
        ramp = np.arange(extent).reshape([-1 if a == self.axis else 1 for a in range(x.ndim)])
        steps = np.maximum.accumulate(np.where(reached, ramp, 0), self.axis)
        places = extent - 1 - steps if self.reverse else steps
        return tuple(np.ascontiguousarray(self.turned(a)) for a in (y, places))

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (x,), (_, places), (d, _) = inputs, outputs, grads
        return (
            f.sum_by_index(places, d, self.axis, x.shape[self.axis]) if d is not None else None,
        )


@dataclass(frozen=True)
class Cummax(_Extreme):
    """The largest of x[..., 0, ...] to x[..., i, ...] along `axis`, and its index.

    If `reverse`, it goes from i to the end. The index is the last of equal ones; NaN is the largest
    value.
    """

    name: ClassVar[str] = "cummax"
    combine: ClassVar[Combine] = LATEST_MAX

    def running(self, x: Array) -> Array:
        return np.asarray(np.maximum.accumulate(x, self.axis))


@dataclass(frozen=True)
class Cummin(_Extreme):
    """The smallest of x[..., 0, ...] to x[..., i, ...] along `axis`, and its index.

    If `reverse`, it goes from i to the end. The index is the last of equal ones; NaN is the
    smallest value.
    """

    name: ClassVar[str] = "cummin"
    combine: ClassVar[Combine] = LATEST_MIN

    def running(self, x: Array) -> Array:
        return np.asarray(np.minimum.accumulate(x, self.axis))


@dataclass(frozen=True)
class Logcumsumexp(Prefix):
    """y[..., i, ...] = log(exp(x[..., 0, ...]) + ... + exp(x[..., i, ...])) along `axis`.

    It does not overflow. If `reverse`, the sum goes from i to the end.
    """

    name: ClassVar[str] = "logcumsumexp"
    combine: ClassVar[Combine] = LOGSUMEXP
    accepts: ClassVar[tuple[str, ...]] = FLOATS

    def running(self, x: Array) -> Array:
        return np.asarray(np.logaddexp.accumulate(x, self.axis))

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """Return exp(x_k) times the sum of d_i exp(-y_i) over all i from k on.

        Positive and negative d are summed separately, as logarithms.
        """
        (x,), (y,), (d,) = inputs, outputs, grads

        def part(sign: int) -> Tensor:
            mine = d * sign > 0
            logs = f.where(mine, f.log(f.where(mine, d * sign, 1)) - y, -np.inf)
            return f.exp(f.emit(Logcumsumexp(self.axis, not self.reverse), logs) + x)

        return (part(1) - part(-1),)
