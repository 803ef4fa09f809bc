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
    """What convolutions share: channels in groups, windows, and parameters drawn by the fan-in,
    which is the number of elements of weight[0]."""

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
    """`kernel_size`, `stride`, `padding` and `dilation` are an integer or one per axis, the last
    innermost; `padding` is also "valid" (none) or "same" (the extents stay; stride 1 only), and
    `padding_mode` is "zeros", "reflect", "replicate" or "circular"."""

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
    """y[n, k, q] = bias[k] + sum over c s of x[n, c, q*stride + s*dilation - padding]
    * weight[k, c, s].

    weight: f32[out_channels, in_channels / groups, s]; bias: f32[out_channels] or None. `padding`
    is an integer, "valid" (none) or "same" (q = w; stride 1 only); `padding_mode` is "zeros",
    "reflect", "replicate" or "circular".
    """

    _axes = 1


class Conv2d(_Convolution):
    """y[n, k, p, q] = bias[k] + sum over c r s of x[n, c, p*stride + r*dilation - padding, ...]
    * weight[k, c, r, s].

    weight: f32[out_channels, in_channels / groups, r, s]; bias: f32[out_channels] or None.
    `kernel_size`, `stride`, `padding` and `dilation` are an integer or a pair (vertical,
    horizontal); `padding` is also "valid" (none) or "same" (p q = h w; stride 1 only);
    `padding_mode` as of `Conv1d`.
    """

    _axes = 2


class Conv3d(_Convolution):
    """y[n, k, o, p, q] = bias[k] + sum over c t r s of
    x[n, c, o*stride + t*dilation - padding, ...] * weight[k, c, t, r, s].

    weight: f32[out_channels, in_channels / groups, t, r, s]; bias: f32[out_channels] or None.
    `kernel_size`, `stride`, `padding` and `dilation` are an integer or three (depth, vertical,
    horizontal); `padding` and `padding_mode` as of `Conv2d`.
    """

    _axes = 3


class _Transposed(_Layer):
    """The map whose transpose is the convolution from out_channels to in_channels with the same
    weight and arguments."""

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
    """y[n, c, w]: the map whose transpose is the Conv1d from out_channels to in_channels with the
    same weight and arguments.

    w = (q - 1) * stride - 2 * padding + dilation * (s - 1) + output_padding + 1 for x[n, k, q].
    weight: f32[in_channels, out_channels / groups, s]; bias: f32[out_channels] or None.
    """

    _axes = 1


class ConvTranspose2d(_Transposed):
    """y[n, c, h, w]: the map whose transpose is the Conv2d from out_channels to in_channels with
    the same weight and arguments.

    h = (p - 1) * stride - 2 * padding + dilation * (r - 1) + output_padding + 1 for x[n, k, p, q];
    w likewise. weight: f32[in_channels, out_channels / groups, r, s]; bias: f32[out_channels] or
    None.
    """

    _axes = 2


class ConvTranspose3d(_Transposed):
    """y[n, c, d, h, w]: the map whose transpose is the Conv3d from out_channels to in_channels with
    the same weight and arguments; extents as of `ConvTranspose2d`.

    weight: f32[in_channels, out_channels / groups, t, r, s]; bias: f32[out_channels] or None.
    """

    _axes = 3


def _check_axes(layer: Module, x: Tensor, image: str) -> None:
    check.axes(type(layer).__name__, x, f"n, {image}", image)
