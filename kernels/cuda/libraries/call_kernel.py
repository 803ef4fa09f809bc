"""Kernels whose launch is a library call."""

from __future__ import annotations

from graphc.ir import Node
from graphc.kernels.cuda.libraries.convolution import convolution_of
from graphc.kernels.cuda.libraries.product import product_of
from graphc.kernels.cuda.lower import gaps_of
from graphc.kernels.program.calls import Call
from graphc.kernels.program.kernel import Kernel, moved_bytes, origin_of
from graphc.kernels.program.nest import contraction_nest
from graphc.ops.fused import KernelNode


def call_of(node: Node) -> Call | None:
    """The library call that can replace a node's kernel; None if there is none."""
    return product_of(node) or convolution_of(node)


def call_kernel(node: KernelNode, call: Call, library: str, rank: int, workspace: int) -> Kernel:
    """The kernel that calls `library` with the algorithm of this `rank` in its heuristic's
    proposals, which takes `workspace` bytes."""
    names = [f"%{v.name}" for v in (*node.body.inputs, *node.body.outputs)]
    described = f"{library}, algorithm {rank + 1} of its heuristic, {workspace} bytes of workspace"
    lines = [f"// {described}:", *(f"//   {line}" for line in call.text(names).splitlines())]
    return Kernel(
        node.op.kernel,
        node.op.template,
        "\n".join([*lines, ""]),
        phases=(),
        workspace=workspace,
        flops=contraction_nest(node.body, lanes=False).flops,
        bytes=moved_bytes(node),
        gaps=gaps_of(node),
        call=call,
        rank=rank,
        choice=described,
        note=f"a call of {described}",
        origin=origin_of(node),
    )
