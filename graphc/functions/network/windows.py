"""Arguments of functions that slide a window over images: sizes per axis, and a batch of one where
images come without a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from graphc import tree
from graphc.functions.array.shapes import expand_dims, squeeze
from graphc.functions.array.tensors import as_tensor, error
from graphc.trace import Tensor

P = ParamSpec("P")
T = TypeVar("T")

_EXPECTED = ("", ", or two of them", ", or three of them")


def sizes(name: str, argument: str, value: Any, axes: int, at_least: int = 1) -> tuple[int, ...]:
    """`value` as one integer per axis, the last innermost, from that many or from one, or
    GraphError."""
    items = tuple(value) if isinstance(value, Sequence) else (value,)
    items = items * axes if len(items) == 1 else items
    whole = all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in items)
    if len(items) != axes or not whole or min(items) < at_least:
        raise error(
            f"{name}: {argument} expected an integer of {at_least} or more{_EXPECTED[axes - 1]}, "
            f"got {value!r}"
        )
    return tuple(int(item) for item in items)


def single(name: str, argument: str, value: Any, at_least: int = 1) -> int:
    """`value` as an integer, from one or a tuple of one, or GraphError."""
    return sizes(name, argument, value, 1, at_least)[0]


def pair(name: str, argument: str, value: Any, at_least: int = 1) -> tuple[int, int]:
    """`value` as (rows, columns), from one integer or two, or GraphError."""
    rows, columns = sizes(name, argument, value, 2, at_least)
    return rows, columns


def triple(name: str, argument: str, value: Any, at_least: int = 1) -> tuple[int, int, int]:
    """`value` as (depth, rows, columns), from one integer or three, or GraphError."""
    depth, rows, columns = sizes(name, argument, value, 3, at_least)
    return depth, rows, columns


def of_images(axes: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """For a function of x [n, c, ...] with so many axes behind the channels: let x [c, ...] stand
    for a batch of one, whose axis the results lack. (If there is a `weight`, it has as many axes
    as a batch: else the function itself complains.)"""

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def batched(*args: P.args, **kwargs: P.kwargs) -> T:
            positional = list(args) if args else [kwargs.pop("x", None)]
            x = as_tensor(positional[0])
            weight = positional[1] if len(positional) > 1 else kwargs.get("weight")
            shape = getattr(weight, "shape", None)
            if x.ndim != axes + 1 or (shape is not None and len(shape) != axes + 2):
                return function(*(x, *positional[1:]), **kwargs)  # type: ignore[arg-type]
            results = function(*(expand_dims(x, 0), *positional[1:]), **kwargs)  # type: ignore[arg-type]

            def alone(_: str, y: Any) -> Any:
                return squeeze(y, 0) if isinstance(y, Tensor) else y

            images: T = tree.map_leaves(alone, results)
            return images

        return batched

    return decorated
