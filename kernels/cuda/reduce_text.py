"""The text of kernels with reductions: a struct per stage, and a kernel per launch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from graphc.ir import DTYPES, FLOATS, Node
from graphc.kernels.cuda.reduce import Loop, Plan, Result, plan_reduce
from graphc.kernels.cuda.shell import (
    THREADS,
    Signature,
    constant_arrays,
    decomposed,
    index_type,
    kernel_text,
    loads_first,
    make_kernel,
    source,
    symbol_of,
)
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.kernel import GridLaunch, Kernel
from graphc.kernels.program.literals import literal
from graphc.kernels.program.statement import Program, joined
from graphc.ops.fused import Fused
from graphc.ops.logic import C_TYPES

COMBINE = {
    "sum": "{} + {}",
    "prod": "{} * {}",
    "max": "maximum({}, {})",
    "min": "minimum({}, {})",
}


def lower_reduce(node: Node) -> Kernel:
    """The kernel of a fused node with reductions; every value is row-major."""
    op = node.op
    assert isinstance(op, Fused)
    body = op.body
    if all(v.type.size == 0 for v in body.outputs):
        return make_kernel(node, source(node, (), ()), ())
    plan = plan_reduce(body)
    shape = plan.shape
    inplace = inplace_pairs(body, plan.programs, plan.pointers) if shape.splits == 1 else ()
    split = shape.splits > 1
    signature = Signature(plan.pointers, body, inplace, split)
    index = index_type(body)
    launches, kernels = [], []
    for part, lines, splits in _launches(plan, index):
        symbol = symbol_of(node, part)
        kernels.append(kernel_text(symbol, signature, THREADS, lines))
        launches.append(GridLaunch(symbol, (shape.blocks, splits, 1), (THREADS, 1, 1)))
    rows = (
        f"using Rows = Reduce<{index}, {shape.rows}, {shape.columns}, {shape.across}, "
        f"{shape.along}, {str(shape.rows_apart).lower()}, {shape.splits}>;"
    )
    constants = [x for p in plan.programs for x in constant_arrays(p)]
    sections = [constants, *(_struct(s) for s in plan.stages), [rows], *kernels]
    return make_kernel(
        node,
        source(node, ("reduce",), sections),
        launches,
        workspace=_offsets(plan)[-1] if split else 0,
        inplace=inplace,
    )


def _launches(plan: Plan, index: str) -> list[tuple[str, list[str], int]]:
    """For each launch its part of the kernel's name, its statements and its splits."""
    finish, last = _row_outputs(plan), plan.loops[len(plan.stages) :]
    if plan.shape.splits == 1:
        lines = [x for loop in plan.loops for x in _loop(plan, loop, index)]
        return [("kernel", _kernel(plan, index, [*lines, *finish], plan.programs), 1)]
    launches, known = [], list[str]()
    for loop, offset in zip(plan.stages, _offsets(plan), strict=False):
        stage = f"Stage{loop.number}"
        place = f"reinterpret_cast<{stage}*>(workspace + {offset})"
        name = f"stage{loop.number}"
        store = f"rows.store_partial({place}, {name});"
        lines = [*known, *_loop(plan, loop, index, results=False), store]
        part = "kernel" if loop.number == 0 else name
        launches.append((part, _kernel(plan, index, lines, [loop.program]), plan.shape.splits))
        known += [f"const {stage} {name} = rows.combine_partial({place});", *_results(loop)]
    if finish or last:
        lines = [*known, *(x for loop in last for x in _loop(plan, loop, index)), *finish]
        splits = plan.shape.splits if last else 1
        programs = [*(loop.program for loop in last), plan.rows]
        launches.append(("finish", _kernel(plan, index, lines, programs), splits))
    return launches


def _kernel(plan: Plan, index: str, lines: Sequence[str], programs: Iterable[Program]) -> list[str]:
    """The statements of a kernel, with the row's indices that its programs use before them."""
    names, extents = _names(plan), plan.extents[: plan.kept]
    used = joined(programs).used(names)
    rows = decomposed("rows.row", names[: plan.kept], extents, index, used)
    return ["const Rows rows;", *rows, *lines]


