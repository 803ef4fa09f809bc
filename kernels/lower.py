"""Lowering: a fused node and a target become a kernel. What runs kernels asks for them here, and
imports no printer of a device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from graphc.base.target import Target
from graphc.ir import Node
from graphc.kernels.cpu.contract.contract import contract_candidates
from graphc.kernels.cpu.lower import lower_cpu
from graphc.kernels.cpu.pointwise.transpose import lower_relayout
from graphc.kernels.cuda.joined.joined_launch import joined_kernel as joined_kernel
from graphc.kernels.cuda.libraries.call_kernel import call_kernel as call_kernel
from graphc.kernels.cuda.libraries.call_kernel import call_of as call_of
from graphc.kernels.cuda.lower import cuda_candidates, lower_cuda
from graphc.kernels.cuda.lower import lower_members as lower_members
from graphc.kernels.program.kernel import GridLaunch, Kernel
from graphc.ops.fused import KernelNode

CANDIDATES: dict[str, Callable[[KernelNode, Target, bool], list[Kernel]]] = {
    "cpu": lambda node, target, looped: list(contract_candidates(node, target)),
    "cuda": cuda_candidates,
    "sim": cuda_candidates,
}
CALLS_PER_NODE = 8
"""More than expression.py nests for one node of a body."""


def lower(
    node: Node, target: Target, looped: bool = False, along: GridLaunch | None = None
) -> Kernel:
    """The kernel that computes a fused node or a relayout on `target.device`: cpu, or cuda and sim,
    which share their text. A `looped` one is of a loop's body, where blocks
    of a pointwise kernel go `along` with those of a launch that own something, if there is one."""
    if isinstance(node, KernelNode):
        with _deep_enough(node):
            if target.device == "cpu":
                return lower_cpu(node, target)
            return lower_cuda(node, target, looped=looped, along=along)
    assert node.op.name == "relayout", f"{node.op.name} is not a kernel"
    return (lower_relayout if target.device == "cpu" else lower_cuda)(node, target)


def lower_step(node: KernelNode, whole: Kernel, target: Target) -> Kernel | None:
    """The kernel of a part of the rows of what `whole` computes, whose bits are those that `whole`
    makes of these rows; None if nothing promises that. A CPU's tiles promise nothing."""
    if target.device == "cpu":
        return None
    with _deep_enough(node):
        kernel = lower_cuda(node, target, whole.order)
    alike = kernel.order == whole.order and (whole.order or whole.template == "pointwise")
    return kernel if alike else None


def candidates(node: Node, target: Target, looped: bool = False) -> list[Kernel]:
    """The kernels that may compute a node, the best by the model, which is `lower`'s, first. Only
    contractions have several, but none beside one of a loop whose blocks own rows: all blocks would
    wait for each other in every iteration, which no time of a kernel alone shows."""
    first = lower(node, target, looped)
    owns = looped and any(launch.owned for launch in first.launches)
    if owns or not isinstance(node, KernelNode) or node.op.template != "contract":
        return [first]
    with _deep_enough(node):
        return CANDIDATES[target.device](node, target, looped)


@contextmanager
def _deep_enough(node: KernelNode) -> Iterator[None]:
    """Let Python recurse as deep as the body's longest chain: a walk from an output to the inputs
    takes a few calls for each node on its way."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + CALLS_PER_NODE * len(node.body.nodes))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
