"""Read the shared-memory variables of a compiled kernel from its symbol table."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

_SYMBOL_TABLE, _THREAD_LOCAL = 2, 6


class Variable(NamedTuple):
    """A variable of `nbytes` bytes of shared memory at `offset`."""

    offset: int
    nbytes: int
    name: str


def shared_variables(image: bytes) -> list[Variable]:
    """The thread-local variables of a 64-bit ELF file, which `__shared__` variables are compiled
    to."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, table + i * size) for i in range(count)]
    found = set()
    for _, kind, _, _, offset, nbytes, link, _, _, entry in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names = sections[link][4]
        for at in range(offset, offset + nbytes, entry):
            name, info, _, section, value, extent = struct.unpack_from("<IBBHQQ", image, at)
            if info & 15 == _THREAD_LOCAL and section != 0 and extent:
                symbol = image[names + name : image.index(b"\0", names + name)].decode()
                if not symbol.endswith("graphc_sim_first"):
                    found.add(Variable(value, extent, variable_name(symbol)))
    return sorted(found)


def variable_name(symbol: str) -> str:
    """The last name in a mangled symbol: the variable's, for one inside a function."""
    at, last = symbol.rfind("E"), symbol
    while at >= 0:
        match = re.match(r"E(\d+)", symbol[at:])
        if match:
            start = at + match.end()
            last = symbol[start : start + int(match[1])]
            if len(last) == int(match[1]):
                return last
        at = symbol.rfind("E", 0, at)
    return symbol
