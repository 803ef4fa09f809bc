"""The text of what adds the parts into which the k of a contraction is cut: see split_k.cuh."""

from __future__ import annotations

from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.contract.epilogue import kept_axes
from graphc.kernels.cuda.contract.split_k import lanes_of
from graphc.kernels.cuda.shared.kernel_source import FEW_THREADS
from graphc.kernels.cuda.shared.runs import RUN
from graphc.ops.pointwise.logic import C_TYPES

FOLLOWING = 8
"""Parts of k from which on the launch that adds them follows them, not the output."""


def partial_sums(problem: Problem) -> str:
    """The statement that gives the workspace the type of sums."""
    element = C_TYPES[problem.nest.node.output.type.dtype]
    return f"const auto partial = reinterpret_cast<{element}*>(workspace);"


def in_order(problem: Problem) -> bool:
    """Whether [batch][row][column] is the output's order."""
    wide = [i for i in problem.order if problem.nest.axes[i].extent > 1]
    return wide == [i for i in kept_axes(problem) if problem.nest.axes[i].extent > 1]


def places_of_sums(problem: Problem, splits: int) -> list[str]:
    """What a problem's struct says of the launch that adds so many parts: how many sums it adds at
    once, and where they are."""
    run, at = _finish(problem, splits)
    head = "  GRAPHC_INLINE static long long sum_at(unsigned i) { return "
    return [f"  static constexpr int run = {run};", f"{head}{at}; }}"]


def second_launch(
    problem: Problem, splits: int, epilogue: str, ascending: bool = False
) -> tuple[list[str], int, str]:
    """The statements of the launch that adds so many parts, of `FEW_THREADS`; its blocks; and what
    it is called. A thread adds all parts of a sum if they are to be `ascending`."""
    batches, m, n, _ = problem.sizes
    itemsize = problem.nest.node.output.type.numpy_dtype.itemsize
    lanes = 1 if ascending else lanes_of(splits, itemsize)
    run, _ = _finish(problem, splits)
    lines = [
        partial_sums(problem),
        f"finish_splits<Problem, {lanes}>(block, partial, {epilogue});",
    ]
    threads = batches * m * n * lanes // run
    return lines, -(-threads // FEW_THREADS), "finish"


def _sum_at(problem: Problem) -> str:
    """Where in [batch][row][column] the sum is that is number i in the output's order."""
    nest, steps = problem.nest, problem.steps
    terms, behind = [], 1
    for axis in reversed(problem.order):
        extent = nest.axes[axis].extent
        text = f"i / {behind} % {extent}" if behind > 1 else f"i % {extent}"
        terms += [f"{text} * {steps[axis]}"] * (extent > 1)
        behind *= extent
    return " + ".join(reversed(terms)) or "i"


def _finish(problem: Problem, splits: int) -> tuple[int, str]:
    """How many sums side by side in [batch][row][column] are added at once, and where sum number i
    is: few parts follow the output, where that has another order; many are read as they lie."""
    few = splits < FOLLOWING and not in_order(problem)
    whole = problem.nest.node.output.type.numpy_dtype.itemsize == 4
    whole = whole and not few and problem.sizes[2] % RUN == 0
    return RUN if whole else 1, _sum_at(problem) if few else "i"
