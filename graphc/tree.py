"""Nested arguments: modules, specs, arrays and tensors in tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Path = str


def leaves(tree: Any, path: Path = "") -> Iterator[tuple[Path, Any]]:
    """Every leaf with its path, such as `0.x` for `({"x": leaf},)`, in a fixed order.

    Dicts are walked in their insertion order. None has no leaves.
    """
    if isinstance(tree, (tuple, list)):
        for i, item in enumerate(tree):
            yield from leaves(item, f"{path}.{i}" if path else str(i))
    elif isinstance(tree, dict):
        for key, item in tree.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif tree is not None:
        yield path, tree


def map_leaves(function: Callable[[Path, Any], Any], tree: Any, path: Path = "") -> Any:
    """The same tree with each leaf replaced by `function(path, leaf)`."""
    if isinstance(tree, (tuple, list)):
        items = [
            map_leaves(function, item, f"{path}.{i}" if path else str(i))
            for i, item in enumerate(tree)
        ]
        if hasattr(tree, "_fields"):  # a named tuple
            return type(tree)(*items)
        return type(tree)(items)
    if isinstance(tree, dict):
        return {
            key: map_leaves(function, item, f"{path}.{key}" if path else str(key))
            for key, item in tree.items()
        }
    return None if tree is None else function(path, tree)


def structure(tree: Any) -> Any:
    """The tree with every leaf replaced by "*": equal for trees that can stand for each other."""
    return map_leaves(lambda path, leaf: "*", tree)
