"""Statements of a kernel's body, as values: Load, Store, Compute and Call.

A statement says which registers it makes, and of which registers, offsets and memory; whoever needs
to know asks it, and the text is printed last. The functions that it calls have the same names in
the headers of every device: `load<N, 1>(x_data + i0)` is a vector on the CPU and one element on
CUDA, where `N`, the number of live lanes, is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from graphc.kernels.program.access import AffineAccess, merged
from graphc.ops.base import Array
from graphc.ops.pointwise.logic import C_TYPES

Number = bool | int | float
"""A literal's value. There is one NaN, `literals.NAN`, so that equal literals compare equal."""


class Register(NamedTuple):
    """What a statement makes; the dtype "auto" is left to the compiler."""

    name: str
    dtype: str


@dataclass(frozen=True)
class Literal:
    """A number that is known when a kernel is printed, and its C++ text: what a register of `dtype`
    holds in every lane, or, without one, an argument of a function."""

    text: str
    value: Number
    dtype: str = ""


@dataclass(frozen=True)
class Address:
    """The memory `pointer`, at `access` if there is one."""

    pointer: str
    access: AffineAccess | None = None


Argument = str | Literal | AffineAccess | Address
"""A register by its name, a literal, an offset in elements, or memory."""


class Formula(Protocol):
    """C++ over the text of operands: a pointwise op is one."""

    def scalar_expression(self, *operands: str) -> str: ...


@dataclass(frozen=True)
class NamedFunction:
    """`name<settings>(operands)`; without a name, the operand itself."""

    name: str = ""
    settings: tuple[object, ...] = ()

    def scalar_expression(self, *operands: str) -> str:
        if not self.name:
            return operands[0]
        settings = f"<{', '.join(map(str, self.settings))}>" if self.settings else ""
        return f"{self.name}{settings}({', '.join(operands)})"


@dataclass(frozen=True)
class Masked:
    """`formula`, which compares numbers, as a mask."""

    formula: Formula

    def scalar_expression(self, *operands: str) -> str:
        return f"as_mask({self.formula.scalar_expression(*operands)})"


@dataclass(frozen=True)
class Statement:
    """`results` = what `_text` says of `arguments`."""

    results: tuple[Register, ...]
    arguments: tuple[Argument, ...]

    @property
    def operands(self) -> tuple[str, ...]:
        """The registers that it reads."""
        return tuple(a for a in self.arguments if isinstance(a, str))

    @property
    def accesses(self) -> tuple[AffineAccess, ...]:
        found = (a.access if isinstance(a, Address) else a for a in self.arguments)
        return tuple(a for a in found if isinstance(a, AffineAccess))

    @property
    def pointers(self) -> tuple[str, ...]:
        """The memory that it reads or writes."""
        return tuple(a.pointer for a in self.arguments if isinstance(a, Address))

    @property
    def work(self) -> bool:
        """Whether it counts as an operation."""
        return False

    def merged(self, groups: Sequence[Sequence[int]]) -> Statement:
        """This statement over the merged axes `groups`."""

        def moved(argument: Argument) -> Argument:
            if isinstance(argument, AffineAccess):
                return merged(argument, groups)
            if isinstance(argument, Address) and argument.access:
                return replace(argument, access=merged(argument.access, groups))
            return argument

        return replace(self, arguments=tuple(map(moved, self.arguments)))

    def renamed(self, names: Mapping[str, str]) -> Statement:
        """This statement with other names for registers and pointers, as far as there are any."""

        def named(argument: Argument) -> Argument:
            if isinstance(argument, Address):
                return replace(argument, pointer=names.get(argument.pointer, argument.pointer))
            return names.get(argument, argument) if isinstance(argument, str) else argument

        results = tuple(Register(names.get(r.name, r.name), r.dtype) for r in self.results)
        return replace(self, results=results, arguments=tuple(map(named, self.arguments)))

    def text(self, indices: Sequence[str], live: str) -> str:
        """One C++ statement; `indices` are the names of the domain's indices."""
        expression = self._text([_printed(a, indices) for a in self.arguments], live)
        if not self.results:
            return f"{expression};"
        if len(self.results) > 1:
            return f"const auto [{', '.join(r.name for r in self.results)}] = {expression};"
        ((name, dtype),) = self.results
        kind = dtype if dtype == "auto" else f"vec<{C_TYPES[dtype]}>"
        return f"const {kind} {name} = {expression};"

    def _text(self, arguments: Sequence[str], live: str) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class Load(Statement):
    """An element of memory: `arguments` are its address, or a condition, memory and offset, where
    it is read only where the condition passes."""

    @property
    def plain(self) -> bool:
        """Whether it is read in all lanes."""
        return len(self.arguments) == 1

    def _text(self, arguments: Sequence[str], live: str) -> str:
        (access,) = self.accesses
        if self.plain:
            return f"load<{live}, {access.lane_stride}>({arguments[0]})"
        return f"load_if<{live}, {access.lane_stride}, {access.divisor}>({', '.join(arguments)})"


