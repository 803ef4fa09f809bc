"""Lower a body graph to straight-line code that computes each value once.

`BodyWriter` starts from a requested value at an index of the domain, walks up to the body's inputs
and composes index maps on the way. Views cost nothing: operands are read in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from graphc.ir import Graph, Node, Type, Value
from graphc.kernels.program.access import (
    AffineAccess,
    AffineIndex,
    Domain,
    broadcast_indices,
    compose_index,
    linear_index,
    memory_access,
)
from graphc.kernels.program.body.literals import TRUE
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.body.special import SPECIAL
from graphc.kernels.program.body.statement import Formula, Masked, NamedFunction
from graphc.kernels.program.body.writer import Guards, Indices, StatementWriter
from graphc.kernels.program.pieces import Piece
from graphc.ops.base import Affine, Array, Pointwise, Source, View
from graphc.ops.pointwise.logic import C_TYPES


class BodyWriter(StatementWriter):
    """Writes the statements that compute values of `body` at indices of `domain`.

    `pointers` names the memory of the body's inputs and of the outputs to store; `inputs` are
    further values that are already in memory.
    """

    def __init__(
        self,
        body: Graph,
        domain: Domain,
        pointers: Mapping[Value, str],
        names: Identifiers | None = None,
        inputs: Iterable[Value] = (),
    ) -> None:
        super().__init__(domain, pointers, names)
        self.body = body
        self._given: dict[Value, dict[Indices, str]] = {}
        self._more_inputs = frozenset(inputs)

    def _in_memory(self, value: Value) -> bool:
        """Whether `value` is read from memory."""
        return value in self.body.input_set or value in self._more_inputs

    def value(self, value: Value, indices: Indices, guards: Guards = ()) -> str:
        if value in self._given:
            at = self._canonical_indices(value, indices)
            assert at in self._given[value], f"{value} is read at {at}"
            return self._given[value][at]
        key = (value, indices, guards)
        register = self._known.get(key)
        if register is None:
            if self._in_memory(value):
                register = self.load(value, value.type, indices, guards)
            else:
                register = self._compute(self.body.producers[value], value, indices, guards)
            self._known[key] = register
        return register

    def bind(
        self,
        value: Value,
        indices: Indices,
        register: str,
        axes: frozenset[int] | None = None,
    ) -> None:
        """Declare that `register` holds `value` at `indices`, and varies along the domain `axes`
        (None: all). The value is not computed elsewhere."""
        self._given.setdefault(value, {})[self._canonical_indices(value, indices)] = register
        self.axes[register] = frozenset(range(self.domain.rank)) if axes is None else axes

    def forget(self, keep: frozenset[int] | None) -> None:
        """Recompute from here on what depends on domain axes other than `keep`; None recomputes
        everything."""
        known = self._known.items()
        self._known = {k: r for k, r in known if keep is not None and self.axes[r] <= keep}

    def _canonical_indices(self, value: Value, indices: Sequence[AffineIndex]) -> Indices:
        """`indices` of `value` with constant 0 for axes of one element, where guards exclude other
        indices."""
        extents = self.domain.extents
        return tuple(
            AffineIndex(
                tuple(c * (n > 1) for c, n in zip(p.coefficients, extents, strict=True)),
                p.offset, p.divisor,
            )
            if own > 1
            else self.domain.constant(0)
            for p, own in zip(indices, value.type.shape, strict=True)
        )  # fmt: skip

    def store_all(self, pieces: Sequence[tuple[Value, Piece]]) -> None:
        """Compute all `pieces` of outputs, then store them, so that any store may overwrite an
        input."""
        registers = [self.value(piece.value, piece.source) for _, piece in pieces]
        for (value, piece), register in zip(pieces, registers, strict=True):
            self.store(value, piece.target, register)

    def source(self, value: Value, indices: Indices) -> tuple[Value, Type, Indices]:
        if self._in_memory(value):
            return value, value.type, indices
        node = self.body.producers[value]
        (inner,) = node.inputs
        if node.op.converts_reads:
            return self.source(inner, indices)
        assert isinstance(node.op, View), f"{node.op.name} of {value} is not read in place"
        index = node.op.index(inner.type)
        if index is not None:
            return self.source(inner, self._compose(index, indices))
        return self._reshaped(value, inner), value.type, indices

    def address(self, value: Value, indices: Indices) -> AffineAccess:
        """The access to `value`, a view of an input, in the input's memory."""
        _, type, inner = self.source(value, indices)
        return memory_access(type, inner, self.domain)

    def _reshaped(self, value: Value, inner: Value) -> Value:
        """`inner` as an input read with the shape of `value`; a reshape moves no data."""
        while not self._in_memory(inner):
            node = self.body.producers[inner]
            affine = node.op.name == "reshape" or node.op.converts_reads
            assert affine, f"a reshape of {node.op.name} is not affine"
            (inner,) = node.inputs
        assert inner.type.layout.axis is None, f"a reshape of {inner.type} moves elements"
        return inner

    def _compose(self, index: Sequence[Affine], indices: Sequence[AffineIndex]) -> Indices:
        """The indices of a view's operand, where the view is read at `indices`."""
        return tuple(compose_index(a, indices, self.domain.rank) for a in index)

    def _compute(self, node: Node, value: Value, indices: Indices, guards: Guards) -> str:
        """Compute `value` at (indices, guards); what its node computes besides is recorded."""
        op = node.op
        if op.name in SPECIAL:
            registers = SPECIAL[op.name](self, node, indices, guards)
            for output, register in zip(node.outputs, registers, strict=True):
                self._known[output, indices, guards] = register
            return self._known[value, indices, guards]
        if isinstance(op, View):
            return self._view(node, value, indices, guards)
        if isinstance(op, Source):
            return self._constant(value, op.reference()[0], indices, guards)
        assert isinstance(op, Pointwise), f"{op.name} is not part of a pointwise body"
        return self._pointwise(op, node, value, indices, guards)

    def _view(self, node: Node, value: Value, indices: Indices, guards: Guards) -> str:
        """The register of a view, read through its operand."""
        (inner,) = node.inputs
        index = node.op.index(inner.type)
        if index is not None:
            return self.value(inner, self._compose(index, indices), guards)
        return self.load(self._reshaped(value, inner), value.type, indices, guards)

    def _constant(
        self, value: Value, array: Array, indices: Sequence[AffineIndex], guards: Guards
    ) -> str:
        """The register of a constant's element."""
        dtype = value.type.dtype
        if array.size == 1:
            return self.constant(value.name, dtype, array.reshape(())[()])
        pointer = self.names.fresh(value.name, "data")
        self.arrays[pointer] = array
        access = linear_index(value.type.shape, indices, self.domain)
        condition = self.condition(guards) if guards else TRUE
        return self._load(value.name, dtype, pointer, access, condition)

    def _pointwise(
        self,
        op: Pointwise,
        node: Node,
        value: Value,
        indices: Indices,
        guards: Guards,
    ) -> str:
        """The register of a pointwise op's result."""
        shape = value.type.shape
        operands = [
            self.value(v, broadcast_indices(v.type.shape, shape, indices, self.domain), guards)
            for v in node.inputs
        ]
        dtype, formula = value.type.dtype, _formula(op, node)
        return self.compute(value.name, dtype, formula, *operands, operations=op.operations)


def _formula(op: Pointwise, node: Node) -> Formula:
    """The formula of a pointwise node; casts depend on the dtypes."""
    dtypes, dtype = [v.type.dtype for v in node.inputs], node.output.type.dtype
    if op.name in ("cast", "widen"):
        return _cast(dtypes[0], dtype)
    return Masked(op) if dtype == "bool" and any(d != "bool" for d in dtypes) else op


def _cast(source: str, target: str) -> NamedFunction:
    """The conversion between two dtypes; booleans are masks, not numbers."""
    if target == "bool":
        return NamedFunction() if source == "bool" else NamedFunction("to_bool")
    return NamedFunction("from_bool" if source == "bool" else "convert", (C_TYPES[target],))
