"""The state of a thread during a walk: registers, predicates and constants, read by operands'
texts.

Registers hold integers, predicates booleans. What is unknown (loaded values, floats, pointers
unless requested) is None, and so is what depends on it: reading it raises UnknownError.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.gpu_model.constants import Tables
from tools.gpu_model.machine import LANES

M32 = 0xFFFFFFFF
TABLES = 1 << 44
"""The address of a file's constant arrays, in a walk."""
PARAMETERS = 0x160
"""The earliest byte of a kernel's arguments in constant bank 0, after reserved fields."""
SIZES = 0x18
"""Bytes of that bank with the sizes of block and grid."""

_PLACE = re.compile(r"^(-?)(U?R)(\d+)$")
_CONSTANT = re.compile(r"c\[0x0\]\[(?:0x([0-9a-f]+)|U?RZ)\]$")
_TERM = re.compile(r"^(-?)(?:(U?R(?:\d+|Z))(?:\.(\w+))?|0x([0-9a-f]+))$")

InstructionIndex = tuple[int, int]
"""An instruction: the number of its block of code, and its index there."""


class UnknownError(Exception):
    """An operand is unknown."""


@dataclass(frozen=True)
class Term:
    """A term of an address: a register, or a number if there is none, times `factor`; `wide` for a
    64-bit register."""

    register: str
    factor: int
    wide: bool = False


@dataclass
class State:
    """A thread of a walk.

    With `pointers` the kernel's arguments have values far enough apart that no two share a line.
    `traced` has the addresses of each access in execution order, None where one was skipped or is
    unknown; `order` has all known ones; `drawn` has the number of blocks of each drawn ticket.
    """

    special: dict[str, int]
    sizes: tuple[int, ...]
    tables: Tables = field(default_factory=Tables)
    pointers: bool = False
    values: dict[str, int | bool | None] = field(default_factory=dict)
    traced: dict[InstructionIndex, list[int | None]] = field(default_factory=dict)
    order: list[tuple[InstructionIndex, int]] = field(default_factory=list)
    accesses: int = 0
    drawn: list[int] = field(default_factory=list)

    def predicate(self, text: str) -> bool | None:
        """The value of an operand such as !P3; None if unknown."""
        value = self.values.get(text.lstrip("!"))
        return None if value is None else bool(value) != text.startswith("!")

    def holding(self, conditions: Sequence[str]) -> bool | None:
        """Whether all conditions hold; None if unknown."""
        known: bool | None = True
        for condition in conditions:
            value = self.predicate(condition)
            if value is False:
                return False
            known = None if value is None else known
        return known

    def must(self, text: str) -> bool:
        """The value of a known predicate."""
        value = self.predicate(text)
        if value is None:
            raise UnknownError
        return value

    def raw(self, text: str) -> int:
        """An operand as a non-negative number; a negated one with its carry."""
        if text[0] == "-" and text[1] in "RUc":
            return (M32 ^ self.raw(text[1:])) + 1
        if text[0] == "~":
            return M32 ^ self.raw(text[1:])
        if text[0] in "RU":
            return self.register(text)
        if text[0] == "c":
            return self.constant(text)
        try:
            return int(text, 16 if "x" in text else 10) & M32
        except ValueError:
            raise UnknownError from None

    def get(self, text: str) -> int:
        """An operand in 32 bits."""
        return self.raw(text) & M32

    def register(self, name: str) -> int:
        value = self.values.get(name)
        if value is None:
            raise UnknownError
        return value

    def pair(self, text: str) -> int:
        """A 64-bit operand in two neighbouring registers."""
        found = _PLACE.match(text)
        if not found:
            return self.raw(text)
        name, number = found[2], int(found[3])
        value = self.register(f"{name}{number + 1}") << 32 | self.register(f"{name}{number}")
        return -value if found[1] else value

    def constant(self, text: str) -> int:
        """A word of bank 0: the sizes of block and grid, or a word that identifies an argument."""
        found = _CONSTANT.match(text)
        place = int(found[1] or "0", 16) if found else -1
        if place >= PARAMETERS and self.pointers:
            return place - 4 if place % 8 else 0
        if place < 0 or place >= SIZES or place % 4:
            raise UnknownError
        return self.sizes[place // 4]

    def total(self, terms: Sequence[Term]) -> int:
        """The address that is the sum of these terms."""
        if not terms:
            raise UnknownError
        total = 0
        for term in terms:
            if not term.register:
                total += term.factor
            else:
                value = self.pair(term.register) if term.wide else self.get(term.register)
                total += term.factor * value
        return total


def begun(
    block: Sequence[int], thread: Sequence[int], sizes: Sequence[int], tables: Tables | None = None
) -> State:
    """A thread of a block before its first instruction; `sizes` are those of block, then grid."""
    special = {f"SR_TID.{axis}": value for axis, value in zip("XYZ", thread, strict=True)}
    special |= {f"SR_CTAID.{axis}": value for axis, value in zip("XYZ", block, strict=True)}
    special |= {"SR_LANEID": thread[0] % LANES, "SRZ": 0, "SR_CgaCtaId": 0}
    values: dict[str, int | bool | None] = {"RZ": 0, "URZ": 0, "PT": True, "UPT": True}
    return State(special, tuple(sizes), tables or Tables(), values=values)


def terms_of(text: str) -> tuple[Term, ...]:
    """The terms of an address such as desc[UR4][R2.64+0x10]; none if it is not understood."""
    found = re.search(r"\[([^\[\]]*)\]$", text.strip())
    terms = []
    for word in (found[1] if found else "").split("+"):
        part = _TERM.match(word.strip())
        if not part:
            return ()
        sign, scale = -1 if part[1] else 1, part[3] or ""
        if part[4]:
            terms.append(Term("", sign * int(part[4], 16)))
        else:
            factor = int(scale[1:]) if scale.startswith("X") else 1
            terms.append(Term(part[2], sign * factor, scale == "64"))
    return tuple(terms)


def both(register: str, value: int) -> dict[str, int]:
    """A 64-bit value in this register and the next."""
    found = _PLACE.match(register)
    if not found:
        return {}
    number = int(found[3])
    return {f"{found[2]}{number}": value & M32, f"{found[2]}{number + 1}": value >> 32 & M32}
