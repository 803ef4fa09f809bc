"""Turning a body graph into straight-line code: statements over registers, each written once.

`Walk` goes from a wanted value at an index of the domain up to the body's inputs and composes
index maps on the way: views cost nothing, operands are read where they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from graphc.ir import Graph, Node, Type, Value
from graphc.kernels.program.access import (
    Access,
    Domain,
    Guard,
    Place,
    broadcast_places,
    linear_index,
    memory_access,
    place_of,
)
from graphc.kernels.program.literals import splat
from graphc.kernels.program.names import Names
from graphc.kernels.program.pieces import Piece
from graphc.kernels.program.statement import (
    Address,
    Argument,
    Call,
    Compute,
    Formula,
    Function,
    Literal,
    Load,
    Masked,
    Program,
    Register,
    Statement,
    Store,
)
from graphc.ops.base import Affine, Array, Pointwise, Source, View
from graphc.ops.logic import C_TYPES


class Walk:
    """Collects the statements that compute values of `body` at indices of `domain`.

    `pointers` names the memory of the body's inputs and of the outputs to be stored. `inputs` are
    further values that lie in memory.
    """

    def __init__(
        self,
        body: Graph,
        domain: Domain,
        pointers: Mapping[Value, str],
        names: Names | None = None,
        inputs: Iterable[Value] = (),
    ) -> None:
        self.body, self.domain, self.pointers = body, domain, pointers
        self.names = names or Names(pointers.values())
        self._given: dict[Value, dict[tuple[Place, ...], str]] = {}
        self.statements: list[Statement] = []
        self.arrays: dict[str, Array] = {}
        self.axes: dict[str, frozenset[int]] = {}
        self._inputs, self._producers = {*body.inputs, *inputs}, body.producers
        self._known: dict[object, str] = {}

    def taken(self) -> Program:
        """The statements since the last call."""
        statements, self.statements = tuple(self.statements), []
        return Program(statements, self.arrays, self.axes)

    def value(self, value: Value, places: tuple[Place, ...], guards: tuple[Guard, ...] = ()) -> str:
        """The register that holds `value` at `places`; anything where a guard does not pass."""
        if value in self._given:
            at = self._settled(places)
            assert at in self._given[value], f"{value} is read at {at}"
            return self._given[value][at]
        key = (value, places, guards)
        if key not in self._known:
            if value in self._inputs:
                self._known[key] = self.load(value, value.type, places, guards)
            else:
                self._compute(self._producers[value], value, places, guards)
        return self._known[key]

    def give(
        self,
        value: Value,
        places: tuple[Place, ...],
        register: str,
        axes: frozenset[int] | None = None,
    ) -> None:
        """Say that `value` at `places`, and nowhere else that was not said, is in `register`
        already, which varies along `axes`, or all."""
        self._given.setdefault(value, {})[self._settled(places)] = register
        self.axes[register] = frozenset(range(self.domain.rank)) if axes is None else axes

    def forget(self, but: frozenset[int] | None) -> None:
        """Compute anew from here on what depends on domain axes other than `but`; None: all."""
        known = self._known.items()
        self._known = {k: r for k, r in known if but is not None and self.axes[r] <= but}

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

    def store(self, value: Value, places: Sequence[Place], register: str) -> None:
        """Write `register` to the output `value`, at `places`."""
        address = Address(self.pointers[value], memory_access(value.type, places, self.domain))
        lanes = value.type.layout.axis is not None
        self.statements.append(Store((), (address, register), lanes))

    def store_all(self, wanted: Sequence[tuple[Value, Piece]]) -> None:
        """Store pieces of outputs; all are computed first, so that any may overwrite an input."""
        registers = [self.value(piece.value, piece.source) for _, piece in wanted]
        for (value, piece), register in zip(wanted, registers, strict=True):
            self.store(value, piece.target, register)

    def compute(
        self, name: str, dtype: str, formula: Formula, *operands: Argument, operations: int = 1
    ) -> str:
        """Append a formula of one register; its name."""
        return self._append(Compute(self._fresh((name, dtype)), operands, formula, operations))[0]

    def compute_all(
        self, results: Sequence[tuple[str, str]], formula: Formula, *operands: Argument
    ) -> tuple[str, ...]:
        """Append a formula of several registers, given as (name, dtype); their names."""
        return self._append(Compute(self._fresh(*results), operands, formula))

    def call(
        self,
        results: Sequence[tuple[str, str]],
        function: str,
        settings: Sequence[object],
        *arguments: Argument,
        live: bool = True,
    ) -> tuple[str, ...]:
        """Append a call; the names of its registers, which are given as (name, dtype)."""
        return self._append(Call(self._fresh(*results), arguments, function, tuple(settings), live))

    def _fresh(self, *results: tuple[str, str]) -> tuple[Register, ...]:
        return tuple(Register(self.names.fresh(name), dtype) for name, dtype in results)

    def _append(self, statement: Statement) -> tuple[str, ...]:
        self.statements.append(statement)
        accesses, registers = statement.accesses, tuple(r.name for r in statement.results)
        axes = {d for a in accesses for d, s in enumerate(a.strides) if s}
        if self.domain.lane is not None and any(a.lane_stride for a in accesses):
            axes.add(self.domain.lane)
        depends = frozenset(axes.union(*(self.axes[r] for r in statement.operands)))
        self.axes.update(dict.fromkeys(registers, depends))
        return registers

    def load(
        self, value: Value, type: Type, places: Sequence[Place], guards: tuple[Guard, ...]
    ) -> str:
        """A register with the memory of the body input `value`, seen as a `type`, at `places`."""
        access = memory_access(type, places, self.domain)
        condition = self.condition(guards) if guards or access.divisor != 1 else None
        return self._load(value.name, type.dtype, self.pointers[value], access, condition)

    def _load(
        self, name: str, dtype: str, pointer: str, access: Access, condition: Argument | None
    ) -> str:
        plain = (Address(pointer, access),)
        arguments = plain if condition is None else (condition, Address(pointer), access)
        return self._append(Load(self._fresh((name, dtype)), arguments))[0]

    def condition(self, guards: Sequence[Guard]) -> str:
        """A register that says where all of `guards` pass: bool, or a mask if lanes differ."""
        whole = ""
        for i, guard in enumerate(guards):
            key = ("guard", guard)
            if key not in self._known:
                a = guard.access
                inside = Function("inside", (a.lane_stride, guard.high, a.divisor))
                self._known[key] = self.compute("inside", "auto", inside, a, operations=0)
            one, joint = self._known[key], ("guards", tuple(guards[: i + 1]))
            if whole and joint not in self._known:
                self._known[joint] = self.compute("inside", "auto", Function("both"), whole, one)
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
        index = node.op.index(inner.type)
        if index is not None:
            return self.value(inner, self._through(index, places), guards)
        return self.load(self._reshaped(value, inner), value.type, places, guards)

    def _constant(self, value: Value, array: Array, places: Sequence[Place]) -> str:
        dtype = value.type.dtype
        if array.size == 1:
            return self.constant(value.name, dtype, array.reshape(())[()])
        pointer = self.names.fresh(value.name, "data")
        self.arrays[pointer] = array
        access = linear_index(value.type.shape, places, self.domain)
        return self._load(value.name, dtype, pointer, access, Literal("true"))

    def constant(self, name: str, dtype: str, number: object) -> str:
        """A register that holds `number` in every lane."""
        literal = Literal(splat(number, dtype))
        return self.compute(name, dtype, Function(), literal, operations=0)

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
        dtype, formula = value.type.dtype, _formula(op, node)
        return self.compute(value.name, dtype, formula, *operands, operations=op.operations)


def _formula(op: Pointwise, node: Node) -> Formula:
    dtypes, dtype = [v.type.dtype for v in node.inputs], node.output.type.dtype
    if op.name in ("cast", "widen"):
        return _cast(dtypes[0], dtype)
    return Masked(op) if dtype == "bool" and any(d != "bool" for d in dtypes) else op


def _cast(source: str, target: str) -> Function:
    """A conversion: booleans are masks, not numbers."""
    if target == "bool":
        return Function() if source == "bool" else Function("to_bool")
    return Function("from_bool" if source == "bool" else "convert", (C_TYPES[target],))
