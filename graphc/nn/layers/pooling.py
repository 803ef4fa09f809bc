"""Pooling layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from graphc import functions
from graphc.nn import check
from graphc.nn.module import Module
from graphc.trace import Tensor

Size = int | tuple[int, ...]
Extents = int | tuple[int | None, ...] | None
Pools = dict[int, Callable[..., Tensor]]

MAX_POOLS: Pools = {1: functions.max_pool1d, 2: functions.max_pool2d, 3: functions.max_pool3d}
LP_POOLS: Pools = {1: functions.lp_pool1d, 2: functions.lp_pool2d, 3: functions.lp_pool3d}


class _Pool(Module):
    """Windows of `kernel_size`, `stride` apart (the window's own size unless given). Each is an
    integer or one per axis, the last innermost."""

    _axes: ClassVar[int]

    def _set_windows(self, kernel_size: Any, stride: Any, ceil_mode: bool) -> None:
        self.kernel_size = self._sizes("kernel_size", kernel_size)
        self.stride = self.kernel_size if stride is None else self._sizes("stride", stride)
        self.ceil_mode = bool(ceil_mode)

    def _set_padding(self, padding: Any) -> None:
        self.padding = self._sizes("padding", padding, at_least=0)
        if any(2 * p > k for p, k in zip(self.padding, self.kernel_size, strict=True)):
            check.fail(
                f"{type(self).__name__}: padding expected at most half of "
                f"kernel_size={check.plain(self.kernel_size)}, got {check.plain(self.padding)}"
            )

    def _sizes(self, name: str, value: Any, at_least: int = 1) -> tuple[int, ...]:
        return check.sizes(type(self).__name__, name, value, self._axes, at_least)

    def describe(self) -> str:
        names = ("kernel_size", "stride", "padding", "dilation")
        named = [f"{name}={check.plain(vars(self)[name])}" for name in names if name in vars(self)]
        return ", ".join([*named, f"ceil_mode={self.ceil_mode}"])


class _MaxPool(_Pool):
    """The maximum over each window; padding is -infinity, and the elements of a window are
    `dilation` apart. With `ceil_mode` windows may end behind the padding, but none begins there.
    With `return_indices` the result is (maxima, numbers of their elements in the image, i64)."""

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        self.return_indices = bool(return_indices)
        self._set_windows(kernel_size, stride, ceil_mode)
        self._set_padding(padding)
        self.dilation = self._sizes("dilation", dilation)

    def forward(self, x: Tensor) -> Any:
        settings = (self.kernel_size, self.stride, self.padding, self.dilation)
        return MAX_POOLS[self._axes](
            x, *map(check.plain, settings), self.ceil_mode, self.return_indices
        )


class MaxPool1d(_MaxPool):
    """y[n, c, q] is the maximum of x[n, c, w] over a window; padding is -infinity."""

    _axes = 1


class MaxPool2d(_MaxPool):
    """y[n, c, p, q] is the maximum of x[n, c, h, w] over a window; padding is -infinity."""

    _axes = 2


class MaxPool3d(_MaxPool):
    """y[n, c, o, p, q] is the maximum of x[n, c, d, h, w] over a window; padding is -infinity."""

    _axes = 3


class AvgPool1d(_Pool):
    """y[n, c, q] is the mean of x[n, c, w] over a window; padding is zeros, which count as elements
    if `count_include_pad`."""

    _axes = 1

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self._set_windows(kernel_size, stride, ceil_mode)
        self._set_padding(padding)
        self.count_include_pad = bool(count_include_pad)

    def forward(self, x: Tensor) -> Tensor:
        return functions.avg_pool1d(
            x,
            self.kernel_size[0],
            self.stride[0],
            self.padding[0],
            self.ceil_mode,
            self.count_include_pad,
        )

    def describe(self) -> str:
        return f"{super().describe()}, count_include_pad={self.count_include_pad}"


class _AvgPool(_Pool):
    """The mean over each window; padding is zeros, which count as elements if `count_include_pad`.
    `divisor_override` takes the place of the number of elements."""

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        self._set_windows(kernel_size, stride, ceil_mode)
        self._set_padding(padding)
        self.count_include_pad = bool(count_include_pad)
        self.divisor_override = divisor_override
        if divisor_override is not None:
            check.integer(type(self).__name__, "divisor_override", divisor_override)

    def forward(self, x: Tensor) -> Tensor:
        return (functions.avg_pool2d, functions.avg_pool3d)[self._axes - 2](
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def describe(self) -> str:
        return f"{super().describe()}, count_include_pad={self.count_include_pad}"


class AvgPool2d(_AvgPool):
    """y[n, c, p, q] is the mean of x[n, c, h, w] over a window; padding is zeros, which count as
    elements if `count_include_pad`."""

    _axes = 2


class AvgPool3d(_AvgPool):
    """y[n, c, o, p, q] is the mean of x[n, c, d, h, w] over a window; padding is zeros, which count
    as elements if `count_include_pad`."""

    _axes = 3


class _LPPool(_Pool):
    """(sum of x^norm_type)^(1 / norm_type) over each window; 0 where that sum is negative."""

    def __init__(
        self,
        norm_type: float,
        kernel_size: Size,
        stride: Size | None = None,
        ceil_mode: bool = False,
    ) -> None:
        self.norm_type = check.real(type(self).__name__, "norm_type", norm_type)
        self._set_windows(kernel_size, stride, ceil_mode)

    def forward(self, x: Tensor) -> Tensor:
        windows = map(check.plain, (self.kernel_size, self.stride))
        return LP_POOLS[self._axes](x, self.norm_type, *windows, self.ceil_mode)

    def describe(self) -> str:
        return f"norm_type={self.norm_type}, {super().describe()}"


class LPPool1d(_LPPool):
    """The norm of order `norm_type` of x[n, c, w] over each window."""

    _axes = 1


class LPPool2d(_LPPool):
    """The norm of order `norm_type` of x[n, c, h, w] over each window."""

    _axes = 2


class LPPool3d(_LPPool):
    """The norm of order `norm_type` of x[n, c, d, h, w] over each window."""

    _axes = 3


class _AdaptivePool(Module):
    """`output_size` is the extents of the result, an integer or one per axis, where None keeps
    that of x; window i of an axis of extent h goes from floor(i * h / p) to
    ceil((i + 1) * h / p)."""

    _axes: ClassVar[int]

    def __init__(self, output_size: Extents) -> None:
        layer = type(self).__name__
        given = output_size if isinstance(output_size, (tuple, list)) else (output_size,)
        check.sizes(layer, "output_size", _known(output_size), self._axes)
        self.output_size: tuple[int | None, ...] = tuple(given * (self._axes // len(given)))

    def describe(self) -> str:
        return f"output_size={check.plain(self.output_size)}"


class _AdaptiveAvgPool(_AdaptivePool):
    """The mean over windows of any size; output_size=1 is global pooling."""

    def forward(self, x: Tensor) -> Tensor:
        return (
            functions.adaptive_avg_pool1d,
            functions.adaptive_avg_pool2d,
            functions.adaptive_avg_pool3d,
        )[self._axes - 1](x, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean of x[n, c, w] over `output_size` windows: [n, c, output_size]."""

    _axes = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The mean of x[n, c, h, w] over windows of any size; output_size=1 is global pooling."""

    _axes = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The mean of x[n, c, d, h, w] over windows of any size; output_size=1 is global pooling."""

    _axes = 3


class _AdaptiveMaxPool(_AdaptivePool):
    """The maximum over windows of any size; output_size=1 is global pooling."""

    def __init__(self, output_size: Extents, return_indices: bool = False) -> None:
        self.return_indices = bool(return_indices)
        super().__init__(output_size)

    def forward(self, x: Tensor) -> Any:
        return (
            functions.adaptive_max_pool1d,
            functions.adaptive_max_pool2d,
            functions.adaptive_max_pool3d,
        )[self._axes - 1](x, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The maximum of x[n, c, w] over `output_size` windows: [n, c, output_size]."""

    _axes = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The maximum of x[n, c, h, w] over windows of any size; output_size=1 is global pooling."""

    _axes = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The maximum of x[n, c, d, h, w] over windows of any size; output_size=1 is global pooling."""

    _axes = 3


def _known(output_size: Any) -> Any:
    """Output extents with 1 where they are those of the input."""
    if isinstance(output_size, (tuple, list)):
        return tuple(1 if n is None else n for n in output_size)
    return 1 if output_size is None else output_size
