"""Find the line of the user's files that calls graphc, and the function that it calls."""

from __future__ import annotations

import functools
import os
import sys

from graphc.base.errors import GraphError

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OWN = tuple(
    {os.path.realpath(os.path.join(_PACKAGE, d)) + os.sep for d in ("", "kernels", "runtime")}
)


_NAMED = tuple(
    os.path.join(_PACKAGE, "functions", *place)
    for place in (("network", ""), ("array", "reductions.py"), ("array", "statistics.py"))
)
_UNNAMED = ("contraction.py", "convolution.py", "windows.py")
"""Functions of these are known by their module and by the one op that they are for."""


def user_line() -> tuple[str, ...]:
    """Return `("file.py:line",)` of the innermost frame outside of graphc, or ()."""
    return user_call()[0]


def user_call() -> tuple[tuple[str, ...], str]:
    """Return `user_line()` and the function of several ops called there, or ""."""
    frame, function = sys._getframe(1), ""
    while frame is not None:
        path = frame.f_code.co_filename
        if _of_user(path):
            return (f"{os.path.basename(path)}:{frame.f_lineno}",), function
        name = frame.f_code.co_name
        if name[0] not in "_<" and path.startswith(_NAMED) and not path.endswith(_UNNAMED):
            function = name
        frame = frame.f_back  # type: ignore[assignment]
    return (), function


@functools.cache
def _of_user(path: str) -> bool:
    if path.startswith("<frozen") or path.endswith("contextlib.py"):
        return False
    return not os.path.realpath(path).startswith(_OWN)


def error(message: str) -> GraphError:
    """Return a GraphError that ends with the user's line."""
    return GraphError(message + "".join(f" ({line})" for line in user_line()))
