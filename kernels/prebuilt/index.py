"""Describe scatters, and gradients of gathers."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from graphc.base.target import Target
from graphc.ir import Node
from graphc.ir.types import DTYPES
from graphc.kernels.cpu.shared.kernel_source import argument_order
from graphc.kernels.loops.index_nest import IndexNest, index_nest
from graphc.kernels.loops.language import At
from graphc.kernels.prebuilt.description import Prebuilt
from graphc.kernels.prebuilt.operations import NUMBERS
from graphc.kernels.prebuilt.places import INDEX_KINDS
from graphc.kernels.prebuilt.strips import AXES
from graphc.kernels.program.body.statement import (
    Address,
    Compute,
    Literal,
    Load,
    Statement,
    Store,
)
from graphc.kernels.program.kernel import Kernel
from graphc.ops.base import COMBINES
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import TakeGrad
from graphc.ops.scatter import Scatter

_COMBINES = (*COMBINES, "replace")


def describe_index(node: Node, kernel: Kernel, target: Target) -> Prebuilt | None:
    """The description of a scatter or of a gather's gradient; None where what is put, or its
    index, is computed."""
    assert isinstance(node, KernelNode)
    scatters = node.op.template == "scatter"
    part = index_nest(node, Scatter if scatters else TakeGrad)
    op = part.node.op
    combine = op.combine if isinstance(op, Scatter) else "sum"
    extents, (a, (j,), i, b) = part.nest.domain.extents, part.letters
    dtype, index = part.node.output.type.dtype, part.node.inputs[-2].type.dtype
    statements = part.program.statements
    loads = [s for s in statements if isinstance(s, Load)]
    plain = all(s.plain for s in loads) and _simple(part, combine)
    if not plain or dtype not in NUMBERS or index not in INDEX_KINDS or len(extents) > AXES:
        return None
    places = _places(part, node, kernel)
    if places is None:
        return None
    head = struct.pack(
        "<5q", kernel.phases[0], scatters, _COMBINES.index(combine), NUMBERS.index(dtype),
        INDEX_KINDS[index],
    )  # fmt: skip
    letters = b"".join(struct.pack(f"<{AXES}i", *_padded((len(x), *x))) for x in (a, i, b))
    data = head + b"".join(places) + struct.pack(f"<{AXES}q", *_padded(extents, 1)) + letters
    return Prebuilt("graphc_index", data + struct.pack("<q", j))


def _simple(part: IndexNest, combine: str) -> bool:
    """Whether nothing is computed but the combination of elements of one dtype."""
    computed = [s for s in part.program.statements if isinstance(s, Compute)]
    zeros = [s for s in computed if all(isinstance(x, Literal) for x in s.arguments)]
    dtypes = {v.type.dtype for v in (part.node.inputs[-1], part.node.output)}
    known = len(computed) - len(zeros) == (combine != "replace")
    return known and len(dtypes) == 1 and not part.program.arrays


def _places(part: IndexNest, node: KernelNode, kernel: Kernel) -> list[bytes] | None:
    """Where the elements of the output, of what was there, of the indices and of what is put
    lie, over the nest's merged axes."""
    order = argument_order(node)
    values = part.pointers.values_by_name

    def place(statement: Statement | None) -> bytes:
        if statement is None:
            return struct.pack(f"<2q{AXES}q", -1, 0, *(0,) * AXES)
        address = statement.arguments[0]
        assert isinstance(address, Address) and address.access is not None
        value = values[address.pointer]
        number, size = order[value], DTYPES[value.type.dtype].itemsize
        offset = address.access.offset * size - kernel.offset(number)
        return struct.pack(f"<2q{AXES}q", number, offset, *_padded(address.access.strides))

    copy = _statements(part.nest.body[0])
    *find, at = part.scan.body
    assert isinstance(at, At)
    old = next((s for s in copy if isinstance(s, Load)), None)
    index = [s for s in find if isinstance(s, Load)]
    output = next((s for s in at.body if isinstance(s, Store)), None)
    own = part.output
    source = [s for s in at.body if isinstance(s, Load) and s.pointers != (own,)]
    if len(index) != 1 or len(source) != 1 or output is None:
        return None
    return [place(s) for s in (output, old, index[0], source[0])]


def _statements(step: object) -> Sequence[Statement]:
    """The statements of a loop, or of one under a condition."""
    if isinstance(step, Statement):
        return [step]
    return [s for inner in getattr(step, "body", ()) for s in _statements(inner)]


def _padded(numbers: Sequence[int], value: int = 0) -> Sequence[int]:
    return (*numbers, *(value,) * AXES)[:AXES]
