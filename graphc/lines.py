"""Where in the user's files the code stands that calls graphc."""

from __future__ import annotations

import functools
import os
import sys

from graphc.errors import GraphError

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_OWN = tuple(
    {os.path.realpath(os.path.join(_PACKAGE, d)) + os.sep for d in ("", "kernels", "runtime")}
)


def user_line() -> tuple[str, ...]:
    """`("file.py:line",)` of the innermost frame outside graphc, or () if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if _of_user(path):
            return (f"{os.path.basename(path)}:{frame.f_lineno}",)
        frame = frame.f_back  # type: ignore[assignment]
    return ()


@functools.cache
def _of_user(path: str) -> bool:
    if path.startswith("<frozen") or path.endswith("contextlib.py"):
        return False
    return not os.path.realpath(path).startswith(_OWN)


def error(message: str) -> GraphError:
    """A GraphError that ends with the user's line."""
    return GraphError(message + "".join(f" ({line})" for line in user_line()))
