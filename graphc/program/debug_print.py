"""Looking at values while a program runs: `show` says what they are like, `tap` gives them whole.

Both are further outputs of the program, computed by kernels of their own; a program without them is
as it would be. Within scans and vmap they are those of all iterations and samples.
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
    """What the elements of a tensor are like in one call, those that are NaN left out."""

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


@dataclass(frozen=True)
class Shown:
    """A further output: of `show` the four statistics along the last axis, of `tap` the value."""

    name: str
    tensor: Tensor
    count: int
    """Elements of the value in one iteration and sample; 0 for a tap."""
    callback: Callable[[Statistics], object] = print
    lines: tuple[str, ...] = ()

    def tell(self, array: Array) -> None:
        """Hand on the statistics of a call."""
        means, least, most, nans = array.reshape(-1, 4).astype(np.float64).T
        there = self.count - nans
        mean = float((means * there).sum() / max(there.sum(), 1.0)) if there.any() else np.nan
        count = self.count * len(means)
        low, high = float(least.min()), float(most.max())
        line = "".join(self.lines)
        self.callback(Statistics(self.name, mean, low, high, int(nans.sum()), count, line))


def show(
    x: TensorLike, name: str, callback: Callable[[Statistics], object] | None = None
) -> Tensor:
    """x itself; whenever the program has run, `callback` gets the mean, least and greatest element
    of x and how many are NaN, or they are printed."""
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
    statistics = f.stop_gradient(f.stack([mean, least, most, nans]))
    callback = print if callback is None else callback
    _add(Shown(name, statistics, tensor.value.type.size, callback, user_line()))
    return tensor


def tap(x: TensorLike, name: str) -> Tensor:
    """x itself; after a call of the program its value is `program.taps[name]`."""
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
