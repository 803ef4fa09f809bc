"""Read JSON strictly: every field is there, of its kind, and no other is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.files.safetensors import FormatError


class Fields:
    """The fields of a JSON object, which are taken one by one.

    Args:
        value: What should be an object.
        place: What it is, for messages.
    """

    def __init__(self, value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise FormatError(f"{place}: expected an object, got {type(value).__name__}")
        self._left, self._place = dict(value), place

    def take(self, name: str, *kinds: type) -> Any:
        """Return a field that is of one of these types, in which a bool is no int.

        It raises FormatError if there is none.
        """
        if name not in self._left:
            raise FormatError(f"{self._place}: {name} is missing")
        value = self._left.pop(name)
        if type(value) not in kinds:
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise FormatError(
                f"{self._place}: {name}: expected {wanted}, got {type(value).__name__}"
            )
        return value

    def texts(self, name: str) -> list[str]:
        """Return a field that is a list of texts."""
        return list_of(self.take(name, list), str, f"{self._place}: {name}")

    def fields(self, name: str) -> Fields:
        """Return a field that is an object."""
        return Fields(self.take(name, dict), f"{self._place}: {name}")

    def table(self, name: str, kind: type) -> dict[str, Any]:
        """Return a field that is an object whose values are all of one type."""
        table: dict[str, Any] = self.take(name, dict)
        list_of([*table.values()], kind, f"{self._place}: {name}")
        return table

    def end(self) -> None:
        """Raise FormatError if a field was not taken."""
        if self._left:
            raise FormatError(f"{self._place}: unknown {', '.join(map(repr, self._left))}")


def list_of(value: Any, kind: type, place: str) -> list[Any]:
    """Return a list whose items are all of one type, or raise FormatError."""
    if not isinstance(value, list) or any(type(item) is not kind for item in value):
        raise FormatError(f"{place}: expected a list of {kind.__name__}")
    return value


def pairs_of(value: Any, place: str) -> Sequence[tuple[Any, Any]]:
    """Return a list of pairs, or raise FormatError."""
    if not isinstance(value, list) or any(
        not isinstance(item, list) or len(item) != 2 for item in value
    ):
        raise FormatError(f"{place}: expected a list of pairs")
    return [(first, second) for first, second in value]
