"""Dropout layers, which act in training."""

from __future__ import annotations

import math
from typing import ClassVar

from graphc import functions
from graphc.nn import check
from graphc.nn.module import Module
from graphc.trace import Tensor

SATURATION = -1.7580993408473766
"""What SELU approaches for large negative numbers."""


class Dropout(Module):
    """In training, set elements to 0 with probability `p` and divide the others by 1 - p.

    Args:
        p: The probability.
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(nn.Dropout(), graphc.spec(2))(np.array([1, 2], np.float32))
        array([1., 2.], dtype=float32)
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        self.p = check.number("Dropout", "p", p, 0.0, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        return functions.dropout(x, self.p, self.training)

    def describe(self) -> str:
        return f"p={self.p}"


class _ChannelDropout(Module):
    """Base of dropout of whole channels."""

    _axes: ClassVar[str] = ""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        self.p = check.number(type(self).__name__, "p", p, 0.0, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        check.axes(type(self).__name__, x, self._axes)
        # One number per channel is drawn; the broadcast product is fused into its neighbours.
        channels = functions.ones((*x.shape[:2], *(1,) * (x.ndim - 2)), x.dtype)
        return x * functions.dropout(channels, self.p, self.training)

    def describe(self) -> str:
        return f"p={self.p}"


class Dropout1d(_ChannelDropout):
    """Dropout of whole channels of x [n, c, l]; arguments as for `Dropout`.

    Example:
        >>> graphc.trace(nn.Dropout1d(), graphc.spec((2, 3, 4))).outputs[0].type.shape
        (2, 3, 4)
    """

    _axes = "n, c, l"


class Dropout2d(_ChannelDropout):
    """Dropout of whole channels of x [n, c, h, w]; arguments as for `Dropout`.

    Example:
        >>> graphc.trace(nn.Dropout2d(), graphc.spec((2, 3, 4, 4))).outputs[0].type.shape
        (2, 3, 4, 4)
    """

    _axes = "n, c, h, w"


class Dropout3d(_ChannelDropout):
    """Dropout of whole channels of x [n, c, d, h, w]; arguments as for `Dropout`.

    Example:
        >>> graphc.trace(nn.Dropout3d(), graphc.spec((2, 3, 4, 4, 4))).outputs[0].type.shape
        (2, 3, 4, 4, 4)
    """

    _axes = "n, c, d, h, w"


class AlphaDropout(Module):
    """Dropout for SELU networks, which keeps mean 0 and variance 1 (Klambauer et al., 2017).

    In training, elements are set to SELU's lower limit with probability `p`, then all are scaled
    and shifted.

    Args:
        p: The probability.
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(nn.AlphaDropout(), graphc.spec(2))(np.array([1, 2], np.float32))
        array([1., 2.], dtype=float32)
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        self.p = check.number(type(self).__name__, "p", p, 0.0, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if self.p == 1.0:
            return functions.zeros_like(x)
        kept = functions.greater(functions.dropout(self._ones(x), self.p, True), 0)
        scale = 1 / math.sqrt((1 - self.p) * (1 + self.p * SATURATION**2))
        shift = -scale * self.p * SATURATION
        return functions.where(kept, x, SATURATION) * scale + shift

    def _ones(self, x: Tensor) -> Tensor:
        return functions.ones(x.shape, x.dtype)

    def describe(self) -> str:
        return f"p={self.p}"


class FeatureAlphaDropout(AlphaDropout):
    """`AlphaDropout` of whole channels of x [n, c, ...]; arguments as for `AlphaDropout`.

    Example:
        >>> graphc.trace(nn.FeatureAlphaDropout(), graphc.spec((2, 3, 4))).outputs[0].type.shape
        (2, 3, 4)
    """

    def _ones(self, x: Tensor) -> Tensor:
        return functions.ones((*x.shape[:2], *(1,) * (x.ndim - 2)), x.dtype)
