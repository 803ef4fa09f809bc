"""Names and types in C."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from graphc.base.errors import GraphError
from graphc.ir import Type

C_TYPES = {
    "f32": "float",
    "f64": "double",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "i8": "int8_t",
    "u8": "uint8_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "bool": "uint8_t",
}
"""The C type of an element of each dtype; floats of two bytes are their bits, truth is 0 or 1."""
_KEYWORDS = frozenset(
    "alignas alignof and asm auto bool break case catch char class const continue default delete "
    "do double else enum export extern false float for goto if inline int long namespace new not "
    "or private public register restrict return short signed sizeof static struct switch template "
    "this throw true try typedef typename union unsigned using virtual void volatile while xor "
    "function in let var yield await null undefined".split()
)


def identifier(name: str) -> str:
    """Return a name as C can have it."""
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "value"
    return f"_{word}" if word[0].isdigit() else f"{word}_" if word in _KEYWORDS else word


def identifiers(names: Iterable[str]) -> list[str]:
    """Return different names in C, whatever their case, for the names in order."""
    seen: set[str] = set()
    found = []
    for name in names:
        word, number = identifier(name), 1
        while word.lower() in seen:
            number += 1
            word = f"{identifier(name)}_{number}"
        seen.add(word.lower())
        found.append(word)
    return found


def commented(name: str) -> str:
    """Return a name as a comment can hold it, on one line."""
    return re.sub(r"\*/|[\\\x00-\x1f]", "_", name)


def elements(raw: bytes) -> str:
    """Return the elements of an array of these bytes, in rows."""
    return ",\n    ".join(", ".join(map(str, raw[i : i + 24])) for i in range(0, len(raw), 24))


def native(file: str) -> str:
    """Return the text of a file of native/, which exports take as it is or `filled`."""
    return (Path(__file__).parent / "native" / file).read_text()


def filled(text: str, words: Mapping[str, str]) -> str:
    """Return a text with each of these words replaced, once, by what belongs there."""
    return re.sub("|".join(words), lambda found: words[found[0]], text)


def check_name(what: str, name: str) -> str:
    """Return a name that C can have; GraphError, which says what it names, if it cannot."""
    if name != identifier(name):
        raise GraphError(f"export: {what} expected an identifier of C such as model, got {name!r}")
    return name


def c_type(type: Type) -> str:
    """Return the C type of an element."""
    return C_TYPES[type.dtype]


def described(type: Type) -> str:
    """Return a type for a comment, with what its elements are where C has no such type."""
    bits = {"f16": ", IEEE half by its bits", "bf16": ", bfloat16 by its bits"}.get(type.dtype, "")
    return f"{type}{bits}"
