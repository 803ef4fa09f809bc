"""Two-dimensional pooling of [n, c, h, w] and its gradients.

The window of output pixel (p, q) holds the places (p * stride - padding + r, q * stride - padding
+ s) for the taps r, s of the kernel size, as far as they lie within the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from graphc.base.errors import GraphError
from graphc.ir import FLOATS, Type
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.axes import Axes, all_stacked, folded, unfolded
from graphc.ops.base import Array, Flags, Window, check_dtype
from graphc.ops.constant import Constant
from graphc.ops.indexing import TakeAlongAxis
from graphc.ops.join import Pad

Pair = tuple[int, int]


@dataclass(frozen=True)
class _Pooling(Window):
    kernel_size: Pair
    stride: Pair
    padding: Pair

    def pixels(self, size: Pair) -> Pair:
        """Output pixels (p, q) for input pixels (h, w)."""
        p, q = (
            (size[i] + 2 * self.padding[i] - self.kernel_size[i]) // self.stride[i] + 1
            for i in (0, 1)
        )
        return p, q

    def check(self, x: Type) -> Type:
        """The type of the pooled x, or GraphError."""
        name = self.name.removesuffix("_grad")
        if x.rank != 4:
            raise GraphError(f"{name}: expected x of 4 axes [n, c, h, w], got {x}")
        check_dtype(name, x.dtype, FLOATS, (x,))
        if any(2 * pad > k for pad, k in zip(self.padding, self.kernel_size, strict=True)):
            raise GraphError(
                f"{name}: padding {self.padding} is more than half of kernel_size "
                f"{self.kernel_size}"
            )
        p, q = self.pixels((x.shape[2], x.shape[3]))
        if p < 1 or q < 1:
            raise GraphError(
                f"{name}: x {x} with padding {self.padding} is smaller than kernel_size "
                f"{self.kernel_size}"
            )
        return Type((*x.shape[:2], p, q), x.dtype)

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        maps = tuple((0, 1, None, None) for _ in inputs)
        return (maps,) * len(self.infer(*inputs))

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        parts = (folded(f, x) for x in all_stacked(f, inputs, stacked, size))
        return [unfolded(f, y, size) for y in f.emit_all(self, *parts)]

    def padded(self, x: Array, value: float) -> Array:
        (h0, w0) = self.padding
        return np.pad(x, ((0, 0), (0, 0), (h0, h0), (w0, w0)), constant_values=value)

    def windows(self, x: Array) -> Array:
        """The padded x under each tap: [n, c, p, q, r * s]."""
        view = sliding_window_view(x, self.kernel_size, axis=(2, 3))
        strided = view[:, :, :: self.stride[0], :: self.stride[1]]
        taps = self.kernel_size[0] * self.kernel_size[1]
        return strided.reshape(*strided.shape[:4], taps)

    def taps(self, size: Pair) -> Iterator[tuple[int, tuple[slice, slice]]]:
        """Each tap's number r * S + s with the padded input pixels that it meets."""
        p, q = self.pixels(size)
        (a, b), columns = self.stride, self.kernel_size[1]
        for r in range(self.kernel_size[0]):
            for s in range(columns):
                rows = slice(r, r + (p - 1) * a + 1, a)
                yield r * columns + s, (rows, slice(s, s + (q - 1) * b + 1, b))

    def scatter(self, dy: Array, size: Pair, share: Callable[[int], Array]) -> Array:
        """The sum of each tap's share, where the tap's pixels lie: [n, c, h, w].

        A pixel's windows are added by ascending row and column: its last tap is the first.
        """
        (h0, w0), (h, w) = self.padding, size
        padded = np.zeros((*dy.shape[:2], h + 2 * h0, w + 2 * w0), dy.dtype)
        for tap, (rows, columns) in reversed([*self.taps(size)]):
            padded[:, :, rows, columns] += share(tap)
        return padded[:, :, h0 : h0 + h, w0 : w0 + w]


