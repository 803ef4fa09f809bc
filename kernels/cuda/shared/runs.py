"""Pointwise bodies whose threads process runs of neighbours, which move between memory and
registers in accesses of 16 bytes. What does not vary along a run is computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from graphc.ir import Value
from graphc.kernels.program.access import AffineAccess
from graphc.kernels.program.body.statement import (
    Address,
    Call,
    Load,
    Register,
    RegisterProgram,
    Statement,
    Store,
)
from graphc.kernels.program.body.window import WINDOWS
from graphc.kernels.program.pointwise_nest import PointwiseNest
from graphc.ops.pointwise.logic import C_TYPES

RUN = 4
"""Elements of a run: 16 bytes of float32."""
NARROW_RUN = 8
"""Elements of a run if some have at most two bytes: 16 bytes of float16, two times 16 of
float32."""


@dataclass(frozen=True)
class Runs:
    """A program split into what is computed once per run and what is computed per element."""

    length: int
    """Elements of a run."""
    once: RegisterProgram
    """Statements whose results are the same for all elements of a run."""
    each: RegisterProgram
    """Statements per element. Runs in their memory are aligned to their size."""
    used: Mapping[str, Value]
    """Values by pointer name."""
    axis: int | None = None
    """The axis of a run; None for the last one."""

    @property
    def vectors(self) -> list[Load]:
        """The loads of vectors that are not aligned."""
        statements = self.each.statements
        inner = max(d for s in statements for a in s.accesses for d in range(len(a.strides)))
        loads = [s for s in statements if isinstance(s, Load)]
        return [s for s in loads if _is_vector(s, inner) and not self._is_aligned_run(s, inner)]

    def lines(
        self,
        names: list[str],
        index: str,
        define: Callable[[RegisterProgram], list[str]],
        prologue: Sequence[str] = (),
        last: Sequence[str] = (),
        sources: Mapping[Address, str] | None = None,
    ) -> list[str]:
        """The statements of a run whose first element has the indices `names`.

        `define` gives the definitions of the indices that a program uses. `prologue` comes first
        for element `step`, `last` after all elements. `sources` name runs that are in registers.
        """
        inner, given = len(names) - 1 if self.axis is None else self.axis, sources or {}
        known = {id(s): x for s in self.each.statements if (x := source_of(s, given))}
        loads, stores = (
            [
                s
                for s in self.each.statements
                if isinstance(s, kind) and id(s) not in known and self._is_aligned_run(s, inner)
            ]
            for kind in (Load, Store)
        )
        runs = {id(s): f"run{number}" for number, s in enumerate((*loads, *stores))}
        lane = [*names[:inner], "lane", *names[inner + 1 :]]
        whole = RegisterProgram((*self.once.statements, *self.each.statements), {}, {})
        lines = define(whole.filter(lambda s: not source_of(s, given)))
        lines += [element_text(s, names, given) for s in self.once.statements]
        calls = [s for s in self.each.statements if makes_runs(s, self.used, inner, self.length)]
        lines += [call_of_run(s, names, self.length) for s in calls]
        for load in loads:
            kind, place = self._memory(load, names)
            lines.append(
                f"const auto {runs[id(load)]} = *reinterpret_cast<const {kind}*>({place});"
            )
        lines += [f"{self._memory(store, names)[0]} {runs[id(store)]};" for store in stores]
        lines += ["#pragma unroll", f"for (int step = 0; step < {self.length}; step++) {{"]
        alone = self.each.filter(lambda s: id(s) not in {*runs, *known} and s not in calls)
        if alone.used(lane) & {"lane"}:
            lines.append(f"  const {index} lane = {names[inner]} + step;")
        lines += [f"  {line}" for line in prologue]
        for statement in self.each.statements:
            name = known.get(id(statement)) or runs.get(id(statement), "")
            text = _step(statement, name, lane)
            lines.append(f"  {element_of_run(statement) if statement in calls else text}")
        lines += [*(f"  {line}" for line in last), "}"]
        for store in stores:
            kind, place = self._memory(store, names)
            lines.append(f"*reinterpret_cast<{kind}*>({place}) = {runs[id(store)]};")
        return lines

    def _is_aligned_run(self, statement: Statement, inner: int) -> bool:
        """Whether a load or store moves aligned runs, not single elements."""
        address = _address(statement)
        known = address.pointer in self.used
        return known and aligned(address.access, self.used[address.pointer], inner, self.length)

    def _memory(self, statement: Statement, names: list[str]) -> tuple[str, str]:
        """The type and address of the run that a load or store moves."""
        address = _address(statement)
        element = C_TYPES[self.used[address.pointer].type.dtype]
        assert address.access is not None
        return f"Run<{element}, {self.length}>", f"{address.pointer} + {address.access.text(names)}"


def runs_of(
    part: PointwiseNest, program: RegisterProgram, shortest: bool = False, tails: bool = False
) -> Runs | None:
    """Split `program` over `part` into runs, of `RUN` elements if `shortest`.

    None where memory is not accessed in whole aligned runs. With `tails`, the elements after the
    last whole run are handled by the caller, and loads of an unaligned vector are allowed; these
    read single elements.
    """
    inner = part.domain.rank - 1
    if inner < 0:
        return None
    once, each = program.split(frozenset(range(inner)))
    moves = [s for s in each.statements if _moves(s)]
    calls = [s for s in each.statements if not _moves(s) and s.pointers]
    used = part.used
    if not all(_address(s).access and _address(s).pointer in used for s in moves):
        return None
    sizes = {used[_address(s).pointer].type.numpy_dtype.itemsize for s in moves}
    long = min(sizes) <= 2 and max(sizes) <= 4 and not shortest
    for length in (NARROW_RUN, RUN) if long else (RUN,):
        extent = part.domain.extents[inner]
        if (
            (extent % length == 0 or (tails and extent > length))
            and all(
                aligned(a.access, used[a.pointer], inner, length)
                or (tails and _is_vector(s, inner))
                for s in moves
                for a in (_address(s),)
            )
            and all(makes_runs(s, used, inner, length) for s in calls)
        ):
            return Runs(length, once, each, used)
    return None


def aligned(access: AffineAccess | None, value: Value, inner: int, length: int) -> bool:
    """Whether neighbours along axis `inner` are contiguous and runs begin at multiples of `length`
    elements, in the value and in memory: it may be a slice of a loop's stack."""
    if access is None or access.divisor != 1 or access.strides[inner] != 1:
        return False
    starts = (value.type.size, access.offset, *access.strides[:inner])
    return not any(start % length for start in starts)


