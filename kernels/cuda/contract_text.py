"""The text of a contraction's kernels: accesses, the epilogue, and one launch or two."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from graphc.ir import Graph, Node, Value
from graphc.kernels.access import Domain, Place, merge_axes
from graphc.kernels.cuda.contract import Problem, Tile, choose_tile, make_problem
from graphc.kernels.cuda.shell import (
    Signature,
    constant_arrays,
    index_type,
    inplace_pairs,
    kernel_text,
    make_kernel,
    source,
    store_outputs,
    symbol_of,
)
from graphc.kernels.expression import C_TYPES, Names, Program, Walk
from graphc.kernels.kernel import GridLaunch, Kernel
from graphc.kernels.nest import contraction_nest
from graphc.ops.fused import Fused

FINISH_THREADS = 128


def lower_contract(node: Node) -> Kernel:
    """The kernel of a fused node with a contraction; every value is row-major."""
    op = node.op
    assert isinstance(op, Fused)
    problem = make_problem(contraction_nest(op.body))
    batches, m, n, k = problem.sizes
    count = batches * m * n
    if count == 0:
        return make_kernel(node, source(node, (), ()), ())
    output = problem.nest.node.output.type
    itemsize = output.numpy_dtype.itemsize
    tile, splits = choose_tile(batches, m, n, k, itemsize)
    epilogue = _epilogue(op.body, problem, C_TYPES[output.dtype])
    operands = [op.body.inputs[x.read.input] for x in (problem.a, problem.b)]
    inplace = epilogue.inplace(op.body, operands)
    shared = frozenset(v for pair in inplace for v in pair)
    signature = Signature(
        epilogue.pointers, op.body.inputs, op.body.outputs, shared, workspace=splits > 1
    )
    arguments = ", ".join(epilogue.pointers[v] for v in operands)
    kernels, launches = _kernels(node, problem, tile, splits, epilogue, signature, arguments)
    sections = (
        epilogue.constants,
        problem.a.text("RowAccess", _comment(problem, problem.rows, "row")),
        problem.b.text("ColumnAccess", _comment(problem, problem.columns, "column")),
        _shape(problem, tile, splits),
        epilogue.text,
        *kernels,
    )
    return make_kernel(
        node,
        source(node, ("contract", "memory"), sections),
        launches,
        workspace=splits * count * itemsize if splits > 1 else 0,
        flops=problem.nest.flops,
        inplace=[(op.body.inputs.index(x), op.body.outputs.index(y)) for x, y in inplace],
    )


def _kernels(
    node: Node,
    problem: Problem,
    tile: Tile,
    splits: int,
    epilogue: _Epilogue,
    signature: Signature,
    operands: str,
) -> tuple[list[list[str]], list[GridLaunch]]:
    """The kernel, or that of the parts and the one that adds them, and how they are launched."""
    batches, m, n, _ = problem.sizes
    tiles = -(-m // tile.m) * -(-n // tile.n) * batches
    symbol, finish = symbol_of(node), symbol_of(node, "finish")
    whole = f"Epilogue{{{', '.join(epilogue.members)}}}"
    launches = [GridLaunch(symbol, (tiles, splits, 1), (tile.threads, 1, 1))]
    if splits == 1:
        lines = [f"Contract<Problem, Tile>::run({operands}, {whole});"]
        return [kernel_text(symbol, signature, tile.threads, lines, tile.blocks)], launches
    element = C_TYPES[problem.nest.node.output.type.dtype]
    partial = f"const auto partial = reinterpret_cast<{element}*>(workspace);"
    part = "StorePartial<Problem>{partial}"
    first = [partial, f"Contract<Problem, Tile>::run({operands}, {part});"]
    second = [partial, f"finish_splits<Problem>(partial, {whole});"]
    blocks = -(-batches * m * n // FINISH_THREADS)
    launches.append(GridLaunch(finish, (blocks, 1, 1), (FINISH_THREADS, 1, 1)))
    kernels = [
        kernel_text(symbol, signature, tile.threads, first, tile.blocks),
        kernel_text(finish, signature, FINISH_THREADS, second),
    ]
    return kernels, launches


@dataclass(frozen=True)
class _Epilogue:
    """The epilogue's functor: its program and text, the pointers of the kernel and those that are
    members of the functor."""

    program: Program
    pointers: dict[Value, str]
    members: tuple[str, ...]
    text: list[str]
    constants: list[str]

    def inplace(self, body: Graph, operands: Sequence[Value]) -> tuple[tuple[Value, Value], ...]:
        """Operands are read by many blocks: they are never overwritten."""
        pairs = inplace_pairs(body, [self.program], self.pointers)
        return tuple((x, y) for x, y in pairs if x not in operands)


def _epilogue(body: Graph, problem: Problem, element: str) -> _Epilogue:
    nest = problem.nest
    kept = nest.kept
    domain = Domain(tuple(nest.axes[i].extent for i in kept))
    places = tuple(Place(tuple(a.coefficients[i] for i in kept), a.offset) for a in nest.output)
    names = Names()
    pointers = {v: names.fresh(v.name, "data") for v in (*body.inputs, *body.outputs)}
    sums = {nest.node.output: "sum"}
    walk = Walk(body, domain, pointers, names, given=sums)
    shapes = {v.type.shape for v in body.outputs}
    assert shapes == {nest.node.output.type.shape}, "an epilogue keeps the shape"
    store_outputs(walk, [(v, places) for v in body.outputs])
    program = walk.program()
    kinds = [next(n for n, axes in enumerate(problem.kept) if i in axes) for i in kept]
    _, groups = merge_axes(domain, program.accesses, kinds)
    index = index_type(body)
    axes = [tuple(kept[d] for d in group) for group in groups]
    lines = program.merged(groups).lines([nest.axes[group[-1]].name for group in axes], "1")
    members = {
        name: f"{'const ' if v in body.inputs else ''}{C_TYPES[v.type.dtype]}* {name};"
        for v, name in pointers.items()
        if any(re.search(rf"\b{name}\b", line) for line in lines)
    }
    text = [
        "struct Epilogue {",
        *(f"  {member}" for member in members.values()),
        "",
        f"  GRAPHC_INLINE void operator()(int batch, int row, int column, {element} sum) const {{",
        *(f"    {line}" for group in axes for line in _index(problem, group, index, lines)),
        *(f"    {line}" for line in lines),
        "  }",
        "};",
    ]
    return _Epilogue(program, pointers, tuple(members), text, constant_arrays(program))


def _index(problem: Problem, group: tuple[int, ...], index: str, lines: Sequence[str]) -> list[str]:
    """The definition of the index of merged kept axes, from that of the batch, row or column."""
    nest = problem.nest
    name = nest.axes[group[-1]].name
    if not any(re.search(rf"\b{name}\b", line) for line in lines):
        return []
    for whole, axes in zip(("batch", "row", "column"), problem.kept, strict=True):
        if group[0] in axes:
            after = axes[axes.index(group[-1]) + 1 :]
            step, extent = nest.extents(after), nest.extents(group)
            text = f"{whole} / {step}" if step > 1 else whole
            first = step * extent == nest.extents(axes)
            return [f"const {index} {name} = {text if first else f'{text} % {extent}'};"]
    raise AssertionError(f"{name} is kept")


def _shape(problem: Problem, tile: Tile, splits: int) -> list[str]:
    batches, m, n, k = problem.sizes
    return [
        "struct Problem {",
        f"  static constexpr int M = {m}, N = {n}, K = {k};",
        f"  static constexpr int batches = {batches}, splits = {splits};",
        f"  using Sum = {C_TYPES[problem.nest.node.output.type.dtype]};",
        "  using A = RowAccess;",
        "  using B = ColumnAccess;",
        "};",
        f"using Tile = {tile};",
    ]


def _comment(problem: Problem, axes: Sequence[int], what: str) -> str:
    def listed(group: Sequence[int]) -> str:
        return " ".join(f"{problem.nest.axes[i].name}={problem.nest.axes[i].extent}" for i in group)

    batch = f", batch {listed(problem.batch)}" if problem.batch else ""
    return f"{what} {listed(axes) or 'none'}, k {listed(problem.nest.summed)}{batch}"
