"""Layers that drop elements in training programs.

`inplace` is PyTorch's and changes nothing: where memory is used again is the planner's to say.
"""

from __future__ import annotations

from typing import ClassVar

from graphc import functions
from graphc.nn import check
from graphc.nn.module import Module
from graphc.trace import Tensor


class Dropout(Module):
    """In training programs y = x / (1 - p), or 0 with probability `p` for each element; else x."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        self.p = check.number("Dropout", "p", p, 0.0, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        return functions.dropout(x, self.p)

    def describe(self) -> str:
        return f"p={self.p}"


class _ChannelDropout(Module):
    """In training programs y = x / (1 - p), or 0 with probability `p` for each channel of each
    sample; else x."""

    _axes: ClassVar[str] = ""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        self.p = check.number(type(self).__name__, "p", p, 0.0, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        check.axes(type(self).__name__, x, self._axes)
        # One number per channel is drawn; the broadcast product is fused into its neighbours.
        channels = functions.ones((*x.shape[:2], *(1,) * (x.ndim - 2)), x.dtype)
        return x * functions.dropout(channels, self.p)

    def describe(self) -> str:
        return f"p={self.p}"


class Dropout1d(_ChannelDropout):
    """Dropout of whole channels of x[n, c, l]."""

    _axes = "n, c, l"


class Dropout2d(_ChannelDropout):
    """Dropout of whole channels of x[n, c, h, w]."""

    _axes = "n, c, h, w"
