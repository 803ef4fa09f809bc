"""Padding layers.

Their argument `padding` is one number for all sides, or (before, after) for each axis, the
innermost axis first.
"""

from __future__ import annotations

from typing import ClassVar

from graphc import functions
from graphc.nn import check
from graphc.nn.module import Module
from graphc.trace import Tensor

AXES = ("", "n, c, w", "n, c, h, w", "n, c, d, h, w")
Widths = int | tuple[int, ...]


class _Pad(Module):
    """Base of padding layers."""

    _axes: ClassVar[int] = 0
    _mode: ClassVar[str] = "constant"

    def __init__(self, padding: Widths) -> None:
        layer, sides = type(self).__name__, 2 * self._axes
        items = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * sides
        if len(items) != sides:
            check.fail(f"{layer}: padding expected one integer or {sides}, got {padding!r}")
        self.padding = tuple(check.integer(layer, "padding", i, at_least=0) for i in items)

    def forward(self, x: Tensor) -> Tensor:
        check.axes(type(self).__name__, x, AXES[self._axes])
        pairs = zip(self.padding[::2], self.padding[1::2], strict=True)
        widths = [(0, 0), (0, 0), *reversed(list(pairs))]
        return functions.pad(x, widths, self._value(), self._mode)

    def _value(self) -> float:
        return 0.0

    def describe(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """Base of layers that pad with a constant."""

    def __init__(self, padding: Widths, value: float) -> None:
        super().__init__(padding)
        self.value = check.real(type(self).__name__, "value", value)

    def _value(self) -> float:
        return self.value

    def describe(self) -> str:
        return f"{self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Pad sequences [n, c, w] with a constant.

    Args:
        padding: One number or (left, right).
        value: The constant.

    Example:
        >>> graphc.trace(nn.ConstantPad1d(1, 0.5), graphc.spec((2, 3, 4))).outputs[0].type.shape
        (2, 3, 6)
    """

    _axes = 1


class ConstantPad2d(_ConstantPad):
    """Pad images [n, c, h, w] with a constant.

    Args:
        padding: One number or (left, right, top, bottom).
        value: The constant.

    Example:
        >>> graphc.trace(nn.ConstantPad2d(1, 0.5), graphc.spec((2, 3, 4, 4))).outputs[0].type.shape
        (2, 3, 6, 6)
    """

    _axes = 2


class ConstantPad3d(_ConstantPad):
    """Pad volumes [n, c, d, h, w] with a constant.

    Args:
        padding: One number or (left, right, top, bottom, front, back).
        value: The constant.

    Example:
        >>> layer = nn.ConstantPad3d(1, 0.5)
        >>> graphc.trace(layer, graphc.spec((2, 3, 4, 4, 4))).outputs[0].type.shape
        (2, 3, 6, 6, 6)
    """

    _axes = 3


class ZeroPad1d(_Pad):
    """Pad sequences [n, c, w] with zeros.

    Args:
        padding: One number or (left, right).

    Example:
        >>> graphc.trace(nn.ZeroPad1d(1), graphc.spec((2, 3, 4))).outputs[0].type.shape
        (2, 3, 6)
    """

    _axes = 1


class ZeroPad2d(_Pad):
    """Pad images [n, c, h, w] with zeros.

    Args:
        padding: One number or (left, right, top, bottom).

    Example:
        >>> graphc.trace(nn.ZeroPad2d(1), graphc.spec((2, 3, 4, 4))).outputs[0].type.shape
        (2, 3, 6, 6)
    """

    _axes = 2


class ZeroPad3d(_Pad):
    """Pad volumes [n, c, d, h, w] with zeros.

    Args:
        padding: One number or (left, right, top, bottom, front, back).

    Example:
        >>> graphc.trace(nn.ZeroPad3d(1), graphc.spec((2, 3, 4, 4, 4))).outputs[0].type.shape
        (2, 3, 6, 6, 6)
    """

    _axes = 3


class ReflectionPad1d(_Pad):
    """Pad sequences [n, c, w] with their mirror image, without repeating the edge.

    Args:
        padding: One number or (left, right).

    Example:
        >>> graphc.trace(nn.ReflectionPad1d(1), graphc.spec((2, 3, 4))).outputs[0].type.shape
        (2, 3, 6)
    """

    _axes = 1
    _mode = "reflect"


class ReflectionPad2d(_Pad):
    """Pad images [n, c, h, w] with their mirror image, without repeating the edge.

    Args:
        padding: One number or (left, right, top, bottom).

    Example:
        >>> graphc.trace(nn.ReflectionPad2d(1), graphc.spec((2, 3, 4, 4))).outputs[0].type.shape
        (2, 3, 6, 6)
    """

    _axes = 2
    _mode = "reflect"


class ReflectionPad3d(_Pad):
    """Pad volumes [n, c, d, h, w] with their mirror image, without repeating the edge.

    Args:
        padding: One number or (left, right, top, bottom, front, back).

    Example:
        >>> graphc.trace(nn.ReflectionPad3d(1), graphc.spec((2, 3, 4, 4, 4))).outputs[0].type.shape
        (2, 3, 6, 6, 6)
    """

    _axes = 3
    _mode = "reflect"


class ReplicationPad1d(_Pad):
    """Pad sequences [n, c, w] by repeating the elements at their edges.

    Args:
        padding: One number or (left, right).

    Example:
        >>> graphc.trace(nn.ReplicationPad1d(1), graphc.spec((2, 3, 4))).outputs[0].type.shape
        (2, 3, 6)
    """

    _axes = 1
    _mode = "replicate"


class ReplicationPad2d(_Pad):
    """Pad images [n, c, h, w] by repeating the elements at their edges.

    Args:
        padding: One number or (left, right, top, bottom).

    Example:
        >>> graphc.trace(nn.ReplicationPad2d(1), graphc.spec((2, 3, 4, 4))).outputs[0].type.shape
        (2, 3, 6, 6)
    """

    _axes = 2
    _mode = "replicate"


class ReplicationPad3d(_Pad):
    """Pad volumes [n, c, d, h, w] by repeating the elements at their edges.

    Args:
        padding: One number or (left, right, top, bottom, front, back).

    Example:
        >>> graphc.trace(nn.ReplicationPad3d(1), graphc.spec((2, 3, 4, 4, 4))).outputs[0].type.shape
        (2, 3, 6, 6, 6)
    """

    _axes = 3
    _mode = "replicate"


class CircularPad1d(_Pad):
    """Pad sequences [n, c, w] with the elements of the opposite end.

    Args:
        padding: One number or (left, right).

    Example:
        >>> graphc.trace(nn.CircularPad1d(1), graphc.spec((2, 3, 4))).outputs[0].type.shape
        (2, 3, 6)
    """

    _axes = 1
    _mode = "circular"


class CircularPad2d(_Pad):
    """Pad images [n, c, h, w] with the elements of the opposite end.

    Args:
        padding: One number or (left, right, top, bottom).

    Example:
        >>> graphc.trace(nn.CircularPad2d(1), graphc.spec((2, 3, 4, 4))).outputs[0].type.shape
        (2, 3, 6, 6)
    """

    _axes = 2
    _mode = "circular"


class CircularPad3d(_Pad):
    """Pad volumes [n, c, d, h, w] with the elements of the opposite end.

    Args:
        padding: One number or (left, right, top, bottom, front, back).

    Example:
        >>> graphc.trace(nn.CircularPad3d(1), graphc.spec((2, 3, 4, 4, 4))).outputs[0].type.shape
        (2, 3, 6, 6, 6)
    """

    _axes = 3
    _mode = "circular"
