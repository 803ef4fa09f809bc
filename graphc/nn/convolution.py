"""Convolution layers."""

from __future__ import annotations

import math
from typing import Any

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.module import Module
from graphc.trace import Tensor

Pair = int | tuple[int, int]
Triple = int | tuple[int, int, int]


class _Convolution(Module):
    """What convolutions share: channels in groups, and parameters drawn by the fan-in, which is
    the number of elements of weight[0]."""

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

    def _set_parameters(self, weight: tuple[int, ...], bias: bool) -> None:
        fan_in = math.prod(weight[1:])
        self.weight = initialize.uniform(weight, fan_in)
        self.bias = initialize.uniform((self.out_channels,), fan_in) if bias else None

    def _is_named(self, padding: Any, stride: Pair) -> bool:
        """Whether `padding` is "valid" or "same", which takes stride 1."""
        layer = type(self).__name__
        if not isinstance(padding, str):
            return False
        if padding not in ("same", "valid"):
            check.fail(f"{layer}: padding expected integers, 'same' or 'valid', got {padding!r}")
        if padding == "same" and stride not in (1, (1, 1)):
            check.fail(f"{layer}: padding='same' expected stride=1, got {stride}")
        return True

    def describe(self) -> str:
        inner = ("kernel_size", "stride", "padding", "output_padding", "dilation", "groups")
        named = [f"{name}={vars(self)[name]!r}" for name in inner if name in vars(self)]
        return ", ".join(
            [f"{self.in_channels}, {self.out_channels}", *named, f"bias={self.bias is not None}"]
        )


class Conv1d(_Convolution):
    """y[n, k, q] = bias[k] + sum over c s of x[n, c, q*stride + s*dilation - padding]
    * weight[k, c, s].

    weight: f32[out_channels, in_channels / groups, s]; bias: f32[out_channels] or None. `padding`
    is an integer, "valid" (none) or "same" (q = w; stride 1 only).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int | str = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self._set_channels(in_channels, out_channels, groups)
        self.kernel_size = check.integer("Conv1d", "kernel_size", kernel_size)
        self.stride = check.integer("Conv1d", "stride", stride)
        self.padding = (
            padding
            if self._is_named(padding, self.stride)
            else check.integer("Conv1d", "padding", padding, at_least=0)
        )
        self.dilation = check.integer("Conv1d", "dilation", dilation)
        shape = (self.out_channels, self.in_channels // self.groups, self.kernel_size)
        self._set_parameters(shape, bias)

    def forward(self, x: Tensor) -> Tensor:
        return functions.conv1d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class Conv2d(_Convolution):
    """y[n, k, p, q] = bias[k] + sum over c r s of x[n, c, p*stride + r*dilation - padding, ...]
    * weight[k, c, r, s].

    weight: f32[out_channels, in_channels / groups, r, s]; bias: f32[out_channels] or None.
    `kernel_size`, `stride`, `padding` and `dilation` are an integer or a pair (vertical,
    horizontal); `padding` is also "valid" (none) or "same" (p q = h w; stride 1 only).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self._set_channels(in_channels, out_channels, groups)
        self.kernel_size = check.pair("Conv2d", "kernel_size", kernel_size)
        self.stride = check.pair("Conv2d", "stride", stride)
        self.padding = (
            padding
            if self._is_named(padding, self.stride)
            else check.pair("Conv2d", "padding", padding, at_least=0)
        )
        self.dilation = check.pair("Conv2d", "dilation", dilation)
        window = (self.in_channels // self.groups, *self.kernel_size)
        self._set_parameters((self.out_channels, *window), bias)

    def forward(self, x: Tensor) -> Tensor:
        return functions.conv2d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class Conv3d(_Convolution):
    """y[n, k, o, p, q] = bias[k] + sum over c t r s of
    x[n, c, o*stride + t*dilation - padding, ...] * weight[k, c, t, r, s].

    weight: f32[out_channels, in_channels / groups, t, r, s]; bias: f32[out_channels] or None.
    `kernel_size`, `stride`, `padding` and `dilation` are an integer or three (depth, vertical,
    horizontal).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Triple,
        stride: Triple = 1,
        padding: Triple = 0,
        dilation: Triple = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self._set_channels(in_channels, out_channels, groups)
        self.kernel_size = check.triple("Conv3d", "kernel_size", kernel_size)
        self.stride = check.triple("Conv3d", "stride", stride)
        self.padding = check.triple("Conv3d", "padding", padding, at_least=0)
        self.dilation = check.triple("Conv3d", "dilation", dilation)
        window = (self.in_channels // self.groups, *self.kernel_size)
        self._set_parameters((self.out_channels, *window), bias)

    def forward(self, x: Tensor) -> Tensor:
        return functions.conv3d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class ConvTranspose1d(_Convolution):
    """y[n, c, w]: the map whose transpose is the Conv1d from out_channels to in_channels with the
    same weight and arguments.

    w = (q - 1) * stride - 2 * padding + dilation * (s - 1) + output_padding + 1 for x[n, k, q].
    weight: f32[in_channels, out_channels / groups, s]; bias: f32[out_channels] or None.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int = 1,
    ) -> None:
        layer = "ConvTranspose1d"
        self._set_channels(in_channels, out_channels, groups)
        self.kernel_size = check.integer(layer, "kernel_size", kernel_size)
        self.stride = check.integer(layer, "stride", stride)
        self.padding = check.integer(layer, "padding", padding, at_least=0)
        self.output_padding = check.integer(layer, "output_padding", output_padding, at_least=0)
        self.dilation = check.integer(layer, "dilation", dilation)
        shape = (self.in_channels, self.out_channels // self.groups, self.kernel_size)
        self._set_parameters(shape, bias)

    def forward(self, x: Tensor) -> Tensor:
        check.axes("ConvTranspose1d", x, "n, k, q")
        y = functions.conv_transpose2d(
            functions.expand_dims(x, 2),
            functions.expand_dims(self.weight, 2),
            self.bias,
            (1, self.stride),
            (0, self.padding),
            (0, self.output_padding),
            self.groups,
            (1, self.dilation),
        )
        return functions.squeeze(y, 2)


class ConvTranspose2d(_Convolution):
    """y[n, c, h, w]: the map whose transpose is the Conv2d from out_channels to in_channels with
    the same weight and arguments.

    h = (p - 1) * stride - 2 * padding + dilation * (r - 1) + output_padding + 1 for x[n, k, p, q];
    w likewise. weight: f32[in_channels, out_channels / groups, r, s]; bias: f32[out_channels] or
    None.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        output_padding: Pair = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Pair = 1,
    ) -> None:
        layer = "ConvTranspose2d"
        self._set_channels(in_channels, out_channels, groups)
        self.kernel_size = check.pair(layer, "kernel_size", kernel_size)
        self.stride = check.pair(layer, "stride", stride)
        self.padding = check.pair(layer, "padding", padding, at_least=0)
        self.output_padding = check.pair(layer, "output_padding", output_padding, at_least=0)
        self.dilation = check.pair(layer, "dilation", dilation)
        window = (self.out_channels // self.groups, *self.kernel_size)
        self._set_parameters((self.in_channels, *window), bias)

    def forward(self, x: Tensor) -> Tensor:
        return functions.conv_transpose2d(
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.groups,
            self.dilation,
        )
