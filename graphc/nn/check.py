"""Check the arguments of layers; errors say what was expected and got, and the user's line."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from graphc.base.errors import GraphError
from graphc.base.source_lines import user_line
from graphc.trace import Tensor


def fail(message: str) -> NoReturn:
    """Raise GraphError with the user's line after the message."""
    raise GraphError(f"{message} ({', '.join(user_line())})")


def integer(layer: str, name: str, value: Any, at_least: int = 1) -> int:
    """Return `value` as an int of at least `at_least`."""
    if not _is_integer(value) or value < at_least:
        fail(f"{layer}: {name} expected an integer of at least {at_least}, got {value!r}")
    return int(value)


def axis(layer: str, name: str, value: Any) -> int:
    """Return `value` as an int; a negative one counts from the last axis."""
    if not _is_integer(value):
        fail(f"{layer}: {name} expected an integer, got {value!r}")
    return int(value)


def sizes(layer: str, name: str, value: Any, axes: int, at_least: int = 1) -> tuple[int, ...]:
    """Return `value` as one integer per axis, from that many or from one."""
    items = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
    if len(items) != axes or not all(_is_integer(i) and i >= at_least for i in items):
        expected = (
            "an integer",
            "an integer or a pair of integers",
            "an integer or three integers",
        )
        fail(f"{layer}: {name} expected {expected[axes - 1]} of at least {at_least}, got {value!r}")
    return tuple(int(item) for item in items)


def plain(values: tuple[Any, ...]) -> Any:
    """Return a single number alone, several as they are."""
    return values if len(values) > 1 else values[0]


def number(layer: str, name: str, value: Any, low: float, high: float) -> float:
    """Return `value` as a float in [low, high]."""
    if not _is_number(value) or not low <= value <= high:
        fail(f"{layer}: {name} expected a number in [{low:g}, {high:g}], got {value!r}")
    return float(value)


def real(layer: str, name: str, value: Any) -> float:
    """Return `value` as a float."""
    if not _is_number(value):
        fail(f"{layer}: {name} expected a number, got {value!r}")
    return float(value)


def axes(layer: str, x: Tensor, *expected: str) -> None:
    """Raise GraphError unless x has the axes of one of `expected`, such as "n, c, h, w"."""
    if x.ndim not in (len(letters.split(", ")) for letters in expected):
        names = " or ".join(f"x[{letters}]" for letters in expected)
        fail(f"{layer}: expected {names}, got {x.value.type}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
