"""Describe attention and its gradients."""

from __future__ import annotations

import struct

from graphc.base.target import Target
from graphc.ir import Node
from graphc.ir.types import DTYPES
from graphc.kernels.cpu.attention.attend import register_blocks, unit_counts
from graphc.kernels.cpu.shared.kernel_source import argument_order
from graphc.kernels.prebuilt.description import Prebuilt
from graphc.kernels.program.attend_shape import (
    AXES,
    OPERANDS,
    AttentionProblem,
    AttentionResult,
    find_problem,
)
from graphc.kernels.program.kernel import Kernel
from graphc.ops.attention import _Attention
from graphc.ops.fused import KernelNode

ROUNDED = ("", "tf32", "bf16", "f16")
"""The dtypes that weights are rounded to, in the order of their numbers."""
ABSENT, WITHIN = -1, -2
"""The memories of operands that are not there, and of those behind the description."""
RESULTS = 3
"""The most results of an op."""
_HEAD = struct.Struct("<17q2d")
_OPERAND = struct.Struct("<6q")
_SIZE = -(-(_HEAD.size + (len(OPERANDS) + RESULTS) * _OPERAND.size) // 64) * 64


def describe_attend(node: Node, kernel: Kernel, target: Target) -> Prebuilt | None:
    """The description of attention, or of its gradients; None in f64."""
    assert isinstance(node, KernelNode)
    problem = find_problem(node)
    if problem.dtype != "f32":
        return None
    op = problem.node.op
    assert isinstance(op, _Attention)
    blocks = register_blocks(problem, target.lanes)
    mask = problem.operands.get("mask")
    head = _HEAD.pack(
        problem.forward,
        kernel.phases[0],
        *problem.extents[1:],
        *blocks,
        *unit_counts(problem, blocks, target.lanes),
        op.causal,
        mask is not None and mask.source.type.dtype == "bool",
        ROUNDED.index(op.rounded),
        op.seed & 0xFFFFFFFF,
        op.number,
        op.scale,
        op.dropout,
    )
    constants, places = _constants(problem)
    order = argument_order(node)
    operands = []
    for role in OPERANDS:
        operand = problem.operands.get(role)
        if operand is None:
            operands.append(_OPERAND.pack(ABSENT, 0, 0, 0, 0, 0))
            continue
        source = operand.source
        number = order.get(source, WITHIN)
        before = places[problem.pointers[source]] if number == WITHIN else -kernel.offset(number)
        offset = operand.offset * DTYPES[source.type.dtype].itemsize + before
        strides = (0 if a is None else operand.strides[a] for a in AXES.get(role, (None,) * 4))
        operands.append(_OPERAND.pack(number, offset, *strides))
    results = [_result(r, problem, node, kernel) for r in problem.results]
    results += [_OPERAND.pack(ABSENT, 0, 0, 0, 0, 0)] * (RESULTS - len(results))
    data = head + b"".join(operands) + b"".join(results)
    return Prebuilt("graphc_attend", data.ljust(_SIZE, b"\0") + constants)


def _constants(problem: AttentionProblem) -> tuple[bytes, dict[str, int]]:
    """The constants behind the description, and where each lies."""
    data, places = b"", dict[str, int]()
    for name, array in problem.arrays.items():
        places[name] = _SIZE + len(data)
        data += array.tobytes()
        data = data.ljust(-(-len(data) // 64) * 64, b"\0")
    return data, places


def _result(
    result: AttentionResult, problem: AttentionProblem, node: KernelNode, kernel: Kernel
) -> bytes:
    """Where a result is stored: strides of n, head, row and column."""
    if result.target is None:
        return _OPERAND.pack(ABSENT, 0, 0, 0, 0, 0)
    number = argument_order(node)[result.target]
    offset = result.offset * DTYPES[problem.dtype].itemsize - kernel.offset(number)
    n, row, head = result.strides
    if problem.forward and result is problem.results[1]:  # logs, [n, head, row]
        head, row = row, head
    return _OPERAND.pack(number, offset, n, head, row, 1)
