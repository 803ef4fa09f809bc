"""The places of a program of strips (`strips.h`): its accesses, values and constants."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from graphc.ir import DTYPES
from graphc.ir.types import dtype_name
from graphc.kernels.prebuilt.operations import KINDS, Operation, conversion, operations
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.statement import (
    Argument,
    Literal,
    RegisterProgram,
)

LOAD, STORE, INDEX, INSIDE, LOAD_IF, TAKE, SEARCH, PHILOX, WINDOW, FIRST = range(10)
"""Kinds of instructions; those from `FIRST` on are operations."""
OWN, NOWHERE = -1, -2
"""The memory that is the program itself, and none: an access that is an index."""
BYTES = {"f32": 4, "f64": 8, "u8": 1, "i8": 1, "i32": 4, "i64": 8, "bool": 4, "u16": 2}
"""Bytes of an element in a strip."""
INDEX_KINDS = {"i64": 8, "i32": 4, "i8": 1, "u8": 2}
"""The numbers of the dtypes of indices, as `index_at` in `statements.h` knows them."""
VALUE, _CONSTANT = 1 << 20, 1 << 21
"""The first numbers of values and of constants, while accesses are still being numbered."""


class UnsupportedError(Exception):
    """No instruction does what the statement or the part of one that it holds says."""


@dataclass(frozen=True)
class Memory:
    """Memory that a program reads or writes by some pointer."""

    number: int
    """Its number among the addresses that `strips::run` is given."""
    dtype: str
    """The dtype of an element."""
    moved: int = 0
    """Bytes that its address has already been moved by."""
    strides: tuple[int, ...] | None = None
    """Elements from one index of each axis of the domain to the next, for local memory, which is
    accessed at the domain's own index. None where the program says them."""
    lane_stride: int | None = None
    """Elements from one lane to the next of local memory; None for the stride of the lane axis."""

    def local_lane_stride(self, lane: int | None) -> int:
        """Elements from one lane to the next of local memory."""
        if lane is None:
            return 0
        assert self.strides is not None
        return self.strides[lane] if self.lane_stride is None else self.lane_stride


@dataclass(frozen=True)
class Access:
    """An element of memory at each index of the domain, or an index itself."""

    memory: int
    bytes: int
    """Bytes of an element; 1 for an index."""
    offset: int
    """In elements."""
    strides: tuple[int, ...]
    lane_stride: int
    moved: int = 0
    padded: bool = False
    """Whether lanes behind the last element of a block are to be zeros."""
    array: str = ""
    """The name of a constant array of the program that it reads."""


@dataclass(frozen=True)
class Instruction:
    """What a program does to strips, by the numbers of places."""

    kind: int
    result: int
    operands: tuple[int, ...] = ()
    axes: frozenset[int] = frozenset()
    """The domain's axes that the result depends on."""
    settings: tuple[int | str, ...] = ()
    """Numbers, and names of constant arrays for their places."""
    moves: bool = False
    """Whether it only moves its operand to memory."""

    @property
    def computes(self) -> bool:
        """Whether it is an operation."""
        return self.kind >= FIRST

    @property
    def plain(self) -> bool:
        """Whether it is an operation, a load or a store."""
        return self.computes or self.kind in (LOAD, STORE)

    @property
    def writes_elements(self) -> bool:
        """Whether it writes no more than the elements of a strip, so that it may write to
        memory."""
        return self.computes or self.kind in (INDEX, INSIDE, LOAD_IF, TAKE, SEARCH, WINDOW)

    def renamed(self, places: Mapping[int, int]) -> Instruction:
        """The instruction with other places."""
        if places.keys().isdisjoint((self.result, *self.operands)):
            return self
        operands = tuple(places.get(p, p) for p in self.operands)
        result = places.get(self.result, self.result)
        return Instruction(self.kind, result, operands, self.axes, self.settings, self.moves)


