"""Lower a fused node to the kernel of a target.

The runtime asks for kernels here and imports no printer of a device.
"""

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
"""By device: lists the kernels that may compute a contraction, the best by the model first."""
CALLS_PER_NODE = 8
"""Python calls that a walk through a body makes per node; more than expression.py nests."""


def lower(
    node: Node, target: Target, in_loop: bool = False, aligned_with: GridLaunch | None = None
) -> Kernel:
    """The kernel that computes a fused node or a relayout on `target.device`; cuda and sim share
    their text.

    `in_loop` says that the node belongs to a loop's body. There `aligned_with` is a launch whose
    blocks own rows or patches, if the loop has one: a pointwise kernel divides its work among
    blocks in the same way.
    """
    if isinstance(node, KernelNode):
        with _deep_enough(node):
            if target.device == "cpu":
                return lower_cpu(node, target)
            return lower_cuda(node, target, in_loop=in_loop, aligned_with=aligned_with)
    assert node.op.name == "relayout", f"{node.op.name} is not a kernel"
    return (lower_relayout if target.device == "cpu" else lower_cuda)(node, target)


def lower_step(node: KernelNode, all_steps: Kernel, target: Target) -> Kernel | None:
    """The kernel that computes one time step of what `all_steps` computes, if it gives the same
    bits; else None. CPU kernels never promise that."""
    if target.device == "cpu":
        return None
    with _deep_enough(node):
        kernel = lower_cuda(node, target, all_steps.summation_order)
    order = all_steps.summation_order
    same_bits = kernel.summation_order == order and (order or all_steps.template == "pointwise")
    return kernel if same_bits else None


def candidates(node: Node, target: Target, in_loop: bool = False) -> list[Kernel]:
    """The kernels that may compute a node, `lower`'s choice first.

    Only contractions have several. In a loop, a kernel whose blocks own rows has no alternatives:
    they would make all blocks wait for each other in every iteration, which the time of a single
    kernel does not show.
    """
    first = lower(node, target, in_loop)
    owns = in_loop and any(launch.owned for launch in first.launches)
    if owns or not isinstance(node, KernelNode) or node.op.template != "contract":
        return [first]
    with _deep_enough(node):
        return CANDIDATES[target.device](node, target, in_loop)


@contextmanager
def _deep_enough(node: KernelNode) -> Iterator[None]:
    """Raise Python's recursion limit for walks along the longest chain of the node's body."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + CALLS_PER_NODE * len(node.body.nodes))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
