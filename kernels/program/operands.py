"""Operands of ops with a template of their own: memory that they read in place, through affine
views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphc.ir import Graph, Value
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.expression import BodyWriter
from graphc.kernels.program.body.names import Identifiers
from graphc.ops.base import Array, Op, Source, View
from graphc.ops.pointwise.logic import C_TYPES
from graphc.ops.pointwise.tf32 import ReadTf32


@dataclass(frozen=True)
class StridedOperand:
    """An operand's element at indices i is that of `source`, an input of the body or a constant in
    it, at `offset` + sum of strides[d] * i[d] elements. Axes of extent 1 have stride 0. Numbers may
    be `rounded` to tf32 as they are read."""

    source: Value
    offset: int
    strides: tuple[int, ...]
    rounded: bool = False

    @property
    def element(self) -> str:
        """What memory holds, in C++."""
        return "tf32" if self.rounded else C_TYPES[self.source.type.dtype]


def is_read(op: Op) -> bool:
    """Whether a kernel that reads operands in place computes `op` by how it reads."""
    return isinstance(op, View) or op.converts_reads


def find_operands(body: Graph, values: Sequence[Value]) -> list[StridedOperand]:
    """How each of `values`, views of inputs or of constants of the body, is read. Reading may
    convert, before views or behind them."""
    producers = body.producers
    sources, rounded = [], []
    for value in values:
        ops = []
        while value not in body.inputs and is_read(producers[value].op):
            ops.append(producers[value].op)
            (value,) = producers[value].inputs
        assert value in body.inputs or isinstance(producers[value].op, Source), f"computed: {value}"
        sources.append(value)
        rounded.append(any(isinstance(op, ReadTf32) for op in ops))
    pointers = {v: v.name for v in (*body.inputs, *sources)}
    operands = []
    for value, source, rounds in zip(values, sources, rounded, strict=True):
        assert source.type.layout.axis is None, f"{source} is read row-major"
        domain = Domain(value.type.shape)
        walk = BodyWriter(body, domain, pointers, inputs=pointers)
        access = walk.address(value, domain.identity())
        assert access.divisor == 1
        strides = zip(access.strides, domain.extents, strict=True)
        operands.append(
            StridedOperand(
                source, access.offset, tuple(s if n > 1 else 0 for s, n in strides), rounds
            )
        )
    return operands


def constant_operands(
    body: Graph, operands: Sequence[StridedOperand]
) -> tuple[Mapping[Value, str], Mapping[str, Array]]:
    """A pointer's name for each source that is no input, and the elements by that name."""
    names, producers = Identifiers(), body.producers
    sources = dict.fromkeys(o.source for o in operands if o.source not in body.inputs)
    pointers = {v: names.fresh(v.name, "data") for v in sources}
    return pointers, {p: producers[v].op.reference()[0] for v, p in pointers.items()}