def _is_vector(statement: Statement, inner: int) -> bool:
    """Whether it loads neighbours along axis `inner` that do not depend on other axes."""
    access = _address(statement).access
    if not isinstance(statement, Load) or access is None or access.divisor != 1:
        return False
    return access.strides[inner] == 1 and not any(access.strides[:inner])


def makes_runs(statement: Statement, values: Mapping[str, Value], inner: int, length: int) -> bool:
    """Whether a statement is a window call that can compute `length` neighbours along axis `inner`
    at once: they have the same pixels, and whole aligned runs in memory."""
    if not isinstance(statement, Call) or statement.function not in WINDOWS:
        return False
    for a in statement.arguments:
        if isinstance(a, Address):
            if a.pointer not in values or not aligned(a.access, values[a.pointer], inner, length):
                return False
        elif isinstance(a, AffineAccess) and a.strides[inner]:
            return False
    return not any(step % length for step in statement.steps)


def call_of_run(call: Statement, names: Sequence[str], length: int) -> str:
    """The statement that computes a run of a call's results; `names` are the indices of its first
    element."""
    results = tuple(Register(f"{r.name}run", "auto") for r in call.results)
    return replace(call, results=results).text(names, str(length))


def element_of_run(call: Statement) -> str:
    """The statements that extract element `step` from the results of `call_of_run`."""
    taken = (f"vec<{C_TYPES[r.dtype]}> {r.name} = {r.name}run.at[step];" for r in call.results)
    return " ".join(f"const {text}" for text in taken)


def source_of(statement: Statement, sources: Mapping[Address, str]) -> str:
    """The register that a load takes in place of memory; "" for other statements."""
    address = statement.arguments[0] if isinstance(statement, Load) else None
    return sources.get(address, "") if isinstance(address, Address) else ""


def element_text(statement: Statement, names: Sequence[str], sources: Mapping[Address, str]) -> str:
    """A statement at the indices `names`, where `sources` have one element."""
    source = source_of(statement, sources)
    if not source:
        return statement.text(names, "1")
    ((name, dtype),) = statement.results
    return f"const vec<{C_TYPES[dtype]}> {name} = load<1, 0>({source}.at);"


def _moves(statement: Statement) -> bool:
    """Whether it is a load or a store."""
    return isinstance(statement, Load | Store)


def _address(statement: Statement) -> Address:
    """The address of a load or store; without an offset if it is conditional."""
    return next(a for a in statement.arguments if isinstance(a, Address))


def _step(statement: Statement, run: str, lane: list[str]) -> str:
    """A statement of one element, within the loop over `run`."""
    if isinstance(statement, Load) and run:
        ((name, dtype),) = statement.results
        return f"const vec<{C_TYPES[dtype]}> {name} = load<1, 0>({run}.at + step);"
    if isinstance(statement, Store) and run:
        (value,) = (a for a in statement.arguments if not isinstance(a, Address))
        return f"store<1, 0>({run}.at + step, {value});"
    return statement.text(lane, "1")
