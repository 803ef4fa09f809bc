"""Nested arguments: modules, specs, arrays and tensors in tuples, lists, dicts and dataclasses."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from graphc.ir import NamedType, Type

Path = str


def members(tree: Any) -> list[tuple[Any, Any]] | None:
    """Return (index, key or field, value) of a tuple, list, dict or dataclass; None for a leaf.

    Specs and modules are leaves.
    """
    if isinstance(tree, (tuple, list)):
        return list(enumerate(tree))
    if isinstance(tree, dict):
        return list(tree.items())
    if is_record(tree):
        return [(f.name, getattr(tree, f.name)) for f in dataclasses.fields(tree)]
    return None


def is_record(tree: Any) -> bool:
    """Return whether this is a user's dataclass object, and no module."""
    if not hasattr(type(tree), "__dataclass_fields__"):
        return False
    return not isinstance(tree, Type | NamedType) and not hasattr(tree, "named_parameters")


def leaves(tree: Any, path: Path = "", above: tuple[Any, ...] = ()) -> Iterator[tuple[Path, Any]]:
    """Return every leaf with its path, such as `0.x` for `({"x": leaf},)`, in a fixed order.

    Dicts are walked in their insertion order. None has no leaves. A dataclass within itself (that
    of `above`) is not followed.
    """
    inside = members(tree)
    if inside is None:
        if tree is not None:
            yield path, tree
    elif not any(tree is outer for outer in above):
        below = (*above, tree) if is_record(tree) else above
        for key, item in inside:
            yield from leaves(item, _join(path, key), below)


def map_leaves(function: Callable[[Path, Any], Any], tree: Any, path: Path = "") -> Any:
    """Return the tree with each leaf replaced by `function(path, leaf)`."""
    inside = members(tree)
    if inside is None:
        return None if tree is None else function(path, tree)
    items = {key: map_leaves(function, item, _join(path, key)) for key, item in inside}
    if isinstance(tree, dict):
        return items
    if is_record(tree):
        return _with_fields(tree, items)
    if hasattr(tree, "_fields"):  # a named tuple
        return type(tree)(*items.values())
    return type(tree)(items.values())


def structure(tree: Any) -> Any:
    """Return the tree with every leaf replaced by "*", to compare structures.

    A dataclass becomes a dict of its class's name and fields.
    """
    inside = members(tree)
    if inside is None:
        return None if tree is None else "*"
    if is_record(tree):
        return {type(tree).__qualname__: {key: structure(item) for key, item in inside}}
    items = [structure(item) for _, item in inside]
    if isinstance(tree, dict):
        return dict(zip(tree, items, strict=True))
    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)


def _join(path: Path, key: Any) -> Path:
    return f"{path}.{key}" if path else str(key)


def _with_fields(record: Any, fields: dict[str, Any]) -> Any:
    """Return a copy with other contents, without a call of `__init__`, which may check them."""
    new = copy.copy(record)
    for name, value in fields.items():
        object.__setattr__(new, name, value)  # it may be frozen
    return new
