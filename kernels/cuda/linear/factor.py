"""Lower factorizations of matrices to factor.cuh: blocks own matrices."""

from __future__ import annotations

from graphc.kernels.cuda.shared.kernel_source import WARP, constant_arrays
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.body.statement import RegisterProgram
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.factor import MOST_COLUMNS, find_factor
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode

MOST_THREADS = 256
"""The most threads that share a matrix."""


def lower_factor(node: KernelNode) -> Kernel:
    """The kernel of a body with one op on matrices of f32 or f64; every value is row-major."""
    factor = find_factor(node)
    check_counts(node, matrices=factor.units)
    pointers = Identifiers(factor.arrays).pointers(node.body)
    launches = Launches(node, pointers, factor.units * factor.workspace)
    wide = MOST_COLUMNS if factor.inner.op.name == "triangular_solve" else factor.rows
    threads = max(WARP, min(MOST_THREADS, -(-wide // WARP) * WARP))
    workspace = f"workspace + blockIdx.x * {factor.workspace}L"
    lines = ["using namespace factors;", "const Threads team;"]
    lines += factor.lines("blockIdx.x", pointers, workspace)
    launches.add(lines, factor.units, threads=threads)
    constants = constant_arrays(RegisterProgram((), factor.arrays, {}))
    return launches.kernel(("linear/factor",), [constants], factor.flops)