@dataclass(frozen=True)
class Store(Statement):
    """`arguments` are an address and the register that is written there; `lanes` says that the
    value lies in memory as it lies in registers."""

    lanes: bool = False

    def _text(self, arguments: Sequence[str], live: str) -> str:
        (access,) = self.accesses
        name = f"store_lanes<{live}>" if self.lanes else f"store<{live}, {access.lane_stride}>"
        return f"{name}({', '.join(arguments)})"


@dataclass(frozen=True)
class Compute(Statement):
    """A formula over registers and offsets. `operations` is what an element costs
    (`Pointwise.operations`); 0 for what only tells where it is."""

    formula: Formula
    operations: int = 1

    @property
    def work(self) -> bool:
        return self.operations > 0

    def _text(self, arguments: Sequence[str], live: str) -> str:
        return self.formula.scalar_expression(*arguments)


@dataclass(frozen=True)
class Call(Statement):
    """A function of many instructions, of which most read memory: `function<N, settings>`, without
    the live lanes where it needs none. Of each memory it reads up to `taps` elements, whose places
    are whole multiples of `steps` apart where it has such."""

    function: str
    settings: tuple[object, ...]
    live: bool = True
    taps: int = 1
    steps: tuple[int, ...] = ()

    @property
    def work(self) -> bool:
        return True

    def _text(self, arguments: Sequence[str], live: str) -> str:
        settings = (live, *self.settings) if self.live else self.settings
        return NamedFunction(self.function, settings).scalar_expression(*arguments)


@dataclass(frozen=True)
class RegisterProgram:
    """Statements in order. `arrays` are constants of more than one element, by pointer name;
    `axes` the domain axes that each of their results depends on."""

    statements: tuple[Statement, ...]
    arrays: Mapping[str, Array]
    axes: Mapping[str, frozenset[int]]

    @property
    def accesses(self) -> tuple[AffineAccess, ...]:
        return tuple(a for s in self.statements for a in s.accesses)

    @property
    def pointers(self) -> tuple[str, ...]:
        """The memory that it reads or writes, in order."""
        return tuple(dict.fromkeys(p for s in self.statements for p in s.pointers))

    @property
    def work(self) -> int:
        """Operations per element."""
        return sum(s.work for s in self.statements)

    def merged(self, groups: Sequence[Sequence[int]]) -> RegisterProgram:
        """This program over a domain whose axes `merge_axes` has merged."""
        new = {d: i for i, g in enumerate(groups) for d in g}
        statements = tuple(s.merged(groups) for s in self.statements)
        axes = {r: frozenset(new[d] for d in ds if d in new) for r, ds in self.axes.items()}
        return RegisterProgram(statements, self.arrays, axes)

    def split(self, invariant: frozenset[int]) -> tuple[RegisterProgram, RegisterProgram]:
        """The statements that depend on axes in `invariant` alone, and the others."""

        def early(s: Statement) -> bool:
            return bool(s.results) and all(self.axes[r.name] <= invariant for r in s.results)

        return self.only(early), self.only(lambda s: not early(s))

    def renamed(self, names: Mapping[str, str]) -> RegisterProgram:
        """This program with other names for registers and pointers, as far as there are any."""
        statements = tuple(s.renamed(names) for s in self.statements)
        axes = {names.get(r, r): axes for r, axes in self.axes.items()}
        arrays = {names.get(p, p): array for p, array in self.arrays.items()}
        return RegisterProgram(statements, arrays, axes)

    def only(self, wanted: Callable[[Statement], bool]) -> RegisterProgram:
        """The statements that are wanted."""
        return replace(self, statements=tuple(filter(wanted, self.statements)))

    def lines(self, indices: Sequence[str], live: str = "N") -> list[str]:
        """The C++ statements."""
        return [s.text(indices, live) for s in self.statements]

    def used(self, indices: Sequence[str]) -> frozenset[str]:
        """Those of the domain's `indices` that the statements' text names."""
        used = {d for a in self.accesses for d, stride in enumerate(a.strides) if stride}
        return frozenset(indices[d] for d in used)


def joined(programs: Iterable[RegisterProgram]) -> RegisterProgram:
    """Programs one after another, over one domain or over several."""
    programs = tuple(programs)
    return RegisterProgram(
        tuple(s for p in programs for s in p.statements),
        {name: array for p in programs for name, array in p.arrays.items()},
        {register: axes for p in programs for register, axes in p.axes.items()},
    )


def _printed(argument: Argument, indices: Sequence[str]) -> str:
    if isinstance(argument, str):
        return argument
    if isinstance(argument, Literal):
        return argument.text
    if isinstance(argument, AffineAccess):
        return argument.text(indices)
    offset = f" + {argument.access.text(indices)}" if argument.access else ""
    return argument.pointer + offset
