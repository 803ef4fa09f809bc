"""Pooling to a given size."""

from __future__ import annotations

from typing import Any, ClassVar

from graphc import functions
from graphc.nn import check
from graphc.nn.module import Module
from graphc.trace import Tensor

Extents = int | tuple[int | None, ...] | None


class _AdaptivePool(Module):
    """Base of pooling to `output_size`, an integer or one per axis, where None keeps a size.

    Window i of an axis of size h goes from floor(i * h / p) to ceil((i + 1) * h / p).
    """

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
    """Average pooling of sequences [n, c, w] to a given length.

    Args:
        output_size: The length of the result.

    Example:
        >>> graphc.trace(nn.AdaptiveAvgPool1d(5), graphc.spec((8, 3, 32))).outputs[0].type.shape
        (8, 3, 5)
    """

    _axes = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Average pooling of images [n, c, h, w] to a given size.

    Args:
        output_size: The size of the result, one number or one per axis; 1 is global pooling, None
            keeps a size.

    Example:
        >>> graphc.trace(nn.AdaptiveAvgPool2d(1), graphc.spec((8, 3, 32, 32))).outputs[0].type.shape
        (8, 3, 1, 1)
    """

    _axes = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Average pooling of volumes [n, c, d, h, w] to a given size, as `AdaptiveAvgPool2d`.

    Example:
        >>> graphc.trace(nn.AdaptiveAvgPool3d(1), graphc.spec((3, 4, 4, 4))).outputs[0].type.shape
        (3, 1, 1, 1)
    """

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
    """Max pooling of sequences [n, c, w] to a given length.

    Args:
        output_size: The length of the result.
        return_indices: Whether to return i64 indices too.

    Example:
        >>> graphc.trace(nn.AdaptiveMaxPool1d(5), graphc.spec((8, 3, 32))).outputs[0].type.shape
        (8, 3, 5)
    """

    _axes = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Max pooling of images [n, c, h, w] to a given size.

    Args:
        output_size: The size of the result, one number or one per axis; 1 is global pooling, None
            keeps a size.
        return_indices: Whether to return i64 pixel numbers too.

    Example:
        >>> graphc.trace(nn.AdaptiveMaxPool2d(1), graphc.spec((8, 3, 32, 32))).outputs[0].type.shape
        (8, 3, 1, 1)
    """

    _axes = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Max pooling of volumes [n, c, d, h, w] to a given size, as `AdaptiveMaxPool2d`.

    Example:
        >>> graphc.trace(nn.AdaptiveMaxPool3d(1), graphc.spec((3, 4, 4, 4))).outputs[0].type.shape
        (3, 1, 1, 1)
    """

    _axes = 3


def _known(output_size: Any) -> Any:
    """Output extents with 1 where they are those of the input."""
    if isinstance(output_size, (tuple, list)):
        return tuple(1 if n is None else n for n in output_size)
    return 1 if output_size is None else output_size
