"""Lower attention and its gradients for the CPU, with blocks of queries or keys in the lanes."""

from __future__ import annotations

from graphc.base.target import CPU, Target
from graphc.kernels.cpu.shared.kernel_source import (
    argument_order,
    array_text,
    chunk_count,
    entry,
    make_kernel,
)
from graphc.kernels.program.attend_shape import AttentionProblem, find_problem, shape_text
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES

FLOPS_PER_NANOSECOND = CPU.rates.flops / 2000
"""Estimated speed for sizing chunks: half of a core's peak."""


def lower_attend(node: KernelNode, target: Target) -> Kernel:
    """The kernel of a body with one attention or attention_grad of f32 or f64."""
    problem = find_problem(node)
    blocks = register_blocks(problem, target.lanes)
    units = unit_counts(problem, blocks, target.lanes)
    chunks = chunk_count(problem.flops / FLOPS_PER_NANOSECOND, sum(units))
    shape = shape_text(problem, QUERY_REGISTERS=blocks[0], KEY_REGISTERS=blocks[1])
    sections = (
        array_text(problem.arrays),
        "\n".join([*shape, ""]),
        _shell(node, problem, units, chunks),
    )
    header = "attention/attend" if problem.forward else "attention/attend_gradient"
    return make_kernel(node, sections, (chunks,), flops=problem.flops, header=header)


def register_blocks(problem: AttentionProblem, width: int) -> tuple[int, int]:
    """Registers of queries and of keys per block, so that 6 rows of sums fill the register file; an
    f64 register counts as two."""
    most = (4 if width == 16 else 2) // (2 if problem.dtype == "f64" else 1)
    t, u = (max(1, min(most, -(-problem.extents[axis] // width))) for axis in (3, 4))
    return t, u


def unit_counts(problem: AttentionProblem, blocks: tuple[int, int], width: int) -> tuple[int, int]:
    """Numbers of query blocks and key blocks that are computed."""
    n, h, g, t, u, _, _ = problem.extents
    queries = n * h * -(-t // (blocks[0] * width))
    keys = n * g * -(-u // (blocks[1] * width))
    if problem.forward:
        return queries, 0
    first, *others = problem.used_results
    return queries if first else 0, keys if any(others) else 0


def _shell(node: KernelNode, problem: AttentionProblem, units: tuple[int, int], chunks: int) -> str:
    """The kernel's entry function."""
    pointers = {
        v: f"({C_TYPES[v.type.dtype]}*)arguments[{i}]" for v, i in argument_order(node).items()
    }
    writes = problem.writes(pointers)
    reads = problem.reads({v: f"(const {p[1:]}" for v, p in pointers.items()})
    total = sum(units)
    lines = [
        f"const attend::Arrays<Shape> arrays{{{', '.join(reads[:4])},",
        f"    {', '.join(reads[4:])}}};",
        f"const long begin = chunk * {total}L / {chunks}, end = (chunk + 1) * {total}L / {chunks};",
    ]
    queries, keys = units
    if problem.forward:
        lines.append(f"attend::forward<Shape>(arrays, {', '.join(writes)}, begin, end);")
    elif queries:
        call = f"attend::query_gradient<Shape>(arrays, {writes[0]}"
        lines.append(f"{call}, begin, least(end, {queries}));")
    if keys:
        call = f"attend::key_gradient<Shape>(arrays, {writes[1]}, {writes[2]}"
        lines.append(f"{call}, most(begin, {queries}) - {queries}, end - {queries});")
    return entry(node, lines)