def _loop(plan: Plan, loop: Loop, index: str, results: bool = True) -> list[str]:
    """The statements of a loop: what is the same for a whole row, then each column."""
    names = _names(plan)
    rows, columns = loop.program.split(frozenset(range(plan.kept)))

    def define(program: Program) -> list[str]:
        extents = plan.extents[plan.kept :]
        return decomposed("column", names[plan.kept :], extents, index, program.used(names))

    head = rows.lines(names, "1")
    if not loop.results and plan.shape.columns >= 4 * plan.shape.along * plan.shape.splits:
        loads, functors = loads_first(columns, names, f"{index} column", define)
        return [*head, *loads, "rows.each(", *functors]
    inner = columns.lines(names, "1")
    inner += [_combined(r, "results.", _operand(r)) for r in loop.results]
    body = [f"  {line}" for line in (*define(columns), *inner)]
    if not loop.results:
        return [*head, f"rows.each([&]({index} column) {{", *body, "});"]
    stage = f"Stage{loop.number}"
    call = f"const {stage} stage{loop.number} = rows.reduce<{stage}>("
    call += f"[&]({index} column, {stage}& results) {{"
    return [*head, call, *body, "});", *(_results(loop) if results else ())]


def _row_outputs(plan: Plan) -> list[str]:
    """The statements that compute and store what there is once per row."""
    lines = plan.rows.lines(_names(plan), "1")
    return ["if (rows.stores()) {", *(f"  {x}" for x in lines), "}"] if lines else []


def _results(loop: Loop) -> list[str]:
    """The results of a stage as registers."""
    lines = []
    for r in loop.results:
        kind = C_TYPES[r.value.type.dtype]
        field = f"stage{loop.number}.{r.field}"
        lines.append(f"const vec<{kind}> {r.given} = static_cast<{kind}>({field});")
    return lines


def _struct(loop: Loop) -> list[str]:
    """The type of a stage's results."""
    name = f"Stage{loop.number}"
    results = sorted(loop.results, key=_bytes, reverse=True)
    identity = ", ".join(_identity(r) for r in results)
    return [
        f"struct {name} {{",
        *(f"  {_field_type(r)} {r.field};" for r in results),
        f"  GRAPHC_INLINE static {name} identity() {{ return {{{identity}}}; }}",
        f"  GRAPHC_INLINE void combine(const {name}& other) {{",
        *(f"    {_combined(r, '', f'other.{r.field}')}" for r in results),
        "  }",
        "};",
    ]


def _offsets(plan: Plan) -> list[int]:
    """Where each stage's partial results begin in the workspace, and its size, in bytes."""
    offsets = [0]
    for loop in plan.stages:
        size = sum(_bytes(r) for r in loop.results)
        widest = max(_bytes(r) for r in loop.results)
        count = plan.shape.rows * plan.shape.splits
        size = -(-size // widest) * widest * count
        offsets.append(offsets[-1] + -(-size // 16) * 16)
    return offsets


def _names(plan: Plan) -> list[str]:
    """The domain's indices: i of the row, j of the column."""
    return [f"i{d}" if d < plan.kept else f"j{d - plan.kept}" for d in range(len(plan.extents))]


def _bytes(result: Result) -> int:
    """Results are whole words, so that lanes can exchange them."""
    return max(4, result.value.type.numpy_dtype.itemsize)


def _field_type(result: Result) -> str:
    small = result.value.type.numpy_dtype.itemsize < 4
    return "int" if small else C_TYPES[result.value.type.dtype]


def _operand(result: Result) -> str:
    small = result.value.type.numpy_dtype.itemsize < 4
    return f"static_cast<int>({result.operand})" if small else result.operand


def _combined(result: Result, owner: str, other: str) -> str:
    """The statement that combines `other` into the owner's field."""
    field = f"{owner}{result.field}"
    return f"{field} = {COMBINE[result.combine].format(field, other)};"


def _identity(result: Result) -> str:
    dtype = result.value.type.dtype
    if result.combine == "sum":
        return literal(0, dtype)
    if result.combine == "prod":
        return literal(1, dtype)
    sign = -1 if result.combine == "max" else 1
    if dtype in FLOATS:
        return literal(sign * math.inf, dtype)
    limits = np.iinfo(DTYPES[dtype])
    return literal(limits.min if sign < 0 else limits.max, dtype)
