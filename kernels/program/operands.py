"""Operands of ops with templates of their own, read in place through affine views."""

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
    """An operand whose element at indices i is that of `source` at `offset` + sum of strides[d] *
    i[d]."""

    source: Value
    """An input of the body, or a constant in it."""
    offset: int
    """Elements before the first."""
    strides: tuple[int, ...]
    """Elements along each axis; 0 for axes of extent 1."""
    rounded: bool = False
    """Whether elements are rounded to tf32 as they are read."""

    @property
    def element(self) -> str:
        """The C++ type of an element in memory."""
        return "tf32" if self.rounded else C_TYPES[self.source.type.dtype]


def is_read(op: Op) -> bool:
    """Whether a kernel folds `op` into how it reads an operand."""
    return isinstance(op, View) or op.converts_reads


def find_operands(body: Graph, values: Sequence[Value]) -> list[StridedOperand]:
    """How each of `values` is read: they are views of inputs or constants of the body, perhaps
    converted."""
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
    """The pointer names of sources that are not inputs, and their elements by that name."""
    names, producers = Identifiers(), body.producers
    sources = dict.fromkeys(o.source for o in operands if o.source not in body.inputs)
    pointers = {v: names.fresh(v.name, "data") for v in sources}
    return pointers, {p: producers[v].op.reference()[0] for v, p in pointers.items()}
