"""Pooling layers."""

from __future__ import annotations

from graphc import functions
from graphc.nn import check
from graphc.nn.module import Module
from graphc.trace import Tensor

Pair = int | tuple[int, int]


class _Pool2d(Module):
    """Windows of `kernel_size`, `stride` apart (the window's own size unless given), over an
    input with `padding` on each side. Each is an integer or a pair (vertical, horizontal)."""

    def __init__(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0) -> None:
        layer = type(self).__name__
        self.kernel_size = check.pair(layer, "kernel_size", kernel_size)
        self.stride = self.kernel_size if stride is None else check.pair(layer, "stride", stride)
        self.padding = check.pair(layer, "padding", padding, at_least=0)
        if any(2 * p > k for p, k in zip(self.padding, self.kernel_size, strict=True)):
            check.fail(
                f"{layer}: padding expected at most half of kernel_size={self.kernel_size}, "
                f"got {self.padding}"
            )

    def describe(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool2d(_Pool2d):
    """y[n, c, p, q] is the maximum of x[n, c, h, w] over a window; padding is -infinity."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.max_pool2d(x, self.kernel_size, self.stride, self.padding)


class AvgPool2d(_Pool2d):
    """y[n, c, p, q] is the mean of x[n, c, h, w] over a window; padding is zeros, which count as
    elements if `count_include_pad`."""

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.count_include_pad = bool(count_include_pad)

    def forward(self, x: Tensor) -> Tensor:
        return functions.avg_pool2d(
            x, self.kernel_size, self.stride, self.padding, self.count_include_pad
        )

    def describe(self) -> str:
        return f"{super().describe()}, count_include_pad={self.count_include_pad}"


class _Pool1d(Module):
    """Windows of `kernel_size`, `stride` apart (the window's own size unless given), over an
    input with `padding` at both ends."""

    def __init__(self, kernel_size: int, stride: int | None = None, padding: int = 0) -> None:
        layer = type(self).__name__
        self.kernel_size = check.integer(layer, "kernel_size", kernel_size)
        self.stride = self.kernel_size if stride is None else check.integer(layer, "stride", stride)
        self.padding = check.integer(layer, "padding", padding, at_least=0)
        if 2 * self.padding > self.kernel_size:
            check.fail(
                f"{layer}: padding expected at most half of kernel_size={self.kernel_size}, "
                f"got {self.padding}"
            )

    def describe(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool1d(_Pool1d):
    """y[n, c, q] is the maximum of x[n, c, w] over a window; padding is -infinity."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.max_pool1d(x, self.kernel_size, self.stride, self.padding)


class AvgPool1d(_Pool1d):
    """y[n, c, q] is the mean of x[n, c, w] over a window; padding is zeros, which count as elements
    if `count_include_pad`."""

    def __init__(
        self,
        kernel_size: int,
        stride: int | None = None,
        padding: int = 0,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.count_include_pad = bool(count_include_pad)

    def forward(self, x: Tensor) -> Tensor:
        return functions.avg_pool1d(
            x, self.kernel_size, self.stride, self.padding, self.count_include_pad
        )

    def describe(self) -> str:
        return f"{super().describe()}, count_include_pad={self.count_include_pad}"


class _AdaptivePool2d(Module):
    """y[n, c, p, q] with (p, q) = `output_size`, an integer or a pair; window i of an axis of
    extent h goes from floor(i * h / p) to ceil((i + 1) * h / p)."""

    def __init__(self, output_size: Pair) -> None:
        self.output_size = check.pair(type(self).__name__, "output_size", output_size)

    def describe(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool2d(_AdaptivePool2d):
    """The mean of x[n, c, h, w] over windows of any size; output_size=1 is global pooling."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.adaptive_avg_pool2d(x, self.output_size)


class AdaptiveMaxPool2d(_AdaptivePool2d):
    """The maximum of x[n, c, h, w] over windows of any size; output_size=1 is global pooling."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.adaptive_max_pool2d(x, self.output_size)


class AdaptiveAvgPool1d(Module):
    """The mean of x[n, c, w] over `output_size` windows: [n, c, output_size]."""

    def __init__(self, output_size: int) -> None:
        self.output_size = check.integer("AdaptiveAvgPool1d", "output_size", output_size)

    def forward(self, x: Tensor) -> Tensor:
        return functions.adaptive_avg_pool1d(x, self.output_size)

    def describe(self) -> str:
        return f"output_size={self.output_size}"
