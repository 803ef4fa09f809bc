"""Where state and constants lie in an export, and what its memory is called in C.

State is one block, constants (parameters that no exported program writes) are another. Each begins
with a header:

    bytes 0..7      "graphc 1"
    bytes 8..11     1 for state, 2 for constants, little-endian
    bytes 12..15    CRC-32 of all bytes behind the header, as zlib has it
    bytes 16..23    the number of these bytes
    bytes 24..55    SHA-256 of the programs' graphs and of the names, types and places of what the
                    block holds: another program's block is refused
    bytes 56..63    zeros

Values begin on multiples of 64 bytes, and 64 bytes follow the last one, as kernels may read whole
vectors. Numbers in blocks are little-endian.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from graphc.base.dtypes import Array
from graphc.export.lowering import Entry
from graphc.export.names import identifiers
from graphc.ir import Type
from graphc.ir.state import ALIGNMENT, StateBuffer
from graphc.runtime.plan.places import Places

HEADER = 64
"""Bytes of a block's header."""
STATE, CONSTANTS = 1, 2
"""The kinds of blocks."""
_MAGIC = b"graphc 1"
K = TypeVar("K")
"""What tells the values of an export apart."""


@dataclass(frozen=True)
class Item:
    """A value in a block."""

    name: str
    """Its name in the graph, such as `conv1.weight`."""
    symbol: str
    """Its name in C."""
    type: Type
    """Its type; elements lie under the type's layout."""
    offset: int
    """Bytes from the start of the block."""
    buffer: StateBuffer
    """Where its contents are in this process."""

    @property
    def array(self) -> Array:
        """The contents as they lie in memory."""
        return self.buffer.array


@dataclass(frozen=True)
class Block:
    """State or constants, as they lie in memory."""

    kind: int
    """STATE or CONSTANTS."""
    items: tuple[Item, ...]
    """What it holds, in order."""
    size: int
    """Bytes, the header and those behind the last value included; 0 for no constants."""
    digest: bytes
    """What tells it from other programs' blocks: 32 bytes."""

    def image(self) -> bytes:
        """The block with its header and the present contents."""
        if not self.size:
            return b""
        body = bytearray(self.size)
        for item in self.items:
            raw = item.array.tobytes()
            body[item.offset : item.offset + len(raw)] = raw
        crc = zlib.crc32(body[HEADER:])
        length = self.size - HEADER
        body[:HEADER] = struct.pack("<8sIIQ32s8x", _MAGIC, self.kind, crc, length, self.digest)
        return bytes(body)


@dataclass(frozen=True)
class Memory:
    """What the programs of an export share."""

    state: Block
    """What some program writes, and parameters that users may change."""
    constants: Block
    """What none writes."""
    places: dict[int, tuple[int, int]]
    """(kind of block, offset) of each buffer, by its identity."""
    arena: int
    """Bytes of the work arena, those behind the last value included."""


def lay_out(entries: Sequence[Entry]) -> Memory:
    """Return the blocks of state and constants of programs, which share what they both use."""
    updated: set[int] = set()
    named: dict[int, tuple[str, StateBuffer]] = {}
    for entry in entries:
        changed = Places(entry.plan).updated_state(entry.plan)
        updated |= {id(entry.buffers[i]) for i in changed}
        for binding, buffer in zip(entry.plan.state, entry.buffers, strict=True):
            named.setdefault(id(buffer), (binding.value.name, buffer))
    # A counter or a rate that a program reads is the user's to write.
    kinds = {
        key: STATE if key in updated or buffer.type.shape == () else CONSTANTS
        for key, (_, buffer) in named.items()
    }
    state, constants, items = blocks_of(named, kinds, [entry.text for entry in entries])
    places = {key: (kind, item.offset) for key, (kind, item) in items.items()}
    arena = max(entry.plan.peak_bytes for entry in entries)
    return Memory(state, constants, places, arena + ALIGNMENT)


def blocks_of(
    named: Mapping[K, tuple[str, StateBuffer]], kinds: Mapping[K, int], texts: Sequence[str]
) -> tuple[Block, Block, dict[K, tuple[int, Item]]]:
    """Return the blocks of state and constants, and the kind and the item of each key.

    Args:
        named: Names and buffers, in the order in which they lie.
        kinds: STATE or CONSTANTS.
        texts: The texts of the programs' graphs.
    """
    digest = hashlib.sha256("\0".join(texts).encode())
    found: dict[K, tuple[int, Item]] = {}
    blocks = []
    symbols = dict(zip(named, identifiers(name for name, _ in named.values()), strict=True))
    for kind in (STATE, CONSTANTS):
        offset, items = HEADER, []
        for key, (name, buffer) in named.items():
            if kinds[key] == kind:
                items.append(Item(name, symbols[key], buffer.type, offset, buffer))
                found[key] = kind, items[-1]
                offset += -(-buffer.array.nbytes // ALIGNMENT) * ALIGNMENT
        own = digest.copy()
        own.update("".join(f"{i.name} {i.type} {i.offset}\n" for i in items).encode())
        size = offset + ALIGNMENT if items or kind == STATE else 0
        blocks.append(Block(kind, tuple(items), size, own.digest()))
    return blocks[0], blocks[1], found
