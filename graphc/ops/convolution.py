"""Two-dimensional convolution and its two gradients, each an op of its own.

Letters: n images, c input channels, h x w input pixels, k output channels, r x s taps, p x q output
pixels. Input pixel, output pixel and tap are tied by h = p * stride - padding + r * dilation, and
likewise for the columns. With groups, output channel g * (K / G) + k sees input channels
g * (C / G) + c alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from graphc.base.errors import GraphError
from graphc.ir import FLOATS, Type
from graphc.ir.vocabulary import Gradients, Tensor, Tensors, Vocabulary
from graphc.ops.axes import all_stacked, folded, unfolded
from graphc.ops.base import (
    Affine,
    Array,
    Contraction,
    Flags,
    Iteration,
    Operand,
    check_dtype,
    same_dtype,
)

Pair = tuple[int, int]


@dataclass(frozen=True)
class _Convolution(Contraction):
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    folds: ClassVar[tuple[tuple[int, int], tuple[int, int]]]
    """Which axis of the operand, and of the result, takes up samples that the first operand has
    alone; and the second."""
    folds_of_both: ClassVar[tuple[int, int, int]]
    """Which axis of each operand, and of the result, where both have them: channels."""

    def extent(self, size: int, taps: int, axis: int) -> int:
        """Output pixels along spatial axis 0 or 1 for `size` input pixels; below 1 if none fit."""
        span = (taps - 1) * self.dilation[axis] + 1
        return (size + 2 * self.padding[axis] - span) // self.stride[axis] + 1

    def check(self, x: Type, w: Type, names: tuple[str, str] = ("x", "weight")) -> None:
        """GraphError unless x [n, c, h, w] and w [k, c / groups, r, s] fit."""
        shown = f"{self.name}: {names[0]} {x}"
        if x.rank != 4 or w.rank != 4:
            raise GraphError(f"{shown} and {names[1]} {w} must have 4 axes each")
        check_dtype(self.name, same_dtype(self.name, (x, w)), FLOATS, (x, w))
        channels, groups = x.shape[1], self.groups
        if channels != w.shape[1] * groups:
            of = f" in {groups} groups" if groups > 1 else ""
            raise GraphError(
                f"{shown} has {channels} channels, {names[1]} {w} expects {w.shape[1] * groups}{of}"
            )
        if w.shape[0] % groups:
            raise GraphError(
                f"{self.name}: {names[1]} {w} has {w.shape[0]} output channels, "
                f"which {groups} groups do not divide"
            )
        if any(self.extent(x.shape[2 + i], w.shape[2 + i], i) < 1 for i in (0, 1)):
            raise GraphError(f"{shown} with padding {self.padding} is smaller than {names[1]} {w}")

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        """Samples are further images, or channels; where both operands have them, groups."""
        (a, b), one = inputs, self.folds[stacked[1]]
        if all(stacked) or (self.groups > 1 and one != (0, 0)):
            a, b = all_stacked(f, inputs, stacked, size)
            *places, result = self.folds_of_both
            a, b = (folded(f, x, axis) for x, axis in zip((a, b), places, strict=True))
            y = f.emit(replace(self, groups=size * self.groups), a, b)
            return (unfolded(f, y, size, result),)
        axis, result = one
        a, b = (folded(f, x, axis) if s else x for x, s in zip(inputs, stacked, strict=True))
        return (unfolded(f, f.emit(self, a, b), size, result),)

    def maps(self, names: str, extents: dict[str, int]) -> _Maps:
        return _Maps(self, tuple(n for n in names if n != "g" or self.groups > 1), extents)


@dataclass(frozen=True)
class _Maps:
    """Affine indices by the names of iteration axes."""

    op: _Convolution
    names: tuple[str, ...]
    extents: dict[str, int]

    def sum(self, offset: int = 0, **coefficients: int) -> Affine:
        return Affine(tuple(coefficients.get(n, 0) for n in self.names), offset)

    def channel(self, name: str) -> Affine:
        """g * (channels per group) + channel within the group."""
        return self.sum(**{name: 1, "g": self.extents[name]})

    def pixel(self, out: str, tap: str) -> Affine:
        """The input pixel at output pixel `out` and tap `tap`: (p, r) or (q, s)."""
        axis = "pq".index(out)
        op = self.op
        return self.sum(-op.padding[axis], **{out: op.stride[axis], tap: op.dilation[axis]})

    def iteration(self, kept: str, output: tuple[Affine, ...], a: Operand, b: Operand) -> Iteration:
        number = sum(n in kept for n in self.names)
        extents = tuple(self.extents[n] for n in self.names)
        return Iteration(self.names, extents, number, output, a, b)


ONES = (1, 1, 1, 1)


@dataclass(frozen=True)
class Conv2d(_Convolution):
    """y[n, k, p, q] = sum over c, r, s of x[n, c, h, w] * weight[k, c, r, s]."""

    name: ClassVar[str] = "conv2d"
    images: ClassVar[int] = 1
    names_module: ClassVar[bool] = True
    folds = ((0, 0), (0, 1))
    folds_of_both = (1, 0, 1)

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        x, w = inputs
        self.check(x, w)
        pixels = (self.extent(x.shape[2 + i], w.shape[2 + i], i) for i in (0, 1))
        return (Type((x.shape[0], w.shape[0], *pixels), x.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x, w = inputs
        groups, (k, c, r, s) = self.groups, w.shape
        windows = _windows(self, x, (r, s))
        y = _einsum("ngcpqrs,gkcrs->ngkpq", windows, w.reshape(groups, k // groups, c, r, s))
        return (y.reshape(x.shape[0], k, *y.shape[3:]),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        x, w = inputs
        return self.dgrad(f, grads[0], w, _pair(x)), self.wgrad(f, x, grads[0], _pair(w))

    def dgrad(self, f: Vocabulary, dy: Tensor, w: Tensor, size: Pair) -> Tensor:
        return f.emit(Conv2dDgrad(*_settings(self), size), dy, w)

    def wgrad(self, f: Vocabulary, x: Tensor, dy: Tensor, kernel_size: Pair) -> Tensor:
        return f.emit(Conv2dWgrad(*_settings(self), kernel_size), x, dy)

    def iteration(self, a: Type, b: Type) -> Iteration:
        (y,) = self.infer(a, b)
        n, channels, p, q = y.shape
        _, c, r, s = b.shape
        at = self.maps("ngkpqcrs", _extents(self, n, channels, c, p=p, q=q, r=r, s=s))
        i = at.sum
        output = (i(n=1), at.channel("k"), i(p=1), i(q=1))
        x = Operand((i(n=1), at.channel("c"), at.pixel("p", "r"), at.pixel("q", "s")), ONES)
        w = Operand((at.channel("k"), i(c=1), i(r=1), i(s=1)), ONES)
        return at.iteration("ngkpq", output, x, w)


@dataclass(frozen=True)
class Conv2dWgrad(_Convolution):
    """dw[k, c, r, s] = sum over n, p, q of x[n, c, h, w] * dy[n, k, p, q]."""

    kernel_size: Pair
    name: ClassVar[str] = "conv2d_wgrad"
    called: ClassVar[str] = "wgrad"
    images: ClassVar[int] = 2
    folds = ((1, 1), (1, 0))
    folds_of_both = (1, 1, 0)

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        x, dy = inputs
        k, c = dy.shape[1], x.shape[1] // self.groups
        w = Type((k, c, *self.kernel_size), dy.dtype)
        (y,) = Conv2d(*_settings(self)).infer(x, w)
        assert y.shape == dy.shape, (self, x, dy)
        return (w,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x, dy = inputs
        (n, k, p, q), groups = dy.shape, self.groups
        windows = _windows(self, x, self.kernel_size)
        dw = _einsum("ngcpqrs,ngkpq->gkcrs", windows, dy.reshape(n, groups, k // groups, p, q))
        return (dw.reshape(k, *dw.shape[2:]),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """wgrad is linear in x and in dy."""
        (x, dy), (d,) = inputs, grads
        forward = Conv2d(*_settings(self))
        return forward.dgrad(f, dy, d, _pair(x)), f.emit(forward, x, d)

    def iteration(self, a: Type, b: Type) -> Iteration:
        (w,) = self.infer(a, b)
        n, channels, p, q = b.shape
        _, c, r, s = w.shape
        at = self.maps("gkcrsnpq", _extents(self, n, channels, c, p=p, q=q, r=r, s=s))
        i = at.sum
        output = (at.channel("k"), i(c=1), i(r=1), i(s=1))
        x = Operand((i(n=1), at.channel("c"), at.pixel("p", "r"), at.pixel("q", "s")), ONES)
        dy = Operand((i(n=1), at.channel("k"), i(p=1), i(q=1)), ONES)
        return at.iteration("gkcrs", output, x, dy)


@dataclass(frozen=True)
class Conv2dDgrad(_Convolution):
    """dx[n, c, h, w] = sum over k, r, s of dy[n, k, p, q] * weight[k, c, r, s].

    p and q are the output pixels that read (h, w) through tap (r, s), if there are such.
    """

    size: Pair
    name: ClassVar[str] = "conv2d_dgrad"
    called: ClassVar[str] = "dgrad"
    images: ClassVar[int] = 1
    folds = ((0, 0), (1, 1))
    folds_of_both = (1, 0, 1)

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        dy, w = inputs
        x = Type((dy.shape[0], w.shape[1] * self.groups, *self.size), dy.dtype)
        (y,) = Conv2d(*_settings(self)).infer(x, w)
        assert y.shape == dy.shape, (self, dy, w)
        return (x,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Each tap's share of dx, added where the tap's pixels lie."""
        dy, w = inputs
        (n, k, p, q), groups, (h0, w0) = dy.shape, self.groups, self.padding
        _, c, taps_r, taps_s = w.shape
        size = self.size[0] + 2 * h0, self.size[1] + 2 * w0
        padded = np.zeros((n, groups, c, *size), np.result_type(dy, w))
        filters = w.reshape(groups, k // groups, c, taps_r, taps_s)
        split = dy.reshape(n, groups, k // groups, p, q)
        for r in range(taps_r):
            rows = _strided(r * self.dilation[0], p, self.stride[0])
            for s in range(taps_s):
                columns = _strided(s * self.dilation[1], q, self.stride[1])
                share = _einsum("ngkpq,gkc->ngcpq", split, filters[..., r, s])
                padded[..., rows, columns] += share
        dx = padded[..., h0 : h0 + self.size[0], w0 : w0 + self.size[1]]
        return (dx.reshape(n, c * groups, *self.size),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """dgrad is linear in dy and in the weight."""
        (dy, w), (d,) = inputs, grads
        forward = Conv2d(*_settings(self))
        return f.emit(forward, d, w), forward.wgrad(f, d, dy, _pair(w))

    def iteration(self, a: Type, b: Type) -> Iteration:
        self.infer(a, b)
        n, channels, _, _ = a.shape
        _, c, r, s = b.shape
        h, w = self.size
        at = self.maps("ngchwkrs", _extents(self, n, channels, c, h=h, w=w, r=r, s=s))
        i = at.sum
        output = (i(n=1), at.channel("c"), i(h=1), i(w=1))
        row = i(self.padding[0], h=1, r=-self.dilation[0])
        column = i(self.padding[1], w=1, s=-self.dilation[1])
        dy = Operand((i(n=1), at.channel("k"), row, column), (1, 1, *self.stride))
        weight = Operand((at.channel("k"), i(c=1), i(r=1), i(s=1)), ONES)
        return at.iteration("ngchw", output, dy, weight)


def _settings(op: _Convolution) -> tuple[Pair, Pair, Pair, int]:
    return op.stride, op.padding, op.dilation, op.groups


def _extents(op: _Convolution, n: int, channels: int, c: int, **others: int) -> dict[str, int]:
    """The extents of the iteration axes; `channels` are all output channels."""
    return {"n": n, "g": op.groups, "k": channels // op.groups, "c": c, **others}


def _strided(start: int, count: int, step: int) -> slice:
    return slice(start, start + (count - 1) * step + 1, step)


def _windows(op: _Convolution, x: Array, taps: Pair) -> Array:
    """The input under each tap: [n, g, c, p, q, r, s], without copying the padded x."""
    (h0, w0), n, groups = op.padding, x.shape[0], op.groups
    padded = np.pad(x, ((0, 0), (0, 0), (h0, h0), (w0, w0)))
    c = x.shape[1] // groups
    p, q = (op.extent(x.shape[2 + i], taps[i], i) for i in (0, 1))
    sn, sc, sh, sw = padded.strides
    (a, b), (e, f) = op.stride, op.dilation
    strides = (sn, sc * c, sc, sh * a, sw * b, sh * e, sw * f)
    return as_strided(padded, (n, groups, c, p, q, *taps), strides, writeable=False)


def _einsum(subscripts: str, a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(np.einsum(subscripts, a, b, optimize=True), np.result_type(a, b))


def _pair(x: Tensor) -> Pair:
    """Rows and columns of images or weights."""
    rows, columns = x.shape[2:]
    return rows, columns
