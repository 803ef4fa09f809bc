"""Print functors of kernels whose elements have positions given by data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.ir import Graph, Value
from graphc.kernels.cuda.reduce.reduce import plain_address
from graphc.kernels.cuda.shared.kernel_source import constant_arrays, delinearize, index_type
from graphc.kernels.cuda.shared.runs import aligned
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.expression import BodyWriter
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.body.statement import RegisterProgram
from graphc.kernels.program.pieces import element_at
from graphc.ops.pointwise.logic import C_TYPES

Indices = Mapping[str, Sequence[int]]
"""For each linear index of a functor, the extents that it covers, in the order of a value's
axes."""


def split_axes(value: Value, axis: int, middle: int) -> Indices:
    """The extents that each of a value's three linear indices covers."""
    shape = value.type.shape
    return {
        "before": shape[:axis],
        "i": shape[axis : axis + middle],
        "after": shape[axis + middle :],
    }


class FunctorText:
    """Prints the bodies of functors and collects the constants that they read."""

    def __init__(self, body: Graph, pointers: Mapping[Value, str], names: Identifiers) -> None:
        self.pointers = pointers
        self._body, self._names = body, names
        self._index = index_type(body)
        self._values = {name: value for value, name in pointers.items()}
        self.constants: list[str] = []

    def read(self, value: Value, indices: Indices) -> list[str]:
        """Statements that return an element of `value`."""
        program, register = self._reading(value)
        return [*self._lines(program, indices), f"      return {register};"]

    def write(self, value: Value, indices: Indices) -> list[str]:
        """Statements that store the outputs, given the element `sum` of `value`."""
        return self._lines(self._writing(value), indices)

    def read_run(self, value: Value, indices: Indices, length: int) -> list[str]:
        """Statements that return a run of `length` neighbours, if `runs` allows it."""
        program, register = self._reading(value)
        kind = f"Run<{C_TYPES[value.type.dtype]}, {length}>"
        if length == 1:
            lines = self._lines(program, indices)
            return [*lines, f"      return {kind}{{{{{register}}}}};"]
        lines, place = self._place(program, indices)
        return [*lines, f"      return *reinterpret_cast<const {kind}*>({place});"]

    def write_run(self, value: Value, indices: Indices, length: int) -> list[str]:
        """Statements that store the outputs, given the run `sums` of `value`."""
        program, dtype = self._writing(value), C_TYPES[value.type.dtype]
        if length == 1:
            lines = self._lines(program, indices)
            return [f"      const {dtype} sum = sums.at[0];", *lines]
        lines, place = self._place(program, indices)
        return [*lines, f"      *reinterpret_cast<Run<{dtype}, {length}>*>({place}) = sums;"]

    def runs(self, read: Value, written: Value, length: int) -> bool:
        """Whether elements are only moved, in whole aligned runs along the last axis of both
        values."""
        return all(
            self._moves(program, value, length)
            for program, value in (
                (self._reading(read)[0], read),
                (self._writing(written), written),
            )
        )

    def _moves(self, program: RegisterProgram, value: Value, length: int) -> bool:
        inner = value.type.rank - 1
        if inner < 0 or value.type.shape[inner] % length or len(program.statements) != 1:
            return False
        address = plain_address(program.statements[0], self._values)
        return address is not None and aligned(
            address.access, self._values[address.pointer], inner, length
        )

    def _walk(self, value: Value) -> BodyWriter:
        return BodyWriter(self._body, Domain(value.type.shape), self.pointers, self._names)

    def _reading(self, value: Value) -> tuple[RegisterProgram, str]:
        walk = self._walk(value)
        register = walk.value(value, walk.domain.identity())
        return walk.flush(), register

    def _writing(self, value: Value) -> RegisterProgram:
        walk = self._walk(value)
        places = walk.domain.identity()
        walk.bind(value, places, "sum")
        walk.store_all([element_at(v, places) for v in self._body.outputs])
        return walk.flush()

    def _lines(self, program: RegisterProgram, indices: Indices) -> list[str]:
        self.constants += constant_arrays(program)
        split, names = self._split(program, indices)
        return [f"      {line}" for line in (*split, *program.lines(names, "1"))]

    def _place(self, program: RegisterProgram, indices: Indices) -> tuple[list[str], str]:
        """Definitions of the indices, and the address, for the program's only access."""
        address = plain_address(program.statements[0], self._values)
        assert address is not None and address.access is not None
        split, names = self._split(program, indices)
        place = f"{address.pointer} + {address.access.text(names)}"
        return [f"      {line}" for line in split], place

    def _split(self, program: RegisterProgram, indices: Indices) -> tuple[list[str], list[str]]:
        """Definitions of the indices that the program uses, and the names of all."""
        names = [f"{whole}{d}" for whole, extents in indices.items() for d in range(len(extents))]
        used = program.used(names)
        split: list[str] = []
        for whole, extents in indices.items():
            mine = [f"{whole}{d}" for d in range(len(extents))]
            split += delinearize(whole, mine, extents, self._index, used)
        return split, names
