"""Unique names for values and kernels, in graphs and in printed text."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """Generates names that differ from each other and from those in `taken`."""

    def __init__(self, taken: Iterable[str] = (), mark: str = ".", first: int = 1) -> None:
        self._taken = set(taken)
        self._mark, self._first = mark, first
        self._last: dict[str, int] = {}
        """The number behind which none was free, by the name without it."""

    def fresh(self, base: str, suffix: str = "") -> str:
        """Return `base`, if taken with the mark and the first free number, and the suffix."""
        name = whole = base + suffix
        number = self._last.get(whole, self._first - 1)
        while name in self._taken:
            number += 1
            name = f"{base}{self._mark}{number}{suffix}"
        self._taken.add(name)
        self._last[whole] = number
        return name
