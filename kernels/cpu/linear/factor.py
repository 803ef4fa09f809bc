"""Lower factorizations of matrices for the CPU: chunks own matrices, or share a large one."""

from __future__ import annotations

from graphc.base.target import CPU, Target
from graphc.kernels.cpu.linear.shared_factor import is_shared, shared_phases
from graphc.kernels.cpu.shared.kernel_source import (
    argument_order,
    array_text,
    chunk_count,
    entry,
    make_kernel,
)
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.factor import find_factor
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES

FLOPS_PER_NANOSECOND = CPU.rates.flops / 20_000
"""Estimated speed for sizing chunks: a twentieth of a core's peak."""


def lower_factor(node: KernelNode, target: Target) -> Kernel:
    """The kernel of a body with one op on matrices of f32 or f64."""
    factor = find_factor(node)
    check_counts(node, matrices=factor.units)
    order, inputs = argument_order(node), set(node.body.inputs)
    pointers = {
        v: f"(({'const ' * (v in inputs)}{C_TYPES[v.type.dtype]}*)arguments[{i}])"
        for v, i in order.items()
    }
    workspace = f"(char*)arguments[{len(order)}]"
    head = ["using namespace factors;", "const Alone team;"]
    if is_shared(factor):
        shared, phases = shared_phases(factor)
        lines = [*head, *factor.definitions("0", pointers, workspace), *shared]
        sections = (array_text(factor.arrays), entry(node, lines, "phase"))
        return make_kernel(node, sections, phases, factor.workspace, factor.flops)
    chunks = chunk_count(factor.flops / FLOPS_PER_NANOSECOND, factor.units)
    workspace += f" + chunk * {factor.workspace}L"
    inner = factor.lines("unit", pointers, workspace)
    lines = [
        *head,
        f"const long begin = chunk * {factor.units}L / {chunks};",
        f"const long end = (chunk + 1) * {factor.units}L / {chunks};",
        "for (long unit = begin; unit < end; unit++) {",
        *(f"  {line}" for line in inner),
        "}",
    ]
    sections = (array_text(factor.arrays), entry(node, lines))
    return make_kernel(node, sections, (chunks,), chunks * factor.workspace, factor.flops)
