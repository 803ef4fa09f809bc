"""From a fused node to CUDA C++."""

from __future__ import annotations

from graphc.ir import Node
from graphc.kernels.cuda.contract import lower_contract
from graphc.kernels.cuda.pointwise import lower_pointwise
from graphc.kernels.kernel import Kernel
from graphc.ops.fused import Fused

TEMPLATES = {"contract": lower_contract, "pointwise": lower_pointwise}


def lower_cuda(node: Node) -> Kernel:
    """The CUDA kernel of a fused node, or of its parts' launches. Every value is row-major."""
    assert isinstance(node.op, Fused)
    return TEMPLATES[node.op.template](node)
