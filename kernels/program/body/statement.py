"""Statements of a kernel's body as data: Load, Store, Compute and Call.

A statement knows which registers it defines and which registers, offsets and memory it uses; its
text is printed last. Functions have the same names in the headers of all devices: `load<N,
1>(x_data + i0)` loads a vector on the CPU and one element on CUDA, where the number of live lanes
`N` is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from graphc.base.cached import cached_property
from graphc.kernels.program.access import AffineAccess, merged
from graphc.ops.base import Array
from graphc.ops.pointwise.logic import C_TYPES

Number = bool | int | float
"""A literal's value. There is one NaN, `literals.NAN`, so that equal literals compare equal."""


class Register(NamedTuple):
    """A register that a statement defines; the dtype "auto" lets the compiler deduce the type."""

    name: str
    dtype: str


@dataclass(frozen=True)
class Literal:
    """A number that is known when a kernel is printed, and its C++ text: what a register of `dtype`
    holds in every lane, or, without one, an argument of a function."""

    text: str
    """The C++ text."""
    value: Number
    dtype: str = ""


@dataclass(frozen=True)
class Address:
    """The memory at `pointer`, offset by `access` if there is one."""

    pointer: str
    """The C++ pointer."""
    access: AffineAccess | None = None
    """The element offset; None for the pointer itself."""


Argument = str | Literal | AffineAccess | Address
"""A statement's argument: a register by name, a literal, an element offset, or memory."""


class Formula(Protocol):
    """A C++ expression of its operands' texts, such as a pointwise op."""

    def scalar_expression(self, *operands: str) -> str: ...


@dataclass(frozen=True)
class NamedFunction:
    """The expression `name<settings>(operands)`; without a name, the operand itself."""

    name: str = ""
    """The function's name; "" for none."""
    settings: tuple[object, ...] = ()
    """Template arguments; a tuple is a template of its own, its name first."""

    def scalar_expression(self, *operands: str) -> str:
        if not self.name:
            return operands[0]
        return f"{_template((self.name, *self.settings))}({', '.join(operands)})"


@dataclass(frozen=True)
class Masked:
    """A comparison `formula` as a lane mask."""

    formula: Formula

    def scalar_expression(self, *operands: str) -> str:
        return f"as_mask({self.formula.scalar_expression(*operands)})"


@dataclass(frozen=True)
class Statement:
    """A statement that defines `results` from `arguments`; subclasses print it."""

    results: tuple[Register, ...]
    """The registers that it defines."""
    arguments: tuple[Argument, ...]
    """What it uses."""

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The registers that it reads."""
        return tuple([a for a in self.arguments if isinstance(a, str)])

    @cached_property
    def accesses(self) -> tuple[AffineAccess, ...]:
        """The accesses in its arguments."""
        found = [a.access if isinstance(a, Address) else a for a in self.arguments]
        return tuple([a for a in found if isinstance(a, AffineAccess)])

    @cached_property
    def pointers(self) -> tuple[str, ...]:
        """The memory that it reads or writes."""
        return tuple([a.pointer for a in self.arguments if isinstance(a, Address)])

    @property
    def work(self) -> bool:
        """Whether it counts as arithmetic."""
        return False

    def merged(self, groups: Sequence[Sequence[int]]) -> Statement:
        """The statement over the merged axes `groups`."""

        def moved(argument: Argument) -> Argument:
            if isinstance(argument, AffineAccess):
                return merged(argument, groups)
            if isinstance(argument, Address) and argument.access:
                return replace(argument, access=merged(argument.access, groups))
            return argument

        return replace(self, arguments=tuple(map(moved, self.arguments)))

    def text(self, indices: Sequence[str], live: str) -> str:
        """The C++ statement; `indices` names the domain's indices and `live` the live lanes."""
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
    """Loads an element.

    `arguments` are its address, or a condition, a pointer and an offset for a load under the
    condition.
    """

    @property
    def plain(self) -> bool:
        """Whether it is unconditional."""
        return len(self.arguments) == 1

    def _text(self, arguments: Sequence[str], live: str) -> str:
        (access,) = self.accesses
        if self.plain:
            return f"load<{live}, {access.lane_stride}>({arguments[0]})"
        return f"load_if<{live}, {access.lane_stride}, {access.divisor}>({', '.join(arguments)})"


@dataclass(frozen=True)
class Store(Statement):
    """Stores a register; `arguments` are an address and the register."""

    lanes: bool = False
    """Whether the value has the same lanes in memory as in registers."""

    def _text(self, arguments: Sequence[str], live: str) -> str:
        (access,) = self.accesses
        name = f"store_lanes<{live}>" if self.lanes else f"store<{live}, {access.lane_stride}>"
        return f"{name}({', '.join(arguments)})"


