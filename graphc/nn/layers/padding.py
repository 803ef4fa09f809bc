"""Layers that put elements around their input."""

from __future__ import annotations

from typing import ClassVar

from graphc import functions
from graphc.nn import check
from graphc.nn.module import Module
from graphc.trace import Tensor

AXES = ("", "n, c, w", "n, c, h, w", "n, c, d, h, w")
Widths = int | tuple[int, ...]


class _Pad(Module):
    """Elements around the innermost axes of x[n, c, ...]. `padding` is one number for all sides or
    (before, behind) of each axis, the innermost first."""

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
    """Elements of `value` around x."""

    def __init__(self, padding: Widths, value: float) -> None:
        super().__init__(padding)
        self.value = check.real(type(self).__name__, "value", value)

    def _value(self) -> float:
        return self.value

    def describe(self) -> str:
        return f"{self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Elements of `value` around x[n, c, w]."""

    _axes = 1


class ConstantPad2d(_ConstantPad):
    """Elements of `value` around x[n, c, h, w]."""

    _axes = 2


class ConstantPad3d(_ConstantPad):
    """Elements of `value` around x[n, c, d, h, w]."""

    _axes = 3


class ZeroPad1d(_Pad):
    """Zeros around x[n, c, w]."""

    _axes = 1


class ZeroPad2d(_Pad):
    """Zeros around x[n, c, h, w]."""

    _axes = 2


class ZeroPad3d(_Pad):
    """Zeros around x[n, c, d, h, w]."""

    _axes = 3


class ReflectionPad1d(_Pad):
    """The elements of x[n, c, w] mirrored at its edges, which are not repeated."""

    _axes = 1
    _mode = "reflect"


class ReflectionPad2d(_Pad):
    """The elements of x[n, c, h, w] mirrored at its edges, which are not repeated."""

    _axes = 2
    _mode = "reflect"


class ReflectionPad3d(_Pad):
    """The elements of x[n, c, d, h, w] mirrored at its edges, which are not repeated."""

    _axes = 3
    _mode = "reflect"


class ReplicationPad1d(_Pad):
    """The elements at the edges of x[n, c, w], repeated."""

    _axes = 1
    _mode = "replicate"


class ReplicationPad2d(_Pad):
    """The elements at the edges of x[n, c, h, w], repeated."""

    _axes = 2
    _mode = "replicate"


class ReplicationPad3d(_Pad):
    """The elements at the edges of x[n, c, d, h, w], repeated."""

    _axes = 3
    _mode = "replicate"


class CircularPad1d(_Pad):
    """The elements of the other end around x[n, c, w]."""

    _axes = 1
    _mode = "circular"


class CircularPad2d(_Pad):
    """The elements of the other end around x[n, c, h, w]."""

    _axes = 2
    _mode = "circular"


class CircularPad3d(_Pad):
    """The elements of the other end around x[n, c, d, h, w]."""

    _axes = 3
    _mode = "circular"
