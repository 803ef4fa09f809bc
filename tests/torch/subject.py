"""A function of graphc's, PyTorch's for the same, and how to draw arguments for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Function = Callable[..., Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """Our function of the arrays as tensors, and PyTorch's of torch and the arrays as tensors.

    PyTorch computes in float64 and is the truth; with `single` in float32, for functions that jump.
    `slopes` says whether gradients are compared too, but for the arrays `fixed`. `growth` widens
    the tolerance.
    """

    ours: Function
    theirs: Function
    arrays: tuple[np.ndarray, ...]
    note: str = ""
    slopes: bool = True
    single: bool = False
    growth: float = 1.0
    fixed: tuple[int, ...] = ()


Drawer = Callable[["Draw"], Case]
SUBJECTS: dict[str, Drawer] = {}
"""The name of a function -> what draws a case for it."""


EXCEPTIONS: dict[str, tuple[str, str]] = {
    "channel_shuffle": ("gradient", "PyTorch has none for it on the CPU"),
    "floor_divide": ("gradient", "PyTorch has none; graphc's is 0"),
    "heaviside": ("gradient", "PyTorch has none; graphc's is that of a choice"),
    "histc": ("gradient", "PyTorch has none: it counts"),
    "ldexp": ("gradient", "PyTorch's is 0 for negative exponents, 2 to the power of an integer"),
    "nextafter": ("gradient", "PyTorch has none; graphc's is 0"),
    "vander": ("gradient", "PyTorch's fails: its factors are changed in place"),
    "nanmean": ("range", "where all elements are NaN PyTorch's gradient is NaN, graphc's is 0"),
    "ndtr": ("range", "PyTorch computes (1 + erf) / 2, which is 0 below -8.3"),
    "scatter": ("range", "PyTorch leaves open which of several elements for a place stays"),
    "index_copy": ("range", "PyTorch leaves open which of several elements for a place stays"),
    "polygamma": ("range", "graphc's is NaN below 0 for orders of 2 and more"),
    "astype": ("range", "PyTorch leaves open what integer NaN and numbers out of range become"),
    "corrcoef": (
        "range",
        "rows of few elements are correlated wholly: their gradient is noise",
    ),
}
"""Where graphc and PyTorch are not compared, and why: the gradient of a function, or what its
arguments are drawn from."""


def subject(name: str) -> Callable[[Drawer], Drawer]:
    """Registers what draws the cases of `name`."""

    def register(drawer: Drawer) -> Drawer:
        assert name not in SUBJECTS, name
        SUBJECTS[name] = drawer
        return drawer

    return register


class Draw:
    """Random shapes, elements and attributes, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(self.random.integers(low, high + 1))

    def flag(self) -> bool:
        return bool(self.random.integers(2))

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[self.integer(0, len(choices) - 1)]

    def number(self, low: float, high: float) -> float:
        return float(np.float32(self.random.uniform(low, high)))

    def extent(self, most: int = 6) -> int:
        """Mostly small; now and then about a vector's length."""
        return self.pick((15, 16, 17, 33)) if self.integer(0, 7) == 0 else self.integer(1, most)

    def shape(self, low: int = 0, high: int = 4, empty: bool = False) -> Shape:
        """From `low` to `high` axes; with `empty` now and then without elements."""
        extents = [self.extent(6 - min(high, 3)) for _ in range(self.integer(low, high))]
        if empty and extents and self.integer(0, 15) == 0:
            extents[self.integer(0, len(extents) - 1)] = 0
        return tuple(extents)

    def pair(self) -> tuple[Shape, Shape]:
        """Two shapes that broadcast."""
        whole = self.shape(0, 4, empty=True)
        pair = []
        for _ in range(2):
            part = tuple(1 if self.integer(0, 3) == 0 else n for n in whole)
            pair.append(part[self.integer(0, len(part)) if self.flag() else 0 :])
        return pair[0], pair[1]

    def floats(self, shape: Shape, low: float = -3.0, high: float = 3.0) -> np.ndarray:
        return self.random.uniform(low, high, shape).astype(np.float32)

    def integers(self, shape: Shape, low: int, high: int, dtype: str = "i8") -> np.ndarray:
        """From low to high, both included."""
        return self.random.integers(low, high + 1, shape).astype(dtype)

    def booleans(self, shape: Shape) -> np.ndarray:
        return self.random.integers(0, 2, shape).astype(np.bool_)

    def axis(self, shape: Shape) -> int:
        """An axis of the shape, from the front or the back."""
        return self.integer(-len(shape), len(shape) - 1)

    def axes(self, shape: Shape) -> tuple[int, ...]:
        """Some axes of the shape, one at least."""
        chosen = [a for a in range(len(shape)) if self.flag()] or [self.integer(0, len(shape) - 1)]
        return tuple(a - len(shape) if self.flag() else a for a in chosen)
