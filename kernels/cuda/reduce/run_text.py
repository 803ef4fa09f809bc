"""Print how a thread of a reduction addresses memory: elements, or runs of columns or rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from graphc.base.cached import cached_property
from graphc.ir import Value
from graphc.kernels.cuda.reduce.reduce import Shape, plain_address, scheduled, values_of
from graphc.kernels.cuda.shared.kernel_source import delinearize
from graphc.kernels.loops.rows import Rows
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.body.statement import Address, Load, RegisterProgram, Statement
from graphc.ops.pointwise.logic import C_TYPES


@dataclass(frozen=True)
class RunText:
    """Prints loads, addresses and indices of the elements that a thread accesses at once."""

    plain: Rows
    """The loops over rows."""
    shape: Shape
    """The division among threads."""
    index: str
    """The C++ index type."""

    @cached_property
    def rows(self) -> Rows:
        """The loops over rows as threads run them."""
        found = scheduled(self.plain, self.shape)
        verify_nest(found.nest)
        return found

    @property
    def names(self) -> list[str]:
        """The domain's indices: i of the row, j of the column."""
        kept, reduced = self.rows.kept_axes, self.rows.reduced_axes
        return [
            f"i{kept.index(d)}" if d in kept else f"j{reduced.index(d)}"
            for d in range(self.rows.domain.rank)
        ]

    @cached_property
    def _values(self) -> Mapping[str, Value]:
        return values_of(self.rows)

    @property
    def _several(self) -> bool:
        """Whether a thread has a run of rows."""
        return self.shape.length > 1 and not self.shape.rows_apart

    @property
    def _inner(self) -> int:
        """The axis along which runs lie."""
        rows = self.rows
        return (rows.reduced_axes if self.shape.rows_apart else rows.kept_axes)[-1]

    @property
    def _lane(self) -> list[str]:
        """The indices of an element of a run."""
        return ["lane" if d == self._inner else name for d, name in enumerate(self.names)]

    def _indices(self, whole: str, axes: Sequence[int], program: RegisterProgram) -> list[str]:
        """Definitions of the indices along `axes` that the program uses, from the linear index."""
        names, extents = self.names, [self.rows.domain.extents[d] for d in axes]
        return delinearize(
            whole, [names[d] for d in axes], extents, self.index, program.used(names)
        )

    def _loads(self, statements: Iterable[Statement]) -> dict[Address, str]:
        """The unconditional loads, each with the first register that it defines."""
        loads: dict[Address, str] = {}
        for s in statements:
            if isinstance(s, Load) and (address := plain_address(s, self._values)):
                loads.setdefault(address, s.results[0].name)
        return loads

    def _run(self, address: Address) -> str:
        """The type that moves at once."""
        element = C_TYPES[self._values[address.pointer].type.dtype]
        return f"Run<{element}, {self.shape.length if self._varies(address) else 1}>"

    def _varies(self, address: Address) -> bool:
        """Whether the elements of a run differ there."""
        assert address.access is not None
        return self.shape.length > 1 and address.access.strides[self._inner] != 0

    def _place(self, address: Address) -> str:
        """The memory of a run, from its first element."""
        assert address.access is not None
        offset = address.access.text(self.names)
        return f"*reinterpret_cast<const {self._run(address)}*>({address.pointer} + {offset})"

    def _loading(self, name: str, loads: Mapping[Address, str]) -> tuple[list[str], list[str]]:
        """The struct `name` of what is loaded at once, and the functor that loads it."""
        fields = [f"  {self._run(address)} {field};" for address, field in loads.items()]
        accesses = tuple(Load((), (address,)) for address in loads)
        functor = [
            f"[&]({self.index} column) {{",
            *(f"  {x}" for x in self._column(RegisterProgram(accesses, {}, {}))),
            f"  return {name}{{{', '.join(map(self._place, loads))}}};",
            "}",
        ]
        return [f"struct {name} {{", *fields, "};"], functor

    def _column(self, program: RegisterProgram) -> list[str]:
        return self._indices("column", self.rows.reduced_axes, program)

    def _bytes(self, address: Address) -> int:
        """Bytes that a thread moves at once."""
        size = self._values[address.pointer].type.numpy_dtype.itemsize
        return size * self.shape.length if self._varies(address) else size
