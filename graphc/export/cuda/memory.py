"""Where state and constants of an export lie: on the host as on every target, and on the GPU.

On the host state is the block of `graphc.export.memory`, row-major, so that it is the same on every
target. On the GPU a value of state lies as kernels read and write it, perhaps with channels last;
the player converts where it copies. Constants lie in their block as kernels read them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graphc.base.errors import GraphError
from graphc.export.lowering import Entry
from graphc.export.memory import CONSTANTS, STATE, Item, Memory, blocks_of
from graphc.ir import ROW_MAJOR, Layout, Type
from graphc.ir.state import ALIGNMENT, StateBuffer
from graphc.runtime.cuda.reservation import SECTION, arena_bytes
from graphc.runtime.plan.places import Places

Key = tuple[int, Layout]
"""A buffer's identity, and the layout in which kernels see it."""


@dataclass(frozen=True)
class Piece:
    """A value of state on the GPU."""

    item: Item
    """Where it is on the host."""
    offset: int
    """Bytes from the start of the state on the GPU."""
    type: Type
    """Its type there, with the layout."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(before, extent, behind, width), of the axis that the layout cuts into blocks of `width`.

        `before` and `behind` count the elements of other axes; if the layout cuts none, all
        elements are in `extent`, and the width is 0.
        """
        shape, axis = self.type.shape, self.type.layout.axis
        if axis is None:
            return 1, self.type.size, 1, 0
        before, behind = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        return before, shape[axis], behind, self.type.layout.width


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of an export on the GPU."""

    host: Memory
    """The blocks, and the places of constants and state on the GPU by the buffer's identity."""
    places: dict[Key, tuple[int, int]]
    """(kind of block, offset on the GPU) of each binding."""
    pieces: tuple[Piece, ...]
    """State, in the order of its block."""
    state: int
    """Bytes of the state on the GPU."""


def lay_out(entries: Sequence[Entry]) -> DeviceMemory:
    """Return the memory of programs, which share what they both use.

    Raises GraphError if one writes a buffer that another reads under another layout.
    """
    updated: set[int] = set()
    named: dict[Key, tuple[str, StateBuffer]] = {}
    for entry in entries:
        pairs = list(zip(entry.plan.state, entry.buffers, strict=True))
        changed = Places(entry.plan).updated_state(entry.plan)
        updated |= {id(entry.buffers[i]) for i in changed}
        for binding, buffer in pairs:
            layout = binding.value.type.layout
            named.setdefault((id(buffer), layout), (binding.value.name, buffer))
    kinds = {
        key: STATE if key[0] in updated or buffer.type.shape == () else CONSTANTS
        for key, (_, buffer) in named.items()
    }
    _check_layouts([key for key, kind in kinds.items() if kind == STATE], named)
    packed = {
        key: (name, buffer if key[1] == ROW_MAJOR or kinds[key] == STATE else buffer.packed(key[1]))
        for key, (name, buffer) in named.items()
    }
    for _, buffer in packed.values():
        buffer.refresh_host()
    state, constants, items = blocks_of(packed, kinds, [entry.text for entry in entries])
    pieces, places, offset = [], {}, 0
    for key, (kind, item) in items.items():
        if kind == STATE:
            type = item.type.with_layout(key[1])
            pieces.append(Piece(item, offset, type))
            places[key] = STATE, offset
            offset += -(-type.nbytes // ALIGNMENT) * ALIGNMENT
        else:
            places[key] = CONSTANTS, item.offset
    arena = max(arena_bytes(entry.plan) for entry in entries)
    host = Memory(state, constants, {}, -(-arena // SECTION) * SECTION)
    return DeviceMemory(host, places, tuple(pieces), offset + ALIGNMENT)


def _check_layouts(keys: Sequence[Key], named: dict[Key, tuple[str, StateBuffer]]) -> None:
    """Raise GraphError for a buffer of state under two layouts."""
    seen: dict[int, Layout] = {}
    for buffer, layout in keys:
        if seen.setdefault(buffer, layout) != layout:
            name = named[buffer, layout][0]
            raise GraphError(
                f"export: the functions read {name} under two layouts, row-major and with channels "
                "last, and one of them writes it: export them apart"
            )
