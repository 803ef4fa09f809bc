"""Lower pointwise bodies to plain C: one function, with a loop nest per group of outputs."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.kernels.c.loop_printer import function_text
from graphc.kernels.loops.language import Memory, Nest
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.rewrites import hoist, split_last
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.pieces import space
from graphc.kernels.program.pointwise_nest import group_outputs, make_pointwise_nest
from graphc.ops.fused import KernelNode

HEADER = '#include "c/window.h"\n#include "c/elementary.h"\n'
"""What printed functions include, from the folder of kernels."""


def lower_pointwise(node: KernelNode) -> str:
    """The C function `NAME_kernel` of the node's inputs and outputs, in row-major memory."""
    return "".join(lower_all((node,)))


def lower_all(nodes: Sequence[KernelNode]) -> list[str]:
    """The text of a file: the headers, and a function for each node."""
    return [HEADER, *map(_function, nodes)]


def _function(node: KernelNode) -> str:
    body = node.body
    names = Identifiers()
    pointers = names.pointers(body)
    nests: list[Nest] = []
    for outputs in group_outputs(body):
        domain = Domain(space(body, outputs[0]) or (1,))
        if domain.size:
            part = make_pointwise_nest(body, outputs, domain, pointers, names).merged
            nests.append(split_last(hoist(plain_nest(part))))
    for nest in nests:
        verify_nest(nest)
    written = set(body.outputs)
    parameters = [
        Memory(pointers[v], v.type.dtype, v.type.size, v in written)
        for v in (*body.inputs, *body.outputs)
    ]
    return "\n" + function_text(f"{node.op.kernel}_kernel", nests, parameters)