@dataclass
class PlaceWriter:
    """Numbers the places of `program` over `domain`: its accesses, then the values, then the
    constants. Raises `UnsupportedError`."""

    domain: Domain
    program: RegisterProgram
    memory: Mapping[str, Memory]
    registers: Mapping[str, Memory]
    """Local memory of registers that the program reads and does not define."""
    overwritten: Collection[int]
    """Memories that outputs may overwrite."""
    accesses: list[Access] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Bytes of an element of each value."""
    constants: list[bytes] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._places: dict[str, int] = {}
        self._kinds: dict[str, str] = {}
        self._known: dict[object, int] = {}
        self.whole = frozenset(d for d, n in enumerate(self.domain.extents) if n > 1)
        """The axes that have more than one index."""

    def number_places(self) -> None:
        """Give the values and constants the numbers behind those of the accesses."""
        values, constants = len(self.accesses), len(self.accesses) + len(self.sizes)
        moved = {VALUE + i: values + i for i in range(len(self.sizes))}
        moved |= {_CONSTANT + i: constants + i for i in range(len(self.constants))}
        self.instructions = [i.renamed(moved) for i in self.instructions]

    def _define(self, name: str, dtype: str, place: int) -> None:
        """Let a register of `dtype` be `place`, whose elements are as memory has them."""
        read, _ = conversion(dtype)
        if read is not None:
            axes = self._axes_of(name)
            place = self._value(KINDS[dtype], FIRST + read, (place,), axes)
        self._places[name], self._kinds[name] = place, KINDS[dtype]

    def _axes_of(self, name: str) -> frozenset[int]:
        if name in self.program.axes:
            return self.program.axes[name]
        memory = self.registers.get(name)
        if memory is None:  # made by whoever has put the program together
            return self.whole
        assert memory.strides is not None
        return frozenset(d for d, s in enumerate(memory.strides) if s)

    def _value(
        self,
        kind: str,
        code: int,
        operands: tuple[int, ...],
        axes: frozenset[int],
        settings: tuple[int | str, ...] = (),
    ) -> int:
        """Append an instruction for a new value; returns its place."""
        self.sizes.append(BYTES[kind])
        place = VALUE + len(self.sizes) - 1
        self.instructions.append(Instruction(code, place, operands, axes, settings))
        return place

    def _local(self, memory: Memory) -> int:
        """The access of local memory, loaded."""
        assert memory.strides is not None
        lane_stride = memory.local_lane_stride(self.domain.lane)
        size = DTYPES[memory.dtype].itemsize
        access = Access(memory.number, size, 0, memory.strides, lane_stride, memory.moved)
        return self._loaded(access)

    def _loaded(self, access: Access) -> int:
        if access not in self._known:
            self._known[access] = place = self._place(access)
            axes = _access_axes(access, self.domain)
            self.instructions.append(Instruction(LOAD, place, (), axes))
        return self._known[access]

    def _place(self, access: Access) -> int:
        self.accesses.append(access)
        return len(self.accesses) - 1

    def _access(self, pointer: str, access: AffineAccess, padded: bool = False) -> Access:
        if access.divisor != 1:
            raise UnsupportedError(access)
        if pointer in self.program.arrays:
            size = self.program.arrays[pointer].dtype.itemsize
            return Access(
                OWN, size, access.offset, access.strides, access.lane_stride, array=pointer
            )
        memory = self.memory[pointer]
        size, strides, lane_stride = (
            DTYPES[memory.dtype].itemsize,
            access.strides,
            access.lane_stride,
        )
        offset = access.offset
        if memory.strides is not None:
            strides, offset = memory.strides, 0
            lane_stride = memory.local_lane_stride(self.domain.lane)
        return Access(memory.number, size, offset, strides, lane_stride, memory.moved, padded)

    def _index(self, access: AffineAccess) -> int:
        """The place of an access that is an index, before its division."""
        key = ("index", access.offset, access.strides, access.lane_stride)
        if key not in self._known:
            self._known[key] = self._place(
                Access(NOWHERE, 1, access.offset, access.strides, access.lane_stride)
            )
        return self._known[key]

    def _axes_of_index(self, access: AffineAccess) -> frozenset[int]:
        return _access_axes(self.accesses[self._index(access)], self.domain)

    def _dtype(self, pointer: str) -> str:
        if pointer in self.program.arrays:
            return dtype_name(self.program.arrays[pointer].dtype)
        return self.memory[pointer].dtype

    def _memory(self, pointer: str) -> tuple[int | str, int | str]:
        """The number of a memory and the bytes before its first element, as settings."""
        if pointer in self.program.arrays:
            return OWN, pointer
        memory = self.memory[pointer]
        if memory.strides is not None:
            raise UnsupportedError(pointer)
        return memory.number, -memory.moved

    def _operand(self, argument: Argument, dtype: str = "") -> int:
        """The place of a register or a literal, which has `dtype` if it does not say so itself."""
        if isinstance(argument, Literal):
            return self._constant(argument.value, KINDS[argument.dtype or dtype])
        assert isinstance(argument, str)
        self._find(argument)
        return self._places[argument]

    def _find(self, name: str) -> None:
        """Load a register that the program does not define, unless that was done."""
        if name in self._places:
            return
        if name not in self.registers:
            raise UnsupportedError(name)
        memory = self.registers[name]
        self._define(name, memory.dtype, self._local(memory))

    def _constant(self, value: object, kind: str) -> int:
        number = np.dtype(np.int32).type(-1 if value else 0) if kind == "bool" else None
        if number is None:
            number = DTYPES[kind].type(value)
        data = number.tobytes() * 16
        if data not in self.constants_seen:
            self.constants_seen[data] = _CONSTANT + len(self.constants)
            self.constants.append(data + bytes(128 - len(data)))
        return self.constants_seen[data]

    @property
    def constants_seen(self) -> dict[object, int]:
        """The constants' places, by their bytes."""
        return self._known

    def _operation(self, expression: str, result: str, operands: tuple[str, ...]) -> int:
        """The kind of an operation."""
        found = operations().get(Operation(expression, result, operands))
        if found is None:
            raise UnsupportedError(expression, operands)
        return FIRST + found

    def _kind(self, argument: Argument) -> str:
        if isinstance(argument, Literal):
            if not argument.dtype:
                raise UnsupportedError(argument)
            return KINDS[argument.dtype]
        if not isinstance(argument, str):
            raise UnsupportedError(argument)
        self._find(argument)
        return self._kinds[argument]

    def _largest(self, access: AffineAccess) -> int:
        """A bound of an index's size."""
        extents = self.domain.extents
        return abs(access.offset) + sum(
            abs(s) * n for s, n in zip(access.strides, extents, strict=False)
        )


def _access_axes(access: Access | AffineAccess, domain: Domain) -> frozenset[int]:
    """The axes that an access depends on."""
    found = {d for d, s in enumerate(access.strides) if s and domain.extents[d] > 1}
    if domain.lane is not None and access.lane_stride:
        found.add(domain.lane)
    return frozenset(found)