@dataclass(frozen=True)
class Compute(Statement):
    """Computes a formula of registers and offsets."""

    formula: Formula
    """The expression."""
    operations: int = 1
    """Arithmetic operations per element (`Pointwise.operations`); 0 for index arithmetic."""

    @property
    def work(self) -> bool:
        return self.operations > 0

    def _text(self, arguments: Sequence[str], live: str) -> str:
        return self.formula.scalar_expression(*arguments)


@dataclass(frozen=True)
class Call(Statement):
    """Calls `function<N, settings>`, a function of many instructions that mostly reads memory."""

    function: str
    """The function's name."""
    settings: tuple[object, ...]
    """Template arguments after the number of lanes."""
    live: bool = True
    """Whether the function takes the live lanes."""
    taps: int = 1
    """The most elements that it reads of each pointer."""
    steps: tuple[int, ...] = ()
    """Strides of which the offsets of these elements are whole multiples; () if unknown."""

    @property
    def work(self) -> bool:
        return True

    def _text(self, arguments: Sequence[str], live: str) -> str:
        settings = (live, *self.settings) if self.live else self.settings
        return NamedFunction(self.function, settings).scalar_expression(*arguments)


@dataclass(frozen=True)
class RegisterProgram:
    """Straight-line code: statements in order."""

    statements: tuple[Statement, ...]
    """The statements in order."""
    arrays: Mapping[str, Array]
    """Constants of more than one element, by pointer name."""
    axes: Mapping[str, frozenset[int]]
    """The domain axes that each register depends on."""

    @property
    def accesses(self) -> tuple[AffineAccess, ...]:
        """The accesses of all statements."""
        return tuple(a for s in self.statements for a in s.accesses)

    @property
    def pointers(self) -> tuple[str, ...]:
        """The memory that it reads or writes, in order of first use."""
        return tuple(dict.fromkeys(p for s in self.statements for p in s.pointers))

    @property
    def work(self) -> int:
        """Arithmetic operations per element."""
        return sum(s.work for s in self.statements)

    def merged(self, groups: Sequence[Sequence[int]]) -> RegisterProgram:
        """The program over a domain whose axes `merge_axes` has merged."""
        new = {d: i for i, g in enumerate(groups) for d in g}
        statements = tuple(s.merged(groups) for s in self.statements)
        axes = {r: frozenset(new[d] for d in ds if d in new) for r, ds in self.axes.items()}
        return RegisterProgram(statements, self.arrays, axes)

    def split(self, invariant: frozenset[int]) -> tuple[RegisterProgram, RegisterProgram]:
        """The statements that depend only on axes in `invariant`, and the others."""

        def early(s: Statement) -> bool:
            return bool(s.results) and all(self.axes[r.name] <= invariant for r in s.results)

        return self.filter(early), self.filter(lambda s: not early(s))

    def filter(self, predicate: Callable[[Statement], bool]) -> RegisterProgram:
        """The program of the statements for which `predicate` holds."""
        return replace(self, statements=tuple(filter(predicate, self.statements)))

    def lines(self, indices: Sequence[str], live: str = "N") -> list[str]:
        """The C++ statements."""
        return [s.text(indices, live) for s in self.statements]

    def used(self, indices: Sequence[str]) -> frozenset[str]:
        """The domain indices, of `indices`, that the text mentions."""
        used = {d for a in self.accesses for d, stride in enumerate(a.strides) if stride}
        return frozenset(indices[d] for d in used)


def joined(programs: Iterable[RegisterProgram]) -> RegisterProgram:
    """Programs one after another, over one domain or several."""
    programs = tuple(programs)
    return RegisterProgram(
        tuple(s for p in programs for s in p.statements),
        {name: array for p in programs for name, array in p.arrays.items()},
        {register: axes for p in programs for register, axes in p.axes.items()},
    )


def _template(setting: object) -> str:
    """The C++ text of a template or of a template's argument."""
    if not isinstance(setting, tuple):
        return str(setting)
    name, *settings = map(_template, setting)
    return f"{name}<{', '.join(settings)}>" if settings else name


def _printed(argument: Argument, indices: Sequence[str]) -> str:
    """The C++ text of an argument."""
    if isinstance(argument, str):
        return argument
    if isinstance(argument, Literal):
        return argument.text
    if isinstance(argument, AffineAccess):
        return argument.text(indices)
    offset = f" + {argument.access.text(indices)}" if argument.access else ""
    return argument.pointer + offset
