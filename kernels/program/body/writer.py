"""Append statements over registers: the base class of the lowering of bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphc.ir import Node, Type, Value
from graphc.kernels.program.access import AffineAccess, AffineIndex, Domain, Guard, memory_access
from graphc.kernels.program.body.along import Along
from graphc.kernels.program.body.literals import splat_literal
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.body.statement import (
    Address,
    Argument,
    Call,
    Compute,
    Formula,
    Load,
    NamedFunction,
    Register,
    RegisterProgram,
    Statement,
    Store,
)
from graphc.ops.base import Array

Indices = tuple[AffineIndex, ...]
"""The index along each axis of a value."""
Guards = tuple[Guard, ...]
"""Conditions that must all hold."""


class StatementWriter:
    """Collects statements at indices of `domain`; `pointers` names the memory of values."""

    def __init__(
        self, domain: Domain, pointers: Mapping[Value, str], names: Identifiers | None
    ) -> None:
        self.domain, self.pointers = domain, pointers
        self.names = names or Identifiers(pointers.values())
        self.arrays: dict[str, Array] = {}
        self.axes: dict[str, frozenset[int]] = {}
        self._statements: list[Statement] = []
        self._known: dict[object, str] = {}

    def value(self, value: Value, indices: Indices, guards: Guards = ()) -> str:
        """The register that holds `value` at `indices`; undefined where a guard fails."""
        raise NotImplementedError

    def source(self, value: Value, indices: Indices) -> tuple[Value, Type, Indices]:
        """The body input that `value` is a view of, the type that it is read with, and the
        indices."""
        raise NotImplementedError

    def flush(self) -> RegisterProgram:
        """Return the statements since the last call."""
        statements, self._statements = tuple(self._statements), []
        own = (register.name for s in statements for register in s.results)
        return RegisterProgram(statements, self.arrays, {name: self.axes[name] for name in own})

    def store(self, value: Value, indices: Sequence[AffineIndex], register: str) -> None:
        """Store `register` to the output `value` at `indices`."""
        address = Address(self.pointers[value], memory_access(value.type, indices, self.domain))
        lanes = value.type.layout.axis is not None and self.domain.lane is not None
        self._statements.append(Store((), (address, register), lanes))

    def compute(
        self, name: str, dtype: str, formula: Formula, *operands: Argument, operations: int = 1
    ) -> str:
        """Append a formula of one register; returns its name."""
        return self._append(Compute(self._fresh((name, dtype)), operands, formula, operations))[0]

    def compute_all(
        self, results: Sequence[tuple[str, str]], formula: Formula, *operands: Argument
    ) -> tuple[str, ...]:
        """Append a formula of several registers, given as (name, dtype); returns their names."""
        return self._append(Compute(self._fresh(*results), operands, formula))

    def call(
        self,
        results: Sequence[tuple[str, str]],
        function: str,
        settings: Sequence[object],
        *arguments: Argument,
        live: bool = True,
        taps: int = 1,
        steps: tuple[int, ...] = (),
    ) -> tuple[str, ...]:
        """Append a call; returns the names of its result registers, given as (name, dtype)."""
        made = self._fresh(*results)
        return self._append(Call(made, arguments, function, tuple(settings), live, taps, steps))

    def along(self, node: Node, operand: str) -> tuple[str, ...]:
        """Append the running result or the sort `node` of a register, along an axis of the domain;
        returns the register of the value and, if there are two results, that of its index."""
        op: Any = node.op
        kinds = (node.outputs[0].type.dtype, "i32")
        made = self._fresh(*((v.name, k) for v, k in zip(node.outputs, kinds, strict=False)))
        self._append(Along(made, (operand,), op))
        self.axes.update((r.name, self.axes[r.name] | {op.axis}) for r in made)
        return tuple(r.name for r in made)

    def _fresh(self, *results: tuple[str, str]) -> tuple[Register, ...]:
        return tuple(Register(self.names.fresh(name), dtype) for name, dtype in results)

    def _append(self, statement: Statement) -> tuple[str, ...]:
        self._statements.append(statement)
        accesses, registers = statement.accesses, tuple(r.name for r in statement.results)
        axes = {d for a in accesses for d, s in enumerate(a.strides) if s}
        if self.domain.lane is not None and any(a.lane_stride for a in accesses):
            axes.add(self.domain.lane)
        depends = frozenset(axes.union(*(self.axes[r] for r in statement.operands)))
        self.axes.update(dict.fromkeys(registers, depends))
        return registers

    def load(self, value: Value, type: Type, indices: Sequence[AffineIndex], guards: Guards) -> str:
        """A register that holds the body input `value`, read with `type`, at `indices`."""
        access = memory_access(type, indices, self.domain)
        condition = self.condition(guards) if guards or access.divisor != 1 else None
        return self._load(value.name, type.dtype, self.pointers[value], access, condition)

    def _load(
        self, name: str, dtype: str, pointer: str, access: AffineAccess, condition: Argument | None
    ) -> str:
        plain = (Address(pointer, access),)
        arguments = plain if condition is None else (condition, Address(pointer), access)
        return self._append(Load(self._fresh((name, dtype)), arguments))[0]

    def condition(self, guards: Sequence[Guard]) -> str:
        """A register that tells where all `guards` hold: a bool, or a mask if lanes differ."""
        whole = ""
        for i, guard in enumerate(guards):
            key = ("guard", guard)
            if key not in self._known:
                a = guard.access
                inside = NamedFunction("inside", (a.lane_stride, guard.high, a.divisor))
                self._known[key] = self.compute("inside", "auto", inside, a, operations=0)
            one, joint = self._known[key], ("guards", tuple(guards[: i + 1]))
            if whole and joint not in self._known:
                self._known[joint] = self.compute(
                    "inside", "auto", NamedFunction("both"), whole, one
                )
            whole = self._known[joint] if whole else one
        return whole

    def constant(self, name: str, dtype: str, number: object) -> str:
        """A register that holds `number` in every lane."""
        return self.compute(
            name, dtype, NamedFunction(), splat_literal(number, dtype), operations=0
        )
