"""Describe pointwise kernels: a program of strips for every loop nest."""

from __future__ import annotations

import struct

from graphc.base.target import Target
from graphc.ir import Node
from graphc.kernels.cpu.pointwise.pointwise import find_nests
from graphc.kernels.cpu.shared.kernel_source import argument_order
from graphc.kernels.prebuilt.description import Prebuilt
from graphc.kernels.prebuilt.places import Memory
from graphc.kernels.prebuilt.strips import strip_program
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode


def describe_pointwise(node: Node, kernel: Kernel, target: Target) -> Prebuilt | None:
    """The description of a pointwise kernel; None if a statement has no instruction."""
    assert isinstance(node, KernelNode)
    order, count = argument_order(node), len(node.inputs)
    inplace = [(i, count + o) for i, o in kernel.inplace]
    parts, programs, work = list[tuple[int, int, int]](), list[bytes](), 0
    nests = [n for n in find_nests(node.body, target.lanes) if n.domain.size]
    at = -(-24 * (1 + len(nests)) // 64) * 64
    for nest in nests:
        memory = {
            name: Memory(order[value], value.type.dtype, kernel.offset(order[value]))
            for name, value in nest.used.items()
        }
        program = strip_program(nest.domain, nest.program, memory, inplace)
        if program is None:
            return None
        share = nest.domain.size * (1 + len(nest.program.statements))
        parts.append((work, work + share, at))
        programs.append(program)
        work, at = work + share, at + len(program)
    head = struct.pack("<3q", work, kernel.phases[0], len(parts))
    head += b"".join(struct.pack("<3q", *part) for part in parts)
    data = head + bytes(-len(head) % 64) + b"".join(programs)
    return Prebuilt("graphc_pointwise", data)
