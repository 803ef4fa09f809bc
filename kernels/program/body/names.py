"""C identifiers for values."""

from __future__ import annotations

import functools
import keyword
import re
from collections.abc import Iterable

from graphc import ir
from graphc.ir import Graph, Value


class Identifiers:
    """C identifiers for values: the value's own name as far as C allows, never twice."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._names = ir.Names(taken, mark="")

    def fresh(self, name: str, suffix: str = "") -> str:
        return self._names.fresh(identifier(name), f"_{suffix}")

    def pointers(self, body: Graph) -> Pointers:
        """Names for the memory of the body's inputs and outputs."""
        values = (*body.inputs, *body.outputs)
        return Pointers((v, self.fresh(v.name, "data")) for v in values)


class Pointers(dict[Value, str]):
    """The names of values' memory."""

    @functools.cached_property
    def values_by_name(self) -> dict[str, Value]:
        """The value behind each name."""
        return {name: value for value, name in self.items()}


def identifier(name: str) -> str:
    """`name` as a C identifier without double or outer underscores: d.conv1 -> d_conv1."""
    plain = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_") or "value"
    return f"v{plain}" if plain[0].isdigit() or keyword.iskeyword(plain) else plain
