"""The semantics of integer instructions: the values that each writes, from a thread's state, the
names of its results, its operands and its modifiers."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tools.gpu_model.sass import PREDICATE, REGISTER, Instruction
from tools.gpu_model.state import M32, PARAMETERS, TABLES, State, UnknownError, both, terms_of

Names = Sequence[str]
Modifiers = frozenset[str]
Made = Mapping[str, int | bool | None]
Meaning = Callable[[State, Names, Names, Modifiers], Made]


def signed(value: int) -> int:
    """A 32-bit number in two's complement."""
    return value - (1 << 32) if value >> 31 else value


def _mov(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    return {to[0]: s.get(a[0])}


def _imad(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    x, y = s.get(a[0]), s.get(a[1])
    carry = int(s.must(a[3])) if "X" in m and len(a) > 3 else 0
    if not m & {"WIDE", "HI"}:
        return {to[0]: (x * y + s.get(a[2]) + carry) & M32}
    product = x * y if "U32" in m else signed(x) * signed(y)
    total = product + s.pair(a[2]) + carry  # of 64 bits, with HI too
    if "WIDE" in m:
        return {**both(to[0], total), **{name: bool(total >> 64) for name in to[1:]}}
    return {to[0]: total >> 32 & M32}


def _iadd3(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    total = sum(s.raw(word) for word in a if not PREDICATE.match(word))
    if "X" in m:
        carries = (word for word in a if PREDICATE.match(word))
        total += sum(int(s.must(word)) for word in carries if word not in _NO_CARRY)
    return {to[0]: total & M32, **{name: bool(total >> 32) for name in to[1:]}}


_NO_CARRY = frozenset(("PT", "UPT", "!PT", "!UPT"))


def _lea(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    carry = int(s.must(a[-1])) if "X" in m and PREDICATE.match(a[-1]) else 0
    a = [word for word in a if not PREDICATE.match(word)]
    x, y, shift = s.get(a[0]), s.get(a[1]), s.get(a[-1])
    if "SX32" in m:
        low = signed(x) << shift >> 32 & M32
    elif "HI" in m:
        low = (s.get(a[2]) << 32 | x) << shift >> 32 & M32
    else:
        low = x << shift & M32
    total = low + y + carry
    return {to[0]: total & M32, **{name: bool(total >> 32) for name in to[1:]}}


def _lop3(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    table, operands, value = int(a[3], 16), [s.get(word) for word in a[:3]], 0
    for row in (i for i in range(8) if table >> i & 1):
        bits = M32
        for bit, operand in zip((4, 2, 1), operands, strict=True):
            bits &= operand if row & bit else M32 ^ operand
        value |= bits
    register = next((name for name in to if REGISTER.match(name)), "RZ")
    return {register: value, **{name: value != 0 for name in to if PREDICATE.match(name)}}


def _shf(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    low, shift, high = s.get(a[0]), s.get(a[1]) & 63, s.get(a[2])
    if "R" in m and "HI" in m:
        return {to[0]: ((signed(high) if "S32" in m else high) >> shift) & M32}
    if "R" in m:
        whole = (signed(high) if "S64" in m else high) << 32 | low
        return {to[0]: whole >> shift & M32}
    whole = high << 32 | low
    return {to[0]: whole << shift >> 32 & M32 if "HI" in m else low << shift & M32}


_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "LT": lambda x, y: x < y,
    "LE": lambda x, y: x <= y,
    "GT": lambda x, y: x > y,
    "GE": lambda x, y: x >= y,
    "EQ": lambda x, y: x == y,
    "NE": lambda x, y: x != y,
}


def _isetp(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    other = s.predicate(a[2]) if len(a) > 2 else True
    try:
        result: bool | None = _compared(s, a, m)
    except UnknownError:
        result = None
    opposite = None if result is None else not result
    return {to[0]: _combined(result, other, m), to[1]: _combined(opposite, other, m)}


def _compared(s: State, a: Names, m: Modifiers) -> bool:
    """With EX these are the high halves of two numbers, and a[3] is the result for the low ones."""
    x, y = s.get(a[0]), s.get(a[1])
    if "U32" not in m:
        x, y = signed(x), signed(y)
    kind = next(word for word in _COMPARED if word in m)
    if "EX" in m and x == y:
        return s.must(a[3])
    if "EX" in m and kind in ("EQ", "NE"):
        return kind == "NE"
    return _COMPARED[kind](x, y)


def _combined(x: bool | None, y: bool | None, m: Modifiers) -> bool | None:
    if "OR" in m:
        return True if x or y else None if x is None or y is None else False
    if "XOR" in m:
        return None if x is None or y is None else x != y
    return False if x is False or y is False else None if x is None or y is None else True


def _plop3(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    row = sum(int(s.must(word)) << bit for word, bit in zip(a[:3], (2, 1, 0), strict=True))
    tables = [int(word, 16) for word in a[3:5]]
    return {name: bool(table >> row & 1) for name, table in zip(to, tables, strict=False)}


def _sel(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    return {to[0]: s.get(a[0] if s.must(a[2]) else a[1])}


def _least_or_most(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    least, values = s.must(a[-1]), [s.get(word) for word in a[:-1]]
    if len(values) == 3:  # an addition comes before it
        values = [(values[0] + values[1]) & M32, values[2]]
    if "U32" not in m:
        values = [signed(value) for value in values]
    return {to[0]: (min(values) if least else max(values)) & M32}


def _special(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    if a[0] not in s.special:
        raise UnknownError
    value = s.special[a[0]]
    return {to[0]: value} if "32" in m else {**both(to[0], value), to[0]: value}


def _ldc(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    found = re.match(r"c\[0x(0|4)\]\[(?:0x([0-9a-f]+)|U?RZ)\]$", a[0])
    bank, place = (found[1], int(found[2] or "0", 16)) if found else ("0", -1)
    if bank == "4":
        if place not in s.tables.places:
            raise UnknownError
        address = TABLES + s.tables.places[place]
        return both(to[0], address) if "64" in m else {to[0]: address & M32}
    if "64" not in m:
        return {to[0]: s.constant(a[0])}
    if place < PARAMETERS or not s.pointers:
        raise UnknownError
    return both(to[0], place << 32)


def _ldg(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    """Loads from constant arrays only; other memory is unknown."""
    address, size = s.total(terms_of(a[0])), Instruction("", ".".join(("LDG", *m)), ()).width
    data = s.tables.data[address - TABLES :][:size] if address >= TABLES else b""
    if len(data) < size or size > 8:
        raise UnknownError
    value = int.from_bytes(data, "little", signed=bool(m & {"S8", "S16"}))
    return both(to[0], value) if size == 8 else {to[0]: value & M32}


def _hfma2(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    """With two zeros it moves two 16-bit constants."""
    if [word.lstrip("-") for word in a[:2]] != ["RZ", "RZ"]:
        raise UnknownError
    high, low = (struct.unpack("<H", struct.pack("<e", float(word)))[0] for word in a[2:4])
    return {to[0]: high << 16 | low}


def _i2f(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    """With the two below, an integer division: by the reciprocal, which is then corrected."""
    value = s.get(a[0])
    found = np.float32(value if "U32" in m else signed(value))
    if "RP" in m and int(found) < value:
        found = np.nextafter(found, np.float32(np.inf))
    return {to[0]: int(found.view(np.uint32))}


def _mufu(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    value = np.uint32(s.get(a[0])).view(np.float32)
    if "RCP" not in m or not value:
        raise UnknownError
    return {to[0]: int((np.float32(1) / value).view(np.uint32))}


def _f2i(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    return {to[0]: int(np.uint32(s.get(a[0])).view(np.float32)) & M32}


def _true(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    """The result in the elected thread, after a barrier, and in the last block."""
    return {name: True for name in to if PREDICATE.match(name)}


def _iabs(s: State, to: Names, a: Names, m: Modifiers) -> Made:
    return {to[0]: abs(signed(s.get(a[0])))}


MEANINGS: Mapping[str, Meaning] = {
    "MOV": _mov,
    "R2UR": _mov,
    "IMAD": _imad,
    "IADD3": _iadd3,
    "VIADD": _iadd3,
    "LEA": _lea,
    "LOP3": _lop3,
    "SHF": _shf,
    "ISETP": _isetp,
    "PLOP3": _plop3,
    "SEL": _sel,
    "VIMNMX": _least_or_most,
    "IMNMX": _least_or_most,
    "VIADDMNMX": _least_or_most,
    "S2R": _special,
    "S2UR": _special,
    "CS2R": _special,
    "LDC": _ldc,
    "LDG": _ldg,
    "HFMA2": _hfma2,
    "ELECT": _true,
    "SYNCS": _true,
    "IABS": _iabs,
    "B2R": _true,
    "I2F": _i2f,
    "MUFU": _mufu,
    "F2I": _f2i,
}
"""By name without modifiers, and without the U of the uniform datapath."""
