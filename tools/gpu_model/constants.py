"""Read compiled files: the constant arrays that kernels use to skip work, and a digest."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

HEADS, COUNTS = 0x28, 0x3A
"""Where a 64-bit ELF file has the offset of its section headers, and their size and number."""


@dataclass(frozen=True)
class Tables:
    """The initialized memory of a module: `data`, and the offset of each array by the place of its
    address in constant bank 4."""

    data: bytes = b""
    places: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Section:
    name: str
    number: int
    offset: int
    size: int


def tables(image: bytes) -> Tables:
    """The tables of a cubin: its section .nv.global.init and the relocations of .nv.constant4."""
    found = _sections(image)
    if ".nv.global.init" not in found or ".rela.nv.constant4" not in found:
        return Tables()
    arrays, moved, symbols = (
        found[name] for name in (".nv.global.init", ".rela.nv.constant4", ".symtab")
    )
    places = {}
    for at in range(moved.offset, moved.offset + moved.size, 24):
        place, symbol, addend = struct.unpack_from("<QQq", image, at)
        head = symbols.offset + 24 * (symbol >> 32)
        _, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", image, head)
        if section == arrays.number:
            places[place] = value + addend
    return Tables(image[arrays.offset : arrays.offset + arrays.size], places)


def code_digest(image: bytes) -> str:
    """Twelve hexadecimal digits that tell the machine code and the constant arrays of a cubin from
    others; names, lines and the order of its kernels do not count."""
    kept = (".text.", ".nv.global.init")
    parts = sorted(
        image[found.offset : found.offset + found.size]
        for name, found in _sections(image).items()
        if name.startswith(kept)
    )
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:12]


def _sections(image: bytes) -> dict[str, _Section]:
    (start,) = struct.unpack_from("<Q", image, HEADS)
    size, count, names = struct.unpack_from("<HHH", image, COUNTS)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, start + i * size) for i in range(count)]
    words = heads[names][4]
    found = {}
    for number, head in enumerate(heads):
        begin = words + head[0]
        name = image[begin : image.index(b"\0", begin)].decode()
        found[name] = _Section(name, number, head[4], head[5])
    return found
