"""Pair the tensors of a tree with those that a user gives for them: gradients, tangents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from graphc.functions import as_tensor
from graphc.ir import FLOATS, tree
from graphc.trace import Tensor


def paired(
    own: Any, given: Any, path: str, fail: Callable[[str], Exception]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each tensor of `own` that something is given for, with that.

    None may be given for any part of the tree. It raises what `fail` makes of a message where the
    structures, shapes or dtypes differ, and where something is given for what is no float.
    """
    if given is None:
        return
    inside = tree.members(own)
    if inside is None:
        yield _pair(own, given, path, fail)
        return
    theirs = tree.members(given)
    if type(given) is not type(own) or theirs is None or len(theirs) != len(inside):
        raise fail(f"{path}: expected {described(own)} or None, got {described(given)}")
    items = dict(theirs)
    for key, item in inside:
        if key not in items:
            raise fail(f"{path}: {key!r} is missing")
        yield from paired(item, items[key], f"{path}.{key}" if path else str(key), fail)


def _pair(
    own: Any, given: Any, path: str, fail: Callable[[str], Exception]
) -> tuple[Tensor, Tensor]:
    if not isinstance(own, Tensor) or own.dtype not in FLOATS:
        kind = own.value.type if isinstance(own, Tensor) else repr(own)
        raise fail(f"{path}: expected None for {kind}")
    if tree.members(given) is not None and not isinstance(given, list):
        raise fail(f"{path}: expected {own.value.type}, got {described(given)}")
    tensor = as_tensor(given)
    if tensor.value.type != own.value.type:
        raise fail(f"{path}: expected {own.value.type}, got {tensor.value.type}")
    return own, tensor


def described(found: Any) -> str:
    """Return the class of what was found, with its size."""
    size = f" of {len(found)}" if isinstance(found, tuple | list | dict) else ""
    return f"{type(found).__name__}{size}"
