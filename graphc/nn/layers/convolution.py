"""Convolution layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.module import Module
from graphc.trace import Tensor

Size = int | tuple[int, ...]
MODES = ("zeros", "reflect", "replicate", "circular")
AXES = ("", "c, w", "c, h, w", "c, d, h, w")
TRANSPOSED_AXES = ("", "k, q", "k, p, q", "k, o, p, q")
"""Of x without a batch, by the number of axes of an image."""
Functions = dict[int, Callable[..., Tensor]]
CONVOLUTIONS: Functions = {1: functions.conv1d, 2: functions.conv2d, 3: functions.conv3d}
TRANSPOSED: Functions = {
    1: functions.conv_transpose1d,
    2: functions.conv_transpose2d,
    3: functions.conv_transpose3d,
}


class _Layer(Module):
    """Base of convolutions: channels in groups, windows, and parameters drawn by the fan-in."""

    _axes: ClassVar[int]

    def _set_channels(self, in_channels: int, out_channels: int, groups: int) -> None:
        layer = type(self).__name__
        self.in_channels = check.integer(layer, "in_channels", in_channels)
        self.out_channels = check.integer(layer, "out_channels", out_channels)
        self.groups = check.integer(layer, "groups", groups)
        if self.in_channels % self.groups or self.out_channels % self.groups:
            check.fail(
                f"{layer}: groups={self.groups} expected to divide in_channels and out_channels, "
                f"got {self.in_channels} and {self.out_channels}"
            )

    def _sizes(self, name: str, value: Any, at_least: int = 1) -> tuple[int, ...]:
        return check.sizes(type(self).__name__, name, value, self._axes, at_least)

    def _set_parameters(self, weight: tuple[int, ...], bias: bool) -> None:
        fan_in = math.prod(weight[1:])
        self.weight = initialize.uniform(weight, fan_in)
        self.bias = initialize.uniform((self.out_channels,), fan_in) if bias else None

    def describe(self) -> str:
        inner = ("kernel_size", "stride", "padding", "output_padding", "dilation", "groups")
        named = [f"{name}={vars(self)[name]!r}" for name in inner if name in vars(self)]
        return ", ".join(
            [f"{self.in_channels}, {self.out_channels}", *named, f"bias={self.bias is not None}"]
        )


class _Convolution(_Layer):
    """Base of convolutions with any padding mode."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        layer = type(self).__name__
        self._set_channels(in_channels, out_channels, groups)
        self.kernel_size = self._sizes("kernel_size", kernel_size)
        self.stride = self._sizes("stride", stride)
        self.dilation = self._sizes("dilation", dilation)
        self.padding: tuple[int, ...] | str = (
            padding if isinstance(padding, str) else self._sizes("padding", padding, 0)
        )
        if isinstance(padding, str) and padding not in ("same", "valid"):
            check.fail(f"{layer}: padding expected integers, 'same' or 'valid', got {padding!r}")
        if padding == "same" and any(step != 1 for step in self.stride):
            check.fail(f"{layer}: padding='same' expected stride=1, got {self.stride}")
        if padding_mode not in MODES:
            check.fail(
                f"{layer}: padding_mode expected 'zeros', 'reflect', 'replicate' or 'circular', "
                f"got {padding_mode!r}"
            )
        self.padding_mode = padding_mode
        window = (self.in_channels // self.groups, *self.kernel_size)
        self._set_parameters((self.out_channels, *window), bias)

    def forward(self, x: Tensor) -> Tensor:
        around = self._around()
        if self.padding_mode == "zeros" and all(low == high for low, high in around):
            within = tuple(low for low, _ in around)
        else:
            _check_axes(self, x, AXES[self._axes])
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            x = functions.pad(x, [*[(0, 0)] * (x.ndim - self._axes), *around], mode=mode)
            within = (0,) * self._axes
        settings = (self.stride, within, self.dilation)
        return CONVOLUTIONS[self._axes](
            x, self.weight, self.bias, *map(check.plain, settings), self.groups
        )

    def _around(self) -> list[tuple[int, int]]:
        """The elements before and behind each axis."""
        if not isinstance(self.padding, str):
            return [(p, p) for p in self.padding]
        reach = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        return [(r // 2, r - r // 2) if self.padding == "same" else (0, 0) for r in reach]


class Conv1d(_Convolution):
    """Convolution of sequences x [n, c, w]; arguments as for `Conv2d`.

    Attributes:
        weight: f32 [out_channels, in_channels / groups, s].
        bias: f32 [out_channels] or None.

    Example:
        >>> graphc.trace(nn.Conv1d(3, 8, 5), graphc.spec((2, 3, 32))).outputs[0].type.shape
        (2, 8, 28)
    """

    _axes = 1


class Conv2d(_Convolution):
    """Convolution of images x [n, c, h, w], as cross-correlation, plus a bias per channel.

    Args:
        in_channels: The number of channels c.
        out_channels: The number of channels of the result.
        kernel_size: The size of the filter, one number or (rows, columns).
        stride: The step of the filter, one number or (rows, columns).
        padding: Elements around the images, one number or (rows, columns); "valid" for none; or
            "same", which keeps the size with stride 1.
        dilation: The distance between taps of the filter.
        groups: The number of groups of channels that are convolved separately.
        bias: Whether to add a bias.
        padding_mode: "zeros", "reflect", "replicate" or "circular".

    Attributes:
        weight: f32 [out_channels, in_channels / groups, r, s].
        bias: f32 [out_channels] or None.

    Example:
        >>> graphc.trace(nn.Conv2d(3, 8, 5), graphc.spec((2, 3, 32, 32))).outputs[0].type.shape
        (2, 8, 28, 28)
    """

    _axes = 2


class Conv3d(_Convolution):
    """Convolution of volumes x [n, c, d, h, w]; arguments as for `Conv2d`.

    Attributes:
        weight: f32 [out_channels, in_channels / groups, t, r, s].
        bias: f32 [out_channels] or None.

    Example:
        >>> graphc.trace(nn.Conv3d(3, 8, 2), graphc.spec((2, 3, 4, 4, 4))).outputs[0].type.shape
        (2, 8, 3, 3, 3)
    """

    _axes = 3


class _Transposed(_Layer):
    """Base of transposed convolutions."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
    ) -> None:
        if padding_mode != "zeros":
            check.fail(
                f"{type(self).__name__}: padding_mode expected 'zeros', got {padding_mode!r}"
            )
        self._set_channels(in_channels, out_channels, groups)
        self.kernel_size = self._sizes("kernel_size", kernel_size)
        self.stride = self._sizes("stride", stride)
        self.padding = self._sizes("padding", padding, 0)
        self.output_padding = self._sizes("output_padding", output_padding, 0)
        self.dilation = self._sizes("dilation", dilation)
        window = (self.out_channels // self.groups, *self.kernel_size)
        self._set_parameters((self.in_channels, *window), bias)

    def forward(self, x: Tensor) -> Tensor:
        _check_axes(self, x, TRANSPOSED_AXES[self._axes])
        settings = map(check.plain, (self.stride, self.padding, self.output_padding))
        return TRANSPOSED[self._axes](
            x, self.weight, self.bias, *settings, self.groups, check.plain(self.dilation)
        )


class ConvTranspose1d(_Transposed):
    """Transposed convolution of sequences x [n, k, q]; arguments as for `ConvTranspose2d`.

    Attributes:
        weight: f32 [in_channels, out_channels / groups, s].
        bias: f32 [out_channels] or None.

    Example:
        >>> graphc.trace(nn.ConvTranspose1d(8, 3, 5), graphc.spec((2, 8, 28))).outputs[0].type.shape
        (2, 3, 32)
    """

    _axes = 1


class ConvTranspose2d(_Transposed):
    """Transposed convolution of images x [n, k, p, q], the gradient of a `Conv2d` in its input.

    The result is [n, c, h, w] with h = (p - 1) * stride - 2 * padding + dilation * (r - 1) +
    output_padding + 1.

    Args:
        in_channels: The number of channels k.
        out_channels: The number of channels of the result.
        kernel_size: The size of the filter, one number or (rows, columns).
        stride: The step of the filter in the result.
        padding: How much is cut from each side of the result.
        output_padding: How much the result is larger at its end, below stride or dilation.
        groups: The number of groups of channels that are convolved separately.
        bias: Whether to add a bias.
        dilation: The distance between taps of the filter.
        padding_mode: Must be "zeros".

    Attributes:
        weight: f32 [in_channels, out_channels / groups, r, s].
        bias: f32 [out_channels] or None.

    Example:
        >>> layer = nn.ConvTranspose2d(8, 3, 5)
        >>> graphc.trace(layer, graphc.spec((2, 8, 28, 28))).outputs[0].type.shape
        (2, 3, 32, 32)
    """

    _axes = 2


class ConvTranspose3d(_Transposed):
    """Transposed convolution of volumes x [n, k, o, p, q]; arguments as for `ConvTranspose2d`.

    Attributes:
        weight: f32 [in_channels, out_channels / groups, t, r, s].
        bias: f32 [out_channels] or None.

    Example:
        >>> layer = nn.ConvTranspose3d(8, 3, 2)
        >>> graphc.trace(layer, graphc.spec((2, 8, 3, 3, 3))).outputs[0].type.shape
        (2, 3, 4, 4, 4)
    """

    _axes = 3


def _check_axes(layer: Module, x: Tensor, image: str) -> None:
    check.axes(type(layer).__name__, x, f"n, {image}", image)
