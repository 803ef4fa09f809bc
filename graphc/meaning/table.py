"""A table of terms: each a number, equal ones the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from graphc.base.dtypes import array_of
from graphc.ir import DTYPES, Array
from graphc.meaning.index import VARIABLE, ZERO, Atom, Index, variables
from graphc.ops.pointwise.logic import Cast

Term = int
Key = tuple[Any, ...]

FRESH = 100_000
"""The first number of variables that are not yet bound."""
MOST_TERMS = 2_000_000
CLOSED = ("fold", "opaque", "loop")
NOTHING: frozenset[Any] = frozenset()


class TooLargeError(Exception):
    """There are more terms than are looked at."""


class Table:
    """All terms of some graphs; `graphc.meaning.terms` says what terms there are."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.variables: list[frozenset[Atom]] = []
        """Of each term those that occur in its indices; a closed one has none."""
        self.held: list[frozenset[Key]] = []
        """The carries of loops not yet closed that each term is made of."""
        self.tested: list[frozenset[Index]] = []
        """The indices that the guards and cases of each term look at."""
        self.shapes: list[int] = []
        """Of each term a number that those have which differ in indices alone."""
        self._numbers: dict[Key, Term] = {}
        self._fixed: dict[Key, Term] = {}
        self._asked: dict[tuple[Term, bool], set[tuple[Index, int, int]]] = {}
        self._shape_numbers: dict[Key, int] = {}
        self._fresh = FRESH

    def fresh(self, extent: int) -> Index:
        """A new variable."""
        self._fresh += 1
        return ZERO if extent == 1 else (0, (((VARIABLE, self._fresh, extent), 1),))

    def term(self, *key: Any) -> Term:
        """The term of this key, as it is."""
        found = self._numbers.get(key)
        if found is not None:
            return found
        if len(self.keys) > MOST_TERMS:
            raise TooLargeError
        children = tuple(children_of(key))
        closed = key[0] in CLOSED
        names = NOTHING if closed else _union([self.variables[c] for c in children])
        tested = NOTHING if closed else _union([self.tested[c] for c in children])
        held = _union([self.held[c] for c in children])
        names = _union([names, *map(variables, indices_of(key))])
        if key[0] == "guard":
            tested = tested.union(c[0] for c in key[1])
        elif key[0] == "cases":
            tested = tested | {key[1]}
        elif key[0] == "carry":
            held = held | {key}
        elif key[0] == "loop":
            held = frozenset(k for k in held if k[1] != key[1])
        number = len(self.keys)
        self._numbers[key] = number
        self.keys.append(key)
        self.variables.append(names)
        self.held.append(held)
        self.tested.append(tested)
        shapes = [self.shapes[c] for c in children]
        if key[0] == "residues":  # which is first depends on the index
            shapes.sort()
        plain = (key[0], *settings_of(key), *shapes)
        self.shapes.append(self._shape_numbers.setdefault(plain, len(self._shape_numbers)))
        return number

    def number(self, value: Any, dtype: str) -> Term:
        return self.term("number", dtype, array_of(value, DTYPES[dtype]).tobytes())

    def value(self, term: Term) -> Array | None:
        """The number that a term is, if it is a constant."""
        key = self.keys[term]
        if key[0] != "number":
            return None
        return np.frombuffer(key[2], DTYPES[key[1]]).reshape(())

    def dtype(self, term: Term) -> str:
        """The dtype of a term where it is known, else ""."""
        key = self.keys[term]
        if key[0] == "at":
            source = self.keys[key[1]]
            return str(source[3] if source[0] == "input" else source[2])
        if key[0] == "op" and isinstance(key[1], Cast):
            return key[1].dtype
        return str(key[1]) if key[0] == "number" else ""

    def is_number(self, term: Term, number: float) -> bool:
        """Whether it is this number, and if 0 no negative one."""
        key = self.keys[term]
        if key[0] != "number" or key[1] in ("f16", "bf16"):
            return False
        value = np.frombuffer(key[2], DTYPES[key[1]])
        return bool(value[0] == number and not np.signbit(value[0]))

    def order(self, term: Term) -> int:
        return self.shapes[term]

    def reads(self, term: Term) -> set[Index]:
        """The indices in a term at which something is read."""
        found: set[Index] = set()
        seen, waiting = {term}, [term]
        while waiting:
            key = self.keys[waiting.pop()]
            if key[0] in ("at", "index"):
                found.update(indices_of(key))
            if key[0] != "at":
                new = [t for t in children_of(key) if t not in seen]
                seen.update(new)
                waiting += new
        return found


def _union(sets: Iterable[frozenset[Any]]) -> frozenset[Any]:
    """The union, which is one of the sets themselves wherever that holds the others."""
    found = NOTHING
    for one in sets:
        if not one <= found:
            found = found | one if found else one
    return found


def children_of(key: Key) -> Iterable[Term]:
    kind = key[0]
    if kind == "op":
        return key[2]  # type: ignore[no-any-return]
    if kind == "at":
        return (key[1],)
    if kind == "guard":
        return key[2:4]
    if kind == "cases":
        return (t for _, t in key[2])
    if kind == "residues":
        return key[3]  # type: ignore[no-any-return]
    if kind == "fold":
        return (key[4],)
    if kind in ("opaque", "loop"):
        return key[-1]  # type: ignore[no-any-return]
    return ()


def settings_of(key: Key) -> Key:
    """What of a key is neither an index nor a term."""
    kind = key[0]
    if kind in ("op", "number"):
        return key[1:2] if kind == "op" else key[1:]
    if kind == "fold":
        return key[1:4]
    return (
        key[1:-1] if kind in ("opaque", "loop") else key[1:] if kind in ("input", "carry") else ()
    )


def indices_of(key: Key) -> Iterable[Index]:
    kind = key[0]
    if kind == "at":
        return key[2]  # type: ignore[no-any-return]
    if kind in ("index", "cases", "residues"):
        return (key[1],)
    if kind == "guard":
        return (c[0] for c in key[1])
    return ()
