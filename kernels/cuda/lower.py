"""Lower a fused node to CUDA C++."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import Node, Type
from graphc.kernels.cuda.attention.attend import lower_attend
from graphc.kernels.cuda.contract.contract_kernel import contract_candidates, lower_contract
from graphc.kernels.cuda.contract.grouped_gemm import lower_group, members_of
from graphc.kernels.cuda.contract.options import ContractOptions
from graphc.kernels.cuda.index.index import lower_index, lower_scatter
from graphc.kernels.cuda.linear.factor import lower_factor
from graphc.kernels.cuda.pointwise.pointwise import lower_pointwise
from graphc.kernels.cuda.pointwise.relayout import conversion, lower_relayout
from graphc.kernels.cuda.prefix.prefix import lower_prefix
from graphc.kernels.cuda.prefix.sort import lower_sort
from graphc.kernels.cuda.reduce.reduction_kernel import lower_reduce
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.program.counts import check_grids
from graphc.kernels.program.kernel import GridLaunch, Kernel
from graphc.kernels.program.offsets import moved_inputs
from graphc.ops.fused import KernelNode, kernels_in

TEMPLATES: dict[str, Callable[..., Kernel]] = {
    "attend": lower_attend,
    "contract": lower_contract,
    "factor": lower_factor,
    "group": lower_group,
    "index": lower_index,
    "pointwise": lower_pointwise,
    "prefix": lower_prefix,
    "reduce": lower_reduce,
    "relayout": lower_relayout,
    "scatter": lower_scatter,
    "sort": lower_sort,
}
"""The lowering function of each template."""


def lower_cuda(
    node: Node,
    target: Target,
    order: str = "",
    in_loop: bool = False,
    aligned_with: GridLaunch | None = None,
) -> Kernel:
    """The CUDA kernel of a fused node or a relayout.

    Values are row-major, or images and weights with channels last. A contraction keeps to the
    summation `order` where it can, if one is given. `in_loop` and `aligned_with` are those of
    `lower`. Raises CompileError if the kernel would count beyond its limits.
    """
    if not isinstance(node, KernelNode):
        node = conversion(node)
    if not any(v.type.size for v in node.outputs):
        return Launches(node, {}).kernel((), ())
    # The body of a loop is one text for all iterations as it is.
    node, offsets = (node, ()) if in_loop else moved_inputs(node)
    lower = TEMPLATES[node.op.template]
    if lower is lower_pointwise:
        kernel = lower_pointwise(node, aligned_with)
    elif lower is lower_reduce:
        kernel = lower_reduce(node, target.draws_tickets and not in_loop)
    elif lower is lower_attend:
        kernel = lower_attend(node, target.draws_tickets and not in_loop, target.tensor_cores)
    elif lower is lower_contract:
        kernel = lower_contract(node, ContractOptions.of(target, order, in_loop))
    else:
        kernel = lower(node)
    return _complete(node, kernel, offsets)


def lower_members(group: Node) -> list[Kernel]:
    """The kernels of a group's nodes: separate launches with the group's bits."""
    assert isinstance(group, KernelNode)
    nodes = kernels_in(group.body)
    return [_complete(n, kernel) for n, kernel in zip(nodes, members_of(nodes), strict=True)]


def cuda_candidates(node: KernelNode, target: Target, in_loop: bool = False) -> list[Kernel]:
    """The kernels that may compute a fused contraction, `lower_cuda`'s first."""
    if not any(v.type.size for v in node.outputs):
        return [lower_cuda(node, target)]
    node, offsets = (node, ()) if in_loop else moved_inputs(node)
    found = contract_candidates(node, ContractOptions.of(target, looped=in_loop))
    return [_complete(node, kernel, offsets) for kernel in found]


def _complete(node: KernelNode, kernel: Kernel, offsets: tuple[int, ...] = ()) -> Kernel:
    """The kernel with its inputs' offsets and its outputs' gaps. Raises CompileError if a grid is
    too large."""
    check_grids(node, kernel.launches)
    kernel = kernel.at_offsets(offsets) if offsets else kernel
    return replace(kernel, gaps=gaps_of(node))


def gaps_of(node: Node) -> tuple[tuple[int, ...], ...]:
    """`Kernel.gaps` for the outputs of a node."""
    gaps = tuple(_gap(v.type) for v in node.outputs)
    return gaps if any(gaps) else ()


def _gap(type: Type) -> tuple[int, ...]:
    """The bytes of a pixel and of its channels, if padding separates pixels; else ()."""
    axis, width, size = type.layout.axis, type.layout.width, type.numpy_dtype.itemsize
    return (
        () if axis is None or type.shape[axis] == width else (width * size, type.shape[axis] * size)
    )