@dataclass(frozen=True)
class MaxPool2d(_Pooling):
    """y[n, c, p, q] = the largest x of the window, NaN if any is, and its index r * S + s.

    It is the first of equal elements. The index is u8, or i32 for windows of more than 256
    elements.
    """

    name: ClassVar[str] = "max_pool2d"
    takes_narrow: ClassVar[bool] = True
    finds_largest: ClassVar[bool] = True

    @property
    def pools_in_registers(self) -> bool:
        """Windows that tile the pixels."""
        rows, columns = self.kernel_size
        tiles = self.stride == self.kernel_size and self.padding == (0, 0)
        return tiles and rows <= 4 and rows * columns <= 9

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        y = self.check(x)
        places = self.kernel_size[0] * self.kernel_size[1]
        return y, Type(y.shape, "u8" if places <= 256 else "i32")

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        windows = self.windows(self.padded(x, -np.inf))
        inside = self.windows(self.padded(np.ones_like(x, np.bool_), False))
        y = windows.max(axis=-1)
        largest = (windows == y[..., None]) | np.isnan(windows)
        places = np.argmax(largest & inside, axis=-1)
        return y, places.astype(np.uint8 if windows.shape[-1] <= 256 else np.int32)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        h, w = inputs[0].shape[2:]
        op = MaxPool2dGrad(self.kernel_size, self.stride, self.padding, (h, w))
        return (f.emit(op, grads[0], outputs[1]),)


@dataclass(frozen=True)
class MaxPool2dGrad(_Pooling):
    """dx[n, c, h, w] = sum of dy[n, c, p, q] over the windows whose place names (h, w)."""

    size: Pair
    name: ClassVar[str] = "max_pool2d_grad"

    @property
    def accumulates(self) -> bool:
        return True

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        dy, index = inputs
        x = Type((*dy.shape[:2], *self.size), dy.dtype)
        y = self.check(x)
        assert dy.shape == index.shape == y.shape, (self, dy, index)
        return (x,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        dy, index = inputs
        zero = dy.dtype.type(0)
        return (self.scatter(dy, self.size, lambda tap: np.where(index == tap, dy, zero)),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """What lies where each window had its largest, of the padded d: one element a window."""
        (dy, index), (d,) = inputs, grads
        (h0, w0), (p, q), columns = self.padding, self.pixels(self.size), self.kernel_size[1]
        height, width = self.size[0] + 2 * h0, self.size[1] + 2 * w0
        around = (0, 0, h0, w0)
        rows, starts = (np.arange(n) * step for n, step in zip((p, q), self.stride, strict=True))
        corners = f.emit(Constant.of((rows[:, None] * width + starts).astype(np.int32)))
        place = f.astype(index, "i32")
        pixels = corners + place + place // columns * (width - columns)
        images = f.emit(Pad(around, around, (0, 0, 0, 0)), d)
        flat = f.reshape(images, (*dy.shape[:2], height * width))
        chosen = f.emit(TakeAlongAxis(2), flat, f.reshape(pixels, (*dy.shape[:2], p * q)))
        return f.reshape(chosen, dy.shape), None


@dataclass(frozen=True)
class _AveragePooling(_Pooling):
    count_include_pad: bool

    @property
    def accumulates(self) -> bool:
        return True

    def counts(self, size: Pair, like: Array) -> Array:
        """The divisor of each window: its places, or those within the input."""
        if self.count_include_pad:
            places = self.kernel_size[0] * self.kernel_size[1]
            return np.full((1, 1, *self.pixels(size)), places, like.dtype)
        inside = self.padded(np.ones((1, 1, *size), like.dtype), 0.0)
        return np.asarray(self.windows(inside).sum(axis=-1))


@dataclass(frozen=True)
class AvgPool2d(_AveragePooling):
    """y[n, c, p, q] = the mean of x over the window.

    Padding counts as zeros, or not at all without `count_include_pad`.
    """

    name: ClassVar[str] = "avg_pool2d"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        return (self.check(x),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        h, w = x.shape[2:]
        windows = self.windows(self.padded(x, 0.0))
        total = np.zeros(windows.shape[:-1], x.dtype)
        for tap in range(windows.shape[-1]):  # one after the other, as kernels do
            total += windows[..., tap]
        return (total / self.counts((h, w), x),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        h, w = inputs[0].shape[2:]
        settings = (self.kernel_size, self.stride, self.padding, self.count_include_pad)
        return (f.emit(AvgPool2dGrad(*settings, (h, w)), grads[0]),)


@dataclass(frozen=True)
class AvgPool2dGrad(_AveragePooling):
    """dx[n, c, h, w] = sum of dy[n, c, p, q] / (divisor of p, q) over the windows with (h, w)."""

    size: Pair
    name: ClassVar[str] = "avg_pool2d_grad"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (dy,) = inputs
        x = Type((*dy.shape[:2], *self.size), dy.dtype)
        y = self.check(x)
        assert dy.shape == y.shape, (self, dy)
        return (x,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (dy,) = inputs
        part = dy / self.counts(self.size, dy)
        return (self.scatter(dy, self.size, lambda _: part),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """The gradient is linear: its own gradient is pooling."""
        settings = (self.kernel_size, self.stride, self.padding, self.count_include_pad)
        return (f.emit(AvgPool2d(*settings), grads[0]),)
