"""The text of kernels with reductions: a struct per stage, and a kernel per launch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphc.ir import DTYPES
from graphc.kernels.cuda.reduce import Shape, choose_shape
from graphc.kernels.cuda.shell import (
    Launches,
    constant_arrays,
    decomposed,
    index_type,
    loads_first,
)
from graphc.kernels.program.access import Domain
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.literals import literal
from graphc.kernels.program.rows import Loop, Rows, Sum, find_rows, reduced_shape
from graphc.kernels.program.statement import Program, joined
from graphc.ops.fused import KernelNode
from graphc.ops.logic import C_TYPES


def lower_reduce(node: KernelNode) -> Kernel:
    """The kernel of a fused node with reductions; every value is row-major."""
    body = node.body
    rows = find_rows(body, Domain(reduced_shape(body)), apart=True)
    shape = choose_shape(rows)
    split = shape.splits > 1
    inplace = () if split else inplace_pairs(body, [rows.elements, rows.after], rows.pointers)
    text = _Text(rows, shape, index_type(body))
    launches = Launches(node, rows.pointers, text.offsets[-1] if split else 0, inplace)
    for part, lines, splits in text.launches():
        launches.add(lines, shape.blocks, part, splits)
    settings = (
        f"using Rows = Reduce<{text.index}, {shape.rows}, {shape.columns}, {shape.across}, "
        f"{shape.along}, {str(shape.rows_apart).lower()}, {shape.splits}>;"
    )
    structs = (_struct(k, loop) for k, loop in enumerate(text.stages))
    return launches.kernel(("reduce",), [constant_arrays(rows.whole), *structs, [settings]])


@dataclass(frozen=True)
class _Text:
    """The statements of the launches. A stage is a loop that has sums."""

    rows: Rows
    shape: Shape
    index: str

    @property
    def stages(self) -> list[Loop]:
        return [loop for loop in self.rows.loops if loop.sums]

    @property
    def offsets(self) -> list[int]:
        """Where each stage's partial results begin in the workspace, and its size, in bytes."""
        offsets = [0]
        for loop in self.stages:
            sizes = list(map(_bytes, loop.sums))
            size = -(-sum(sizes) // max(sizes)) * max(sizes) * self.shape.rows * self.shape.splits
            offsets.append(offsets[-1] + -(-size // 16) * 16)
        return offsets

    @property
    def names(self) -> list[str]:
        """The domain's indices: i of the row, j of the column."""
        kept, reduced = self.rows.kept_axes, self.rows.reduced_axes
        return [
            f"i{kept.index(d)}" if d in kept else f"j{reduced.index(d)}"
            for d in range(self.rows.domain.rank)
        ]

    def launches(self) -> list[tuple[str, list[str], int]]:
        """For each launch its part of the kernel's name, its statements and its splits."""
        rows, splits = self.rows, self.shape.splits
        count, finish = len(self.stages), self._row_outputs()
        rest = [x for k in range(count, len(rows.loops)) for x in self._loop(k)]
        if splits == 1:
            lines = [x for k in range(count) for x in self._loop(k)]
            return [("kernel", self._kernel([*lines, *rest, *finish], [rows.whole]), 1)]
        launches, known = [], list[str]()
        for k, loop in enumerate(self.stages):
            place = f"reinterpret_cast<Stage{k}*>(workspace + {self.offsets[k]})"
            store = f"rows.store_partial({place}, stage{k});"
            lines = [*known, *self._loop(k), store]
            part = f"stage{k}" if k else "kernel"
            launches.append((part, self._kernel(lines, [loop.whole]), splits))
            known.append(f"const Stage{k} stage{k} = rows.combine_partial({place});")
            known += _results(k, loop)
        if finish or rest:
            programs = [*(loop.whole for loop in rows.loops[count:]), rows.after]
            lines = self._kernel([*known, *rest, *finish], programs)
            launches.append(("finish", lines, splits if rest else 1))
        return launches

    def _kernel(self, lines: Sequence[str], programs: Iterable[Program]) -> list[str]:
        """The statements of a kernel, with the row's indices that its programs use before them."""
        row = self._indices("rows.row", self.rows.kept_axes, joined(programs))
        return ["const Rows rows;", *row, *lines]

    def _indices(self, whole: str, axes: Sequence[int], program: Program) -> list[str]:
        """Definitions of the indices along `axes` that the program uses, from the linear index."""
        names, extents = self.names, [self.rows.domain.extents[d] for d in axes]
        return decomposed(whole, [names[d] for d in axes], extents, self.index, program.used(names))

    def _loop(self, number: int) -> list[str]:
        """The statements of a loop: what is the same for a whole row, then each column."""
        loop, names, shape = self.rows.loops[number], self.names, self.shape

        def define(program: Program) -> list[str]:
            return self._indices("column", self.rows.reduced_axes, program)

        head = loop.before.lines(names, "1")
        if not loop.sums and shape.columns >= 4 * shape.along * shape.splits:
            loads, functors = loads_first(loop.body, names, f"{self.index} column", define)
            return [*head, *loads, "rows.each(", *functors]
        inner = [*define(loop.body), *loop.body.lines(names, "1")]
        inner += [s.joined("results.", _operand(s)) for s in loop.sums]
        body = [f"  {line}" for line in inner]
        if not loop.sums:
            return [*head, f"rows.each([&]({self.index} column) {{", *body, "});"]
        stage = f"Stage{number}"
        call = f"const {stage} stage{number} = rows.reduce<{stage}>("
        call += f"[&]({self.index} column, {stage}& results) {{"
        results = _results(number, loop) if shape.splits == 1 else ()
        return [*head, call, *body, "});", *results]

    def _row_outputs(self) -> list[str]:
        """The statements that compute and store what there is once per row."""
        lines = self.rows.after.lines(self.names, "1")
        return ["if (rows.stores()) {", *(f"  {x}" for x in lines), "}"] if lines else []


def _results(number: int, loop: Loop) -> list[str]:
    """The results of a stage as registers."""
    kinds = ((s.result, C_TYPES[s.dtype]) for s in loop.sums)
    return [f"const vec<{t}> {r} = static_cast<{t}>(stage{number}.{r});" for r, t in kinds]


def _struct(number: int, loop: Loop) -> list[str]:
    """The type of a stage's results."""
    name, sums = f"Stage{number}", sorted(loop.sums, key=_bytes, reverse=True)
    identity = ", ".join(literal(s.identity, s.dtype) for s in sums)
    return [
        f"struct {name} {{",
        *(f"  {'int' if _small(s) else C_TYPES[s.dtype]} {s.result};" for s in sums),
        f"  GRAPHC_INLINE static {name} identity() {{ return {{{identity}}}; }}",
        f"  GRAPHC_INLINE void combine(const {name}& other) {{",
        *(f"    {s.joined('', f'other.{s.result}')}" for s in sums),
        "  }",
        "};",
    ]


def _small(sum: Sum) -> bool:
    """Whether it is held as an int: results are whole words, so that lanes can exchange them."""
    return DTYPES[sum.dtype].itemsize < 4


def _bytes(sum: Sum) -> int:
    return max(4, DTYPES[sum.dtype].itemsize)


def _operand(sum: Sum) -> str:
    return f"static_cast<int>({sum.operand})" if _small(sum) else sum.operand
