"""A fused contraction for contract.cuh: accesses, a tile, splits, and the epilogue.

The kept axes of the nest become the rows of the product (axes that only one operand has), its
columns (axes that only the other has) and the batch (the others); the summed axes become k. The
operand that has the output's fastest axis gives the columns, so that neighbouring threads store
neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from graphc.ir import Graph, Node, Value
from graphc.kernels.access import Domain, Place, merge_axes, row_major_strides
from graphc.kernels.cuda.access import OperandAccess, operand_access
from graphc.kernels.cuda.shell import (
    BLOCKS,
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
from graphc.kernels.nest import Nest, Read, contraction_nest
from graphc.ops.fused import Fused

LEAST_STEPS = 4
"""Steps of the pipeline that a split is worth."""

FINISH_THREADS = 128


@dataclass(frozen=True)
class Tile:
    """`m` x `n` sums per block, `tm` x `tn` of them per thread; `k` per step; `stages` pairs of
    shared tiles; `blocks` per multiprocessor. `speed` is what it reaches of the best one."""

    m: int
    n: int
    k: int
    tm: int
    tn: int
    stages: int
    blocks: int
    speed: float

    @property
    def threads(self) -> int:
        return self.m // self.tm * (self.n // self.tn)

    def __str__(self) -> str:
        return f"Registers<{self.m}, {self.n}, {self.k}, {self.tm}, {self.tn}, {self.stages}>"


TILES = (
    Tile(128, 128, 16, 8, 8, 2, 2, 1.0),
    Tile(128, 64, 16, 8, 4, 2, 2, 0.9),
    Tile(64, 128, 16, 4, 8, 2, 2, 0.9),
    Tile(64, 64, 16, 4, 4, 3, 4, 0.8),
    Tile(32, 64, 16, 4, 4, 3, 6, 0.7),
    Tile(64, 32, 16, 4, 4, 3, 6, 0.7),
    Tile(32, 32, 16, 2, 4, 3, 6, 0.5),
    Tile(16, 64, 16, 4, 4, 3, 8, 0.5),
    Tile(64, 16, 16, 4, 2, 3, 8, 0.4),
)
"""Without measurements, from the ratio of multiply-adds to shared reads."""


@dataclass(frozen=True)
class Problem:
    """The contraction as a batch of matrix products: rows, columns and batch are axes of `nest`."""

    nest: Nest
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    a: OperandAccess
    b: OperandAccess

    @property
    def kept(self) -> tuple[tuple[int, ...], ...]:
        """The axes of the batch, the rows and the columns."""
        return self.batch, self.rows, self.columns

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batches, M, N, K."""
        groups = (*self.kept, self.nest.summed)
        batches, m, n, k = (self.nest.extents(axes) for axes in groups)
        return batches, m, n, k


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
    element = C_TYPES[output.dtype]
    tile, splits = choose_tile(batches, m, n, k)
    epilogue = _epilogue(op.body, problem, element)
    operands = [op.body.inputs[x.read.input] for x in (problem.a, problem.b)]
    inplace = epilogue.inplace(op.body, operands)
    signature = Signature(
        epilogue.pointers,
        op.body.inputs,
        op.body.outputs,
        frozenset(v for pair in inplace for v in pair),
        workspace=splits > 1,
    )
    arguments = ", ".join(epilogue.pointers[v] for v in operands)
    symbol = symbol_of(node)
    store = f"Epilogue{{{', '.join(epilogue.members)}}}"
    partial = f"const auto partial = reinterpret_cast<{element}*>(workspace);"
    launches = [
        GridLaunch(
            symbol,
            (-(-m // tile.m) * -(-n // tile.n) * batches, splits, 1),
            (tile.threads, 1, 1),
        )
    ]
    if splits == 1:
        first = [f"Contract<Problem, Tile>::run({arguments}, {store});"]
        finish = []
    else:
        split = "StorePartial<Problem>{partial}"
        first = [partial, f"Contract<Problem, Tile>::run({arguments}, {split});"]
        last = symbol_of(node, "finish")
        lines = [partial, f"finish_splits<Problem>(partial, {store});"]
        finish = kernel_text(last, signature, FINISH_THREADS, lines)
        grid = (-(-count // FINISH_THREADS), 1, 1)
        launches.append(GridLaunch(last, grid, (FINISH_THREADS, 1, 1)))
    sections = (
        epilogue.constants,
        problem.a.text("RowAccess", _comment(problem, problem.rows, "row")),
        problem.b.text("ColumnAccess", _comment(problem, problem.columns, "column")),
        _shape(problem, tile, splits),
        epilogue.text,
        kernel_text(symbol, signature, tile.threads, first, tile.blocks),
        finish,
    )
    return make_kernel(
        node,
        source(node, ("contract", "memory"), sections),
        launches,
        workspace=splits * count * output.numpy_dtype.itemsize if splits > 1 else 0,
        flops=problem.nest.flops,
        inplace=[(op.body.inputs.index(x), op.body.outputs.index(y)) for x, y in inplace],
    )


def make_problem(nest: Nest) -> Problem:
    """Which axes are rows, columns and batch, and how the operands are read so."""
    a, b = nest.a, nest.b
    only_a = tuple(i for i in nest.kept if _reads(a, i) and not _reads(b, i))
    only_b = tuple(i for i in nest.kept if _reads(b, i) and not _reads(a, i))
    batch = tuple(i for i in nest.kept if i not in only_a + only_b)
    strides = output_strides(nest)
    wide = [i for i in nest.kept if nest.axes[i].extent > 1]
    fastest = min(wide, key=lambda i: strides[i], default=None)
    if fastest in only_a:
        a, b, only_a, only_b = b, a, only_b, only_a
    return Problem(
        nest,
        batch,
        only_a,
        only_b,
        operand_access(nest, a, batch, only_a, nest.summed),
        operand_access(nest, b, batch, only_b, nest.summed),
    )


def choose_tile(batches: int, m: int, n: int, k: int) -> tuple[Tile, int]:
    """The tile and the number of splits of k that should be fastest on a device of `BLOCKS`
    blocks: padding, the tile's own speed and idle multiprocessors are what costs time."""
    best: tuple[float, Tile, int] | None = None
    for tile in TILES:
        tiles = -(-m // tile.m) * -(-n // tile.n) * batches
        steps = -(-k // tile.k)
        most = max(1, min(steps // LEAST_STEPS, -(-BLOCKS // tiles)))
        for splits in {1, most}:
            busy = min(1.0, tiles * splits / BLOCKS)
            work = tiles * tile.m * tile.n * max(k, tile.k) / (tile.speed * busy)
            # Partial sums are stored and read again, at about 100 multiply-adds each.
            partial = 200 * batches * m * n * splits if splits > 1 else 0
            cost = work + partial
            if best is None or cost < best[0]:
                best = (cost, tile, splits)
    assert best is not None
    return best[1], best[2]


def output_strides(nest: Nest) -> dict[int, int]:
    """Elements of the row-major output from one index of each kept axis to the next."""
    strides = row_major_strides(nest.node.output.type.shape)
    return {
        i: sum(s * a.coefficients[i] for s, a in zip(strides, nest.output, strict=True))
        for i in nest.kept
    }


def _reads(read: Read, axis: int) -> bool:
    return read.depends_on(axis) or any(axis in b.axes for b in read.borders)


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
