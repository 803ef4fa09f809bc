"""The structure of a program's arguments and results as JSON.

A leaf that is an array is "*": its type is that of the graph's next input or output. A static value
is `{"static": ["int", "3"]}`, a container `{"tuple": [...]}`, `{"list": [...]}` or `{"dict":
[[key, tree], ...]}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from graphc.base.errors import GraphError
from graphc.files.fields import pairs_of
from graphc.files.safetensors import FormatError
from graphc.ir import Type, tree
from graphc.trace import Tensor
from graphc.trace.arguments import Static

ARRAY = "*"

_READ: dict[str, Callable[[str], bool | int | float | str]] = {
    "bool": {"True": True, "False": False}.__getitem__,
    "int": int,
    "float": float.fromhex,
    "str": str,
}


def written(value: Any, place: str) -> Any:
    """Return a tree of types, tensors and static values as JSON.

    Args:
        value: The tree.
        place: What it is, for messages.

    Raises:
        GraphError: It holds a dataclass or named tuple, which only their own code can make again.
    """
    if value is None:
        return None
    if isinstance(value, Type | Tensor):
        return ARRAY
    if isinstance(value, Static):
        kind = type(value.value).__name__
        text = value.value.hex() if isinstance(value.value, float) else str(value.value)
        return {"static": [kind, text]}
    items = tree.members(value)
    if type(value) in (tuple, list) and items is not None:
        return {type(value).__name__: [written(v, f"{place}.{i}") for i, v in items]}
    if type(value) is dict and all(type(key) in (str, int) for key in value):
        return {"dict": [[key, written(v, f"{place}.{key}")] for key, v in value.items()]}
    raise GraphError(
        f"save: {place} is of {type(value).__name__}: a file can hold tuples, lists and dicts with "
        "keys of str or int"
    )


def read(value: Any, arrays: Iterator[Any]) -> Any:
    """Return the tree that `written` wrote, with the next of `arrays` at each array.

    Raises:
        FormatError: It is none.
    """
    if value is None:
        return None
    if value == ARRAY:
        try:
            return next(arrays)
        except StopIteration:
            raise FormatError("more arrays than the graph has") from None
    if isinstance(value, dict) and len(value) == 1:
        (kind, content), *_ = value.items()
        if kind in ("tuple", "list") and isinstance(content, list):
            items = [read(item, arrays) for item in content]
            return tuple(items) if kind == "tuple" else items
        if kind == "dict":
            pairs = [(_key(key), item) for key, item in pairs_of(content, "a dict")]
            found = {key: read(item, arrays) for key, item in pairs}
            if len(found) == len(pairs):
                return found
        if kind == "static":
            return Static(_static(content))
    raise FormatError(f"no tree of arguments or results: {str(value)[:60]}")


def _key(key: Any) -> Any:
    if type(key) not in (str, int):
        raise FormatError("a key of a dict is neither str nor int")
    return key


def _static(content: Any) -> Any:
    try:
        kind, text = content
        return _READ[kind](text)
    except (ValueError, TypeError, KeyError, OverflowError):
        raise FormatError(f"no static value: {str(content)[:60]}") from None
