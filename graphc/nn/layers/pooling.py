"""Pooling layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from graphc import functions
from graphc.nn import check
from graphc.nn.module import Module
from graphc.trace import Tensor

Size = int | tuple[int, ...]
Pools = dict[int, Callable[..., Tensor]]

MAX_POOLS: Pools = {1: functions.max_pool1d, 2: functions.max_pool2d, 3: functions.max_pool3d}
LP_POOLS: Pools = {1: functions.lp_pool1d, 2: functions.lp_pool2d, 3: functions.lp_pool3d}


class _Pool(Module):
    """Base of pooling, with windows of `kernel_size` that are `stride` apart."""

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
    """Base of max pooling, with padding of -inf and elements of a window `dilation` apart.

    With `ceil_mode` windows may end beyond the padding; none begins there. With `return_indices`
    the result is (maxima, i64 indices of their elements in the image).
    """

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
    """Max pooling of sequences: y[n, c, q] is the maximum over a window of x[n, c, w].

    Arguments as for `MaxPool2d`.

    Example:
        >>> graphc.compile(lambda: nn.MaxPool1d(2)(graphc.asarray([[[1.0, 3.0, 2.0, 0.0]]])))()
        array([[[3., 2.]]], dtype=float32)
    """

    _axes = 1


class MaxPool2d(_MaxPool):
    """Max pooling of images: y[n, c, p, q] is the maximum over a window of x[n, c, h, w].

    Args:
        kernel_size: The size of the windows, one number or one per axis.
        stride: The step of the windows; by default `kernel_size`.
        padding: Padding of -inf.
        dilation: The distance between elements of a window.
        return_indices: Whether to return i64 indices too.
        ceil_mode: Whether windows may end beyond the padding.

    Example:
        >>> graphc.trace(nn.MaxPool2d(2), graphc.spec((8, 3, 32, 32))).outputs[0].type.shape
        (8, 3, 16, 16)
    """

    _axes = 2


class MaxPool3d(_MaxPool):
    """Max pooling of volumes: y[n, c, o, p, q] is the maximum over a window of x[n, c, d, h, w].

    Arguments as for `MaxPool2d`.

    Example:
        >>> graphc.trace(nn.MaxPool3d(2), graphc.spec((8, 3, 4, 4, 4))).outputs[0].type.shape
        (8, 3, 2, 2, 2)
    """

    _axes = 3


class AvgPool1d(_Pool):
    """Average pooling of sequences: y[n, c, q] is the mean over a window of x[n, c, w].

    Args:
        kernel_size: The size of the windows.
        stride: The step of the windows; by default `kernel_size`.
        padding: Padding of zeros.
        ceil_mode: Whether windows may end beyond the padding.
        count_include_pad: Whether padding counts as elements.

    Example:
        >>> graphc.compile(lambda: nn.AvgPool1d(2)(graphc.asarray([[[1.0, 3.0, 2.0, 0.0]]])))()
        array([[[2., 1.]]], dtype=float32)
    """

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
    """Base of average pooling, with padding of zeros.

    Padding counts as elements if `count_include_pad`; `divisor_override` replaces their number.
    """

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
    """Average pooling of images: y[n, c, p, q] is the mean over a window of x[n, c, h, w].

    Args:
        kernel_size: The size of the windows, one number or one per axis.
        stride: The step of the windows; by default `kernel_size`.
        padding: Padding of zeros.
        ceil_mode: Whether windows may end beyond the padding.
        count_include_pad: Whether padding counts as elements.
        divisor_override: The number to divide by, instead of the number of elements.

    Example:
        >>> graphc.trace(nn.AvgPool2d(2), graphc.spec((8, 3, 32, 32))).outputs[0].type.shape
        (8, 3, 16, 16)
    """

    _axes = 2


class AvgPool3d(_AvgPool):
    """Average pooling of volumes: y[n, c, o, p, q] is the mean over a window of x[n, c, d, h, w].

    Arguments as for `AvgPool2d`.

    Example:
        >>> graphc.trace(nn.AvgPool3d(2), graphc.spec((8, 3, 4, 4, 4))).outputs[0].type.shape
        (8, 3, 2, 2, 2)
    """

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
    """Power-average pooling of sequences: (sum of x^norm_type)^(1 / norm_type) over windows.

    Args:
        norm_type: The exponent.
        kernel_size: The size of the windows.
        stride: The step of the windows; by default `kernel_size`.
        ceil_mode: Whether windows may end beyond the input.

    Example:
        >>> graphc.compile(lambda: nn.LPPool1d(2, 2)(graphc.asarray([[[3.0, 4.0]]])))()
        array([[[5.]]], dtype=float32)
    """

    _axes = 1


class LPPool2d(_LPPool):
    """Power-average pooling of images [n, c, h, w]; arguments as for `LPPool1d`.

    Example:
        >>> graphc.trace(nn.LPPool2d(2, 2), graphc.spec((8, 3, 32, 32))).outputs[0].type.shape
        (8, 3, 16, 16)
    """

    _axes = 2


class LPPool3d(_LPPool):
    """Power-average pooling of volumes [n, c, d, h, w]; arguments as for `LPPool1d`.

    Example:
        >>> graphc.trace(nn.LPPool3d(2, 2), graphc.spec((8, 3, 4, 4, 4))).outputs[0].type.shape
        (8, 3, 2, 2, 2)
    """

    _axes = 3
