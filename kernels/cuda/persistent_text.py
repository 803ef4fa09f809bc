"""The launches of a contraction whose blocks hold their columns' operand (persistent.cuh)."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir import ROW_MAJOR
from graphc.kernels.cuda.contract import Problem
from graphc.kernels.cuda.own_patches import PATCH, count, owned
from graphc.kernels.cuda.persistent_tile import PersistentTile
from graphc.kernels.cuda.shell import Launches
from graphc.kernels.program.epilogue import Epilogue


def launch_persistent(
    launches: Launches,
    problem: Problem,
    tile: PersistentTile,
    epilogue: Epilogue,
    operands: Sequence[str],
    whole: str,
) -> None:
    """Add the launch, or those of partial sums and of what adds them, and what blocks hold.
    `operands` and `whole` are the text of the operands and of the epilogue."""
    (_, m, columns, _), body, (rows, weights) = problem.sizes, launches.node.body, operands
    n = columns // tile.strips
    across, blocks = -(-n // PATCH), count(m, n)
    a, b = (x.read.input for x in (problem.a, problem.b))
    name = "Exact" if tile.exact else "Persistent"
    own = owned(body, epilogue.program, epilogue.pointers, (m, n))
    if tile.parts == 1:
        product = f"{name}Product<Problem, {tile.strips}>"
        launches.add(
            [f"multiply_held<{product}>(block, {rows}, {weights}, {whole});"],
            blocks,
            owned=tuple(i for i in own if i not in (a, b)),
        )
    else:
        product = f"{name}Parts<Problem, {tile.parts}>"
        partial = "const auto partial = reinterpret_cast<float*>(workspace);"
        parts = f"multiply_held<{product}>(block, {rows}, {weights}, partial);"
        # Arguments that a launch does not touch at all are owned too.
        values = range(len(body.inputs) + len(body.outputs))
        others = (b,) if _by_patches(problem) else (a, b)
        launches.add([partial, parts], blocks, owned=tuple({*values} - {*others}))
    launches.through_patches((m, n), multiple=across)
    launches.hold([f"{product}::hold(held, block, {weights});"], f"{product}::Weights")
    if tile.parts > 1:
        finish = f"{product}::finish(block, partial, {whole});"
        launches.add([partial, finish], blocks, "finish", owned=own)
        launches.through_patches((m, n), multiple=across)


def _by_patches(problem: Problem) -> bool:
    """Whether the rows' operand has a row for each row, with all of k side by side."""
    a, (_, m, _, k) = problem.a, problem.sizes
    steps = [[(f.step, f.stride) for f in factors] for factors in (a.outer, a.depth)]
    plain = a.read.type.layout == ROW_MAJOR and a.read.offset == 0 and a.read.type.size == m * k
    return plain and steps == [[(1, k)], [(1, 1)]]
