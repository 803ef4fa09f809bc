"""Convolution layers."""

from __future__ import annotations

from typing import Any

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.module import Module
from graphc.trace import Tensor


class Conv2d(Module):
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
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self.in_channels = check.integer("Conv2d", "in_channels", in_channels)
        self.out_channels = check.integer("Conv2d", "out_channels", out_channels)
        self.kernel_size = check.pair("Conv2d", "kernel_size", kernel_size)
        self.stride = check.pair("Conv2d", "stride", stride)
        self.dilation = check.pair("Conv2d", "dilation", dilation)
        self.groups = check.integer("Conv2d", "groups", groups)
        self.padding = self._padding(padding)
        if self.in_channels % self.groups or self.out_channels % self.groups:
            check.fail(
                f"Conv2d: groups={self.groups} expected to divide in_channels and out_channels, "
                f"got {self.in_channels} and {self.out_channels}"
            )
        window = (self.in_channels // self.groups, *self.kernel_size)
        fan_in = window[0] * window[1] * window[2]
        self.weight = initialize.uniform((self.out_channels, *window), fan_in)
        self.bias = initialize.uniform((self.out_channels,), fan_in) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functions.conv2d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def _padding(self, padding: Any) -> tuple[int, int] | str:
        if not isinstance(padding, str):
            return check.pair("Conv2d", "padding", padding, at_least=0)
        if padding not in ("same", "valid"):
            check.fail(f"Conv2d: padding expected integers, 'same' or 'valid', got {padding!r}")
        if padding == "same" and self.stride != (1, 1):
            check.fail(f"Conv2d: padding='same' expected stride=1, got {self.stride}")
        return padding

    def describe(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding!r}, dilation={self.dilation}, "
            f"groups={self.groups}, bias={self.bias is not None}"
        )
