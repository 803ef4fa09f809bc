"""Look at values while a program runs: `show` prints statistics, `tap` returns the value.

Both add outputs to the program, which kernels of their own compute; nothing else changes. Inside
scans and vmap they cover all iterations and samples. What is skipped, such as a branch, is not in
the statistics, and a tapped value has zeros there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphc import functions as f
from graphc.base.dtypes import Array
from graphc.base.source_lines import error, user_line
from graphc.ir import FLOATS, TensorLike
from graphc.trace import Tensor, current_builder


@dataclass(frozen=True)
class Statistics:
    """Statistics of the elements of a tensor in one call, without those that are NaN."""

    name: str
    mean: float
    min: float
    max: float
    nans: int
    count: int
    """Elements, those that are NaN included."""
    line: str
    """The user's `file:line`."""

    def __str__(self) -> str:
        numbers = f"mean {self.mean:.6g}, min {self.min:.6g}, max {self.max:.6g}"
        line = f" ({self.line})" if self.line else ""
        return f"{self.name}: {numbers}, {self.nans} NaN of {self.count}{line}"


STATISTICS = 5
"""Numbers per iteration of `show`."""


@dataclass(frozen=True)
class Shown:
    """An additional output: the statistics of `show` along the last axis, or the value of `tap`.

    Behind the four statistics stands a 1; all are zero of an iteration that was skipped.
    """

    name: str
    tensor: Tensor
    count: int
    """Elements of the value in one iteration and sample; 0 for a tap."""
    callback: Callable[[Statistics], object] = print
    lines: tuple[str, ...] = ()

    def tell(self, array: Array) -> None:
        """Pass the statistics of a call to the callback."""
        rows = array.reshape(-1, STATISTICS).astype(np.float64)
        rows = rows[rows[:, 4] != 0]
        if not len(rows):
            return
        means, least, most, nans, _ = rows.T
        there = self.count - nans
        mean = float((means * there).sum() / max(there.sum(), 1.0)) if there.any() else np.nan
        count = self.count * len(means)
        low, high = float(least.min()), float(most.max())
        line = "".join(self.lines)
        self.callback(Statistics(self.name, mean, low, high, int(nans.sum()), count, line))


def show(
    x: TensorLike, name: str, callback: Callable[[Statistics], object] | None = None
) -> Tensor:
    """Return `x`, and print its mean, minimum, maximum and number of NaNs at each call.

    Args:
        x: The tensor.
        name: The name to print.
        callback: A function that gets `Statistics` instead of printing.

    Returns:
        `x`.

    Raises:
        GraphError: `callback` is not a function.

    Example:
        >>> seen = []
        >>> f = graphc.compile(lambda: graphc.show([1.0, 3.0], "x", seen.append))
        >>> f(), seen[0].mean
        (array([1., 3.], dtype=float32), 2.0)
    """
    tensor = f.as_tensor(x)
    _check(name, tensor)
    if callback is not None and not callable(callback):
        raise error(f"show: callback expected a function, got {type(callback).__name__}")
    wide = f.astype(tensor, "float32")
    nan = f.isnan(wide) if tensor.dtype in FLOATS else f.zeros_like(f.astype(wide, "bool"))
    nans = f.sum(f.astype(nan, "float32"))
    total = f.sum(f.where(nan, 0.0, wide))
    mean = f.divide(total, f.maximum(f.subtract(float(tensor.value.type.size), nans), 1.0))
    least, most = f.min(f.where(nan, np.inf, wide)), f.max(f.where(nan, -np.inf, wide))
    statistics = f.stop_gradient(f.stack([mean, least, most, nans, f.ones((), "float32")]))
    callback = print if callback is None else callback
    _add(Shown(name, statistics, tensor.value.type.size, callback, user_line()))
    return tensor


def tap(x: TensorLike, name: str) -> Tensor:
    """Return `x`, and store its value in `program.taps[name]` at each call.

    Args:
        x: The tensor.
        name: The key in `program.taps`.

    Returns:
        `x`.

    Example:
        >>> f = graphc.compile(lambda: 2 * graphc.tap([1.0, 3.0], "x"))
        >>> _ = f()
        >>> f.taps["x"]
        array([1., 3.], dtype=float32)
    """
    tensor = f.as_tensor(x)
    _check(name, tensor)
    _add(Shown(name, f.stop_gradient(tensor), 0))
    return tensor


def _check(name: object, tensor: Tensor) -> None:
    if not isinstance(name, str) or not name:
        raise error(f"show and tap: expected a name of {tensor.value.type}, got {name!r}")
    if not tensor.value.type.size:
        raise error(f"{name}: {tensor.value.type} has no elements to show")


def _add(shown: Shown) -> None:
    current_builder().shown.append(shown)
