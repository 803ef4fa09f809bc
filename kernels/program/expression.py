"""Turning a body graph into straight-line code: statements over registers, each written once.

`Walk` goes from a wanted value at an index of the domain up to the body's inputs and composes
index maps on the way: views cost nothing, operands are read where they lie. The text is C++ for
the CPU's headers (a register is a vector) and CUDA's (one element): `load<N, 1>(x_data + i0)`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from graphc.ir import Graph, Node, Type, Value
from graphc.kernels.program.access import (
    Access,
    Domain,
    Guard,
    Place,
    broadcast_places,
    linear_index,
    memory_access,
    merged,
    place_of,
)
from graphc.kernels.program.literals import splat
from graphc.ops.base import Affine, Array, Pointwise, Source, View
from graphc.ops.logic import C_TYPES as C_TYPES


@dataclass(frozen=True)
class Statement:
    """`registers = template`, where the template holds `$N` for the live lanes, `$0`, `$1`, ...
    for the operands (registers), `@0`, `@1`, ... for the accesses' offsets.

    `kind` is load, constant, index, compute, call or store; a store has no registers.
    """

    kind: str
    registers: tuple[str, ...]
    dtypes: tuple[str, ...]
    template: str
    operands: tuple[str, ...] = ()
    accesses: tuple[Access, ...] = ()
    operations: int = 1
    """What an element costs: `Pointwise.operations`."""

    @property
    def pointers(self) -> frozenset[str]:
        """The memory that it reads or writes: pointers end in _data."""
        return frozenset(re.findall(r"\w+_data\b", self.template))

    def text(self, indices: Sequence[str], live: str) -> str:
        """One C++ statement; `indices` are the names of the domain's indices."""

        def fill(match: re.Match[str]) -> str:
            kind, which = match.groups()
            if which == "N":
                return live
            if kind == "@":
                return self.accesses[int(which)].text(indices)
            return self.operands[int(which)]

        expression = re.sub(r"([$@])(N|\d+)", fill, self.template)
        if not self.registers:
            return f"{expression};"
        if len(self.registers) > 1:
            return f"const auto [{', '.join(self.registers)}] = {expression};"
        kind = self.dtypes[0] if self.dtypes[0] == "auto" else f"vec<{C_TYPES[self.dtypes[0]]}>"
        return f"const {kind} {self.registers[0]} = {expression};"


@dataclass(frozen=True)
class Program:
    """Statements in order. `arrays` are constants of more than one element, by pointer name;
    `axes` the domain axes that each register depends on."""

    statements: tuple[Statement, ...]
    arrays: Mapping[str, Array]
    axes: Mapping[str, frozenset[int]]

    @property
    def accesses(self) -> tuple[Access, ...]:
        return tuple(a for s in self.statements for a in s.accesses)

    def merged(self, groups: Sequence[Sequence[int]]) -> Program:
        """This program over a domain whose axes `merge_axes` has merged."""
        new = {d: i for i, g in enumerate(groups) for d in g}
        statements = tuple(
            replace(s, accesses=tuple(merged(a, groups) for a in s.accesses))
            for s in self.statements
        )
        axes = {r: frozenset(new[d] for d in ds if d in new) for r, ds in self.axes.items()}
        return Program(statements, self.arrays, axes)

    def split(self, invariant: frozenset[int]) -> tuple[Program, Program]:
        """The statements that depend on axes in `invariant` alone, and the others."""

        def early(s: Statement) -> bool:
            return bool(s.registers) and all(self.axes[r] <= invariant for r in s.registers)

        first = tuple(s for s in self.statements if early(s))
        later = tuple(s for s in self.statements if not early(s))
        return replace(self, statements=first), replace(self, statements=later)

    def lines(self, indices: Sequence[str], live: str = "N") -> list[str]:
        """The C++ statements."""
        return [s.text(indices, live) for s in self.statements]


