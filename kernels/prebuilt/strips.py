"""Describe straight-line code to `strips.h`, which runs it without a compiler.

`strip_program` turns a `RegisterProgram` over a domain into the bytes of a `Program`: its accesses,
its instructions, and where its values lie in scratch memory.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from graphc.kernels.prebuilt.instructions import InstructionWriter
from graphc.kernels.prebuilt.places import (
    WINDOW,
    Access,
    Instruction,
    Memory,
    UnsupportedError,
)
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.statement import RegisterProgram

AXES = 8
"""The most axes of a domain, its lanes included."""
CONSTANT = 128
"""Bytes of a constant in a program."""
ROOM = 20480
"""Bytes of strips that fit a first-level cache beside what they are read from."""
_PADDING = 64
"""Bytes between strips, which would otherwise begin at the same place of a page."""


def strip_program(
    domain: Domain,
    program: RegisterProgram,
    memory: Mapping[str, Memory],
    inplace: Collection[tuple[int, int]] = (),
    registers: Mapping[str, Memory] | None = None,
    room: int = ROOM,
) -> bytes | None:
    """The bytes of `program` over `domain` for `strips::run`; None if it has a statement that no
    instruction does.

    `memory` has the memory of each pointer. `inplace` are pairs of numbers of memories, read and
    written, that may be one. `registers` has the local memory of registers that the program reads
    and does not define, such as sums. Strips have `room` bytes at most, all together.
    """
    try:
        overwritten = {i for i, _ in inplace}
        writer = InstructionWriter(domain, program, memory, registers or {}, overwritten)
        instructions = _stored_directly(writer, domain, inplace)
    except UnsupportedError:
        return None
    split = any(_blocked(a, domain) for a in writer.accesses)
    if domain.rank + split > AXES:
        return None
    return _Encoder(domain, writer, instructions, split, room).data()


def _blocked(access: Access, domain: Domain) -> bool:
    """Whether blocks of lanes matter: it steps otherwise from lane to lane than from block to
    block, or the last block has lanes to be cleared."""
    lane = domain.lane
    if lane is None:
        return False
    short = access.padded and domain.extents[lane] % domain.width != 0
    return short or access.strides[lane] != access.lane_stride


def _stored_directly(
    writer: InstructionWriter, domain: Domain, inplace: Collection[tuple[int, int]]
) -> list[Instruction]:
    """The instructions, of which those that compute what is stored write to memory, where nothing
    reads later what they overwrite."""
    accesses, found = writer.accesses, writer.instructions
    made = {i.result: number for number, i in enumerate(found)}

    known = {a.memory for a in accesses}
    over: dict[int, set[int]] = {}
    for i, o in inplace:
        if i in known and o in known:
            over.setdefault(o, set()).add(i)

    def overwrites(number: int, place: int) -> bool:
        """Whether the instruction would overwrite what a later one reads."""
        inputs = over.get(accesses[place].memory)
        if not inputs:
            return False
        reads = (p for later in found[number + 1 :] for p in (*later.operands, later.result))
        return any(0 <= p < len(accesses) and accesses[p].memory in inputs for p in reads)

    renamed: dict[int, int] = {}
    kept = []
    for instruction in found:
        if not instruction.moves:
            kept.append(instruction)
            continue
        (source,) = instruction.operands
        maker = made.get(source)
        direct = (
            maker is not None
            and found[maker].writes_elements
            and source not in renamed
            and found[maker].axes >= writer.whole
            and not overwrites(maker, instruction.result)
        )
        if direct:
            renamed[source] = instruction.result
        else:
            kept.append(instruction)
    for number, instruction in enumerate(found):
        if 0 <= instruction.result < len(accesses) and overwrites(number, instruction.result):
            raise UnsupportedError(instruction)
    return [i.renamed(renamed) for i in kept]


class _Encoder:
    """Writes a program's bytes."""

    def __init__(
        self,
        domain: Domain,
        writer: InstructionWriter,
        instructions: Sequence[Instruction],
        split: bool,
        room: int,
    ) -> None:
        self.domain, self.writer = domain, writer
        self.instructions, self.split, self.room = instructions, split, room

    def data(self) -> bytes:
        """All bytes."""
        domain, writer, constants = self.domain, self.writer, self.writer.program.arrays
        offsets, scratch, strip = self._values()
        settings: list[int | str] = []
        codes = []
        for i in self.instructions:
            places = (*i.operands, -1, -1, -1, -1)[:4]
            bits = sum(1 << d for d in i.axes)
            codes.append(struct.pack("<6iIi", i.kind, i.result, *places, bits, len(settings)))
            settings += i.settings
        parts = [
            bytes(_ACCESS.size * len(writer.accesses)),
            struct.pack(f"<{len(offsets)}i", *offsets),
            b"".join(writer.constants),
            b"".join(codes),
            bytes(8 * len(settings)),
        ]
        starts, at = [], _HEADER
        for part in parts:
            starts.append(at)
            at += -(-len(part) // 64) * 64
        arrays = [np.ascontiguousarray(a).tobytes() for a in constants.values()]
        moved = dict[str, int]()
        for name, array in zip(constants, arrays, strict=True):
            moved[name] = at
            at += -(-len(array) // 64) * 64
        parts[0] = b"".join(self._access(a, moved) for a in writer.accesses)
        numbers = [moved[n] if isinstance(n, str) else n for n in settings]
        parts[-1] = struct.pack(f"<{len(numbers)}q", *numbers)
        lane, width = (domain.lane, domain.width) if self.split else (-1, 1)
        counts = (
            len(writer.accesses),
            len(offsets) // 2 - len(writer.accesses),
            len(writer.constants),
        )
        extents = [*domain.extents, *(1,) * AXES][:AXES]
        order = [*self._order(), *(0,) * AXES][:AXES]
        header = struct.pack(
            f"<14i{AXES}q{AXES}ii", domain.rank, lane, width, strip, *counts, len(codes), *starts,
            scratch, *extents, *order, all(i.plain for i in self.instructions),
        )  # fmt: skip
        return b"".join(_padded(part) for part in (header, *parts, *arrays))

    def _order(self) -> list[int]:
        """The axes from the slowest: the lanes last, else that along which most is contiguous."""
        domain, accesses = self.domain, self.writer.accesses
        axes = list(range(domain.rank))
        if self.split or not axes:
            return axes
        last = domain.lane
        if last is None:
            wide = [d for d in axes if domain.extents[d] > 1] or axes
            last = max(wide, key=lambda d: (sum(a.strides[d] in (0, 1) for a in accesses), d))
        axes.remove(last)
        return [*axes, last]

    def _access(self, access: Access, moved: Mapping[str, int]) -> bytes:
        domain, size = self.domain, access.bytes
        strides = [s * size for s in access.strides]
        if self.split:
            assert domain.lane is not None
            strides[domain.lane] *= domain.width
            strides.append(access.lane_stride * size)
        strides = [*strides, *(0,) * AXES][:AXES]
        offset = access.offset * size - access.moved
        if access.array:
            offset += moved[access.array]
        padded = access.padded and self.split
        return _ACCESS.pack(access.memory, size, padded, offset, *strides)

    def _values(self) -> tuple[list[int], int, int]:
        """Offset and element size of each access's and value's strip, the bytes of all, and the
        elements of a strip."""
        writer, count = self.writer, len(self.writer.accesses)
        sizes = [a.bytes for a in writer.accesses] + list(writer.sizes)
        last: dict[int, int] = {}
        for number, i in enumerate(self.instructions):
            last.update(dict.fromkeys((*i.operands, i.result), number))
        own = {i.result: i for i in self.instructions}
        second = {p for i in self.instructions if i.kind == WINDOW for p in i.operands[3:]}
        slots: list[int] = []
        slot = [-1] * len(sizes)
        for place, size in enumerate(sizes):
            kept = place in own and not own[place].axes >= writer.whole
            if place < count or place in second or kept:
                slot[place] = len(slots)
                slots.append(size)
        free: dict[int, list[int]] = {}
        for number, i in enumerate(self.instructions):
            for place in {*i.operands} if i.computes else ():
                value = count <= place < len(sizes) and own.get(place)
                if value and value.axes >= writer.whole and last[place] == number:
                    free.setdefault(sizes[place], []).append(slot[place])
            place = i.result
            if slot[place] < 0:
                same = free.get(sizes[place])
                slot[place] = same.pop() if same else len(slots)
                if slot[place] == len(slots):
                    slots.append(sizes[place])
        strip = 1024
        values = sum(slots[count:]) + sum(a.bytes for a in writer.accesses if a.memory >= 0)
        while strip > 128 and strip * max(values, 1) > self.room:
            strip //= 2
        at, places = 0, []
        for size in slots:
            places.append(at)
            at += strip * size + _PADDING
        pairs = [(places[s] if s >= 0 else 0, size) for s, size in zip(slot, sizes, strict=True)]
        return [n for pair in pairs for n in pair], at, strip


_ACCESS = struct.Struct(f"<ihhq{AXES}q")
_HEADER = -(-struct.calcsize(f"<14i{AXES}q{AXES}ii") // 64) * 64


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 64)
