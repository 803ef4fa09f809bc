"""Lower a fused node to C++."""

from __future__ import annotations

from graphc.base.target import Target
from graphc.ir import Node
from graphc.kernels.cpu.attention.attend import lower_attend
from graphc.kernels.cpu.contract.contract import lower_contract
from graphc.kernels.cpu.index.index import lower_index, lower_scatter
from graphc.kernels.cpu.linear.factor import lower_factor
from graphc.kernels.cpu.pointwise.pointwise import lower_pointwise
from graphc.kernels.cpu.pointwise.transpose import lower_relayout
from graphc.kernels.cpu.prefix.prefix import lower_prefix
from graphc.kernels.cpu.prefix.sort import lower_sort
from graphc.kernels.cpu.reduce.reduction_kernel import lower_reduce
from graphc.kernels.cpu.shared.kernel_source import entry, make_kernel
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.offsets import moved_inputs
from graphc.ops.fused import KernelNode

TEMPLATES = {
    "attend": lower_attend,
    "contract": lower_contract,
    "factor": lower_factor,
    "index": lower_index,
    "pointwise": lower_pointwise,
    "prefix": lower_prefix,
    "reduce": lower_reduce,
    "scatter": lower_scatter,
    "sort": lower_sort,
}
"""The lowering function of each template."""


def lower_cpu(node: Node, target: Target) -> Kernel:
    """The C++ kernel of a fused node or a relayout."""
    if not isinstance(node, KernelNode):
        assert node.op.name == "relayout", f"{node.op.name} is not a kernel"
        return lower_relayout(node, target)
    if not any(v.type.size for v in node.outputs):
        return make_kernel(node, [entry(node, [])], phases=(1,))
    moved, offsets = moved_inputs(node)
    kernel = TEMPLATES[node.op.template](moved, target)
    return kernel if not offsets else kernel.at_offsets(offsets)
