"""C identifiers for values."""

from __future__ import annotations

import functools
import keyword
import re
from collections.abc import Iterable

from graphc import ir
from graphc.base.cached import cached_property
from graphc.ir import Graph, Value

OPEN, CLOSE = "\u01c1", "\u01c2"
"""What surrounds a number that stands for a name (form.py): letters, as in other names, but of no
identifier."""
_OTHERS = re.compile(f"[^0-9A-Za-z{OPEN}{CLOSE}]+")


class Identifiers:
    """Assigns unique C identifiers, as close to the values' own names as C allows."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._names = ir.Names(taken, mark="")

    def fresh(self, name: str, suffix: str = "") -> str:
        """A new identifier made from `name`."""
        return self._names.fresh(identifier(name), f"_{suffix}")

    def pointers(self, body: Graph) -> Pointers:
        """Identifiers for the memory of the body's inputs and outputs."""
        values = (*body.inputs, *body.outputs)
        return Pointers((v, self.fresh(v.name, "data")) for v in values)


class Pointers(dict[Value, str]):
    """Pointer identifiers by value."""

    @cached_property
    def values_by_name(self) -> dict[str, Value]:
        """The values by pointer identifier."""
        return {name: value for value, name in self.items()}


@functools.lru_cache(maxsize=4096)
def identifier(name: str) -> str:
    """`name` as a C identifier without double or outer underscores: d.conv1 -> d_conv1. A
    number that stands for a name stays as it is."""
    plain = _OTHERS.sub("_", name).strip("_") or "value"
    return f"v{plain}" if plain[0].isdigit() or keyword.iskeyword(plain) else plain