class Names:
    """C identifiers for values: the value's own name as far as C allows, never twice."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def fresh(self, name: str, suffix: str = "") -> str:
        base = identifier(name)
        candidate, n = f"{base}_{suffix}", 0
        while candidate in self._taken:
            n += 1
            candidate = f"{base}{n}_{suffix}"
        self._taken.add(candidate)
        return candidate


def identifier(name: str) -> str:
    """`name` as a C identifier without double or outer underscores: d.conv1 -> d_conv1."""
    plain = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_") or "value"
    return f"v{plain}" if plain[0].isdigit() or keyword.iskeyword(plain) else plain


class Walk:
    """Collects the statements that compute values of `body` at indices of `domain`.

    `pointers` names the memory of the body's inputs and of the outputs to be stored. `given` holds
    values that are in registers already, at whatever index they are asked for; `given_axes` the
    domain axes they vary along. `inputs` are further values that lie in memory.
    """

    def __init__(
        self,
        body: Graph,
        domain: Domain,
        pointers: Mapping[Value, str],
        names: Names | None = None,
        given: Mapping[Value, str] | None = None,
        given_axes: Mapping[Value, frozenset[int]] | None = None,
        inputs: Iterable[Value] = (),
    ) -> None:
        self.body, self.domain, self.pointers = body, domain, pointers
        self.names = names or Names(pointers.values())
        self.given = dict(given or {})
        self.given_places: dict[Value, tuple[Place, ...]] = {}  # elsewhere it is an error
        self._given_parts: dict[tuple[Value, tuple[Place, ...]], str] = {}
        self.statements: list[Statement] = []
        self.arrays: dict[str, Array] = {}
        everything = frozenset(range(domain.rank))
        self.axes = {r: (given_axes or {}).get(v, everything) for v, r in self.given.items()}
        self._inputs, self._producers = {*body.inputs, *inputs}, body.producers
        self._known: dict[object, str] = {}

    def program(self) -> Program:
        return Program(tuple(self.statements), self.arrays, self.axes)

    def value(self, value: Value, places: tuple[Place, ...], guards: tuple[Guard, ...] = ()) -> str:
        """The register that holds `value` at `places`; anything where a guard does not pass."""
        if value in self.given:
            expected = self.given_places.get(value)
            at = self._settled(places)
            assert expected is None or at == self._settled(expected), f"{value} is read at {at}"
            return self.given[value]
        if self._given_parts and (part := self._given_parts.get((value, self._settled(places)))):
            return part
        key = (value, places, guards)
        if key not in self._known:
            if value in self._inputs:
                self._known[key] = self.load(value, value.type, places, guards)
            else:
                self._compute(self._producers[value], value, places, guards)
        return self._known[key]

    def give(self, value: Value, places: tuple[Place, ...], register: str) -> None:
        """Say that `value` at `places` is in `register` already, which varies along all axes."""
        self._given_parts[value, self._settled(places)] = register
        self.axes[register] = frozenset(range(self.domain.rank))

    def forget(self, but: frozenset[int]) -> None:
        """Compute anew from here on what depends on domain axes other than `but`."""
        self._known = {k: r for k, r in self._known.items() if self.axes[r] <= but}

    def _settled(self, places: Sequence[Place]) -> tuple[Place, ...]:
        """`places` without the indices that are always 0."""
        extents = self.domain.extents
        return tuple(
            replace(
                p,
                coefficients=tuple(
                    c * (n > 1) for c, n in zip(p.coefficients, extents, strict=True)
                ),
            )
            for p in places
        )

    def store(self, value: Value, places: Sequence[Place], register: str, live: str = "$N") -> None:
        """Write `register` to the output `value`, at `places`."""
        access = memory_access(value.type, places, self.domain)
        pointer = self.pointers[value]
        if value.type.layout.axis is not None:
            template = f"store_lanes<{live}>({pointer} + @0, $0)"
        else:
            template = f"store<{live}, {access.lane_stride}>({pointer} + @0, $0)"
        self.statements.append(Statement("store", (), (), template, (register,), (access,)))

    def emit(
        self,
        kind: str,
        name: str,
        dtype: str,
        template: str,
        operands: Iterable[str] = (),
        accesses: Iterable[Access] = (),
        operations: int = 1,
    ) -> str:
        """Append a statement with one register; its name."""
        results = ((name, dtype),)
        return self.emit_all(kind, results, template, operands, accesses, operations)[0]

    def emit_all(
        self,
        kind: str,
        results: Sequence[tuple[str, str]],
        template: str,
        operands: Iterable[str] = (),
        accesses: Iterable[Access] = (),
        operations: int = 1,
    ) -> tuple[str, ...]:
        """Append a statement with several registers, given as (name, dtype)."""
        operands, accesses = tuple(operands), tuple(accesses)
        dtypes = tuple(dtype for _, dtype in results)
        registers = tuple(self.names.fresh(name) for name, _ in results)
        statement = Statement(kind, registers, dtypes, template, operands, accesses, operations)
        self.statements.append(statement)
        axes = {d for a in accesses for d, s in enumerate(a.strides) if s}
        if self.domain.lane is not None and any(a.lane_stride for a in accesses):
            axes.add(self.domain.lane)
        depends = frozenset(axes.union(*(self.axes[r] for r in operands)))
        self.axes.update(dict.fromkeys(registers, depends))
        return registers

    def load(
        self, value: Value, type: Type, places: Sequence[Place], guards: tuple[Guard, ...]
    ) -> str:
        """A register with the memory of the body input `value`, seen as a `type`, at `places`."""
        pointer = self.pointers[value]
        access = memory_access(type, places, self.domain)
        lane, divisor = access.lane_stride, access.divisor
        if not guards and divisor == 1:
            template = f"load<$N, {lane}>({pointer} + @0)"
            return self.emit("load", value.name, type.dtype, template, (), (access,))
        template = f"load_if<$N, {lane}, {divisor}>($0, {pointer}, @0)"
        return self.emit(
            "load", value.name, type.dtype, template, (self.condition(guards),), (access,)
        )

    def condition(self, guards: Sequence[Guard]) -> str:
        """A register that says where all of `guards` pass: bool, or a mask if lanes differ."""
        whole = ""
        for i, guard in enumerate(guards):
            key = ("guard", guard)
            if key not in self._known:
                a = guard.access
                template = f"inside<{a.lane_stride}, {guard.high}, {a.divisor}>(@0)"
                self._known[key] = self.emit("index", "inside", "auto", template, (), (a,))
            one, joint = self._known[key], ("guards", tuple(guards[: i + 1]))
            if whole and joint not in self._known:
                self._known[joint] = self.emit(
                    "compute", "inside", "auto", "both($0, $1)", (whole, one)
                )
            whole = self._known[joint] if whole else one
        return whole

    def source(
        self, value: Value, places: tuple[Place, ...]
    ) -> tuple[Value, Type, tuple[Place, ...]]:
        """The body input that `value` is a view of, as what type it is read, and where."""
        if value in self._inputs:
            return value, value.type, places
        node = self._producers[value]
        assert isinstance(node.op, View), f"{node.op.name} of {value} is not read in place"
        (inner,) = node.inputs
        index = node.op.index(inner.type)
        if index is not None:
            return self.source(inner, self._through(index, places))
        return self._reshaped(value, inner), value.type, places

    def address(self, value: Value, places: tuple[Place, ...]) -> Access:
        """Where the elements of `value`, a view of an input, lie in the input's memory."""
        _, type, inner = self.source(value, places)
        return memory_access(type, inner, self.domain)

    def _reshaped(self, value: Value, inner: Value) -> Value:
        """The input that is read as if it had the shape of `value`: a reshape moves nothing."""
        while inner not in self._inputs:
            node = self._producers[inner]
            assert node.op.name == "reshape", f"a reshape of {node.op.name} is not affine"
            (inner,) = node.inputs
        assert inner.type.layout.axis is None, f"a reshape of {inner.type} moves elements"
        return inner

    def _through(self, index: Sequence[Affine], places: Sequence[Place]) -> tuple[Place, ...]:
        return tuple(place_of(a, places, self.domain.rank) for a in index)

    def _compute(
        self, node: Node, value: Value, places: tuple[Place, ...], guards: tuple[Guard, ...]
    ) -> None:
        """Put the register of `value` at (places, guards) into `_known`."""
        from graphc.kernels.program.special import SPECIAL

        op = node.op
        if op.name in SPECIAL:
            registers = SPECIAL[op.name](self, node, places, guards)
            for output, register in zip(node.outputs, registers, strict=True):
                self._known[output, places, guards] = register
            return
        if isinstance(op, View):
            register = self._view(node, value, places, guards)
        elif isinstance(op, Source):
            register = self._constant(value, op.reference()[0], places)
        else:
            assert isinstance(op, Pointwise), f"{op.name} is not part of a pointwise body"
            register = self._pointwise(op, node, value, places, guards)
        self._known[value, places, guards] = register

    def _view(
        self, node: Node, value: Value, places: tuple[Place, ...], guards: tuple[Guard, ...]
    ) -> str:
        (inner,) = node.inputs
        index = node.op.index(inner.type)  # type: ignore[attr-defined]
        if index is not None:
            return self.value(inner, self._through(index, places), guards)
        return self.load(self._reshaped(value, inner), value.type, places, guards)

    def _constant(self, value: Value, array: Array, places: Sequence[Place]) -> str:
        dtype = value.type.dtype
        if array.size == 1:
            template = splat(array.reshape(())[()], dtype)
            return self.emit("constant", value.name, dtype, template)
        pointer = self.names.fresh(value.name, "data")
        self.arrays[pointer] = array
        access = linear_index(value.type.shape, places, self.domain)
        template = f"load_if<$N, {access.lane_stride}, {access.divisor}>(true, {pointer}, @0)"
        return self.emit("load", value.name, dtype, template, (), (access,))

    def _pointwise(
        self,
        op: Pointwise,
        node: Node,
        value: Value,
        places: tuple[Place, ...],
        guards: tuple[Guard, ...],
    ) -> str:
        shape = value.type.shape
        operands = [
            self.value(v, broadcast_places(v.type.shape, shape, places, self.domain), guards)
            for v in node.inputs
        ]
        slots = tuple(f"${i}" for i in range(len(operands)))
        dtype = value.type.dtype
        if op.name in ("cast", "widen"):
            template = cast(node.inputs[0].type.dtype, dtype)
        else:
            template = op.scalar_expression(*slots)
            if dtype == "bool" and any(v.type.dtype != "bool" for v in node.inputs):
                template = f"as_mask({template})"
        return self.emit("compute", value.name, dtype, template, operands, operations=op.operations)


def cast(source: str, target: str) -> str:
    """The template of a conversion: booleans are masks, not numbers."""
    if target == "bool":
        return "$0" if source == "bool" else "to_bool($0)"
    return f"{'from_bool' if source == 'bool' else 'convert'}<{C_TYPES[target]}>($0)"
