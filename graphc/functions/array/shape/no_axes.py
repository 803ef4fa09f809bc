"""Let functions that work along an axis take scalars, as in PyTorch."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from graphc.functions.array.shape.shapes import reshape
from graphc.functions.array.tensors import as_tensor
from graphc.ir import tree
from graphc.trace import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def or_without_axes(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function of x along `axis` to take a scalar as a vector of one element.

    Its axis is 0 or -1, and the results are scalars too.
    """

    @functools.wraps(function)
    def along(*args: P.args, **kwargs: P.kwargs) -> T:
        given = args[0] if args else kwargs.get("x")
        if getattr(given, "shape", None) != () and not isinstance(given, bool | int | float):
            return function(*args, **kwargs)
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.arguments["axis"] not in (0, -1):
            return function(*args, **kwargs)
        bound.arguments["x"] = reshape(as_tensor(given), (1,))

        def without(_: str, y: object) -> object:
            return reshape(y, ()) if isinstance(y, Tensor) and y.shape == (1,) else y

        results: T = tree.map_leaves(without, function(*bound.args, **bound.kwargs))
        return results

    return along
