"""The text of a contraction's epilogue: a functor of a sum, of a run of neighbouring ones, or of
those of sections."""

from __future__ import annotations

from graphc.ir import Graph
from graphc.kernels.cuda.contract.column_sums import ColumnSums
from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.shared.kernel_source import index_type
from graphc.kernels.cuda.shared.load_functors import split_loads
from graphc.kernels.cuda.shared.runs import RUN, Runs, runs_of
from graphc.kernels.loops.epilogues import epilogue_nest
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import AffineIndex, Domain
from graphc.kernels.program.body.statement import Address, Call, Load, RegisterProgram, Store
from graphc.kernels.program.epilogue import Epilogue
from graphc.kernels.program.nest import Border
from graphc.ops.pointwise.logic import C_TYPES

PLACE = ("int batch", "int row", "int column")


def kept_axes(problem: Problem) -> tuple[int, ...]:
    """The axes of the epilogue's domain: those of the batch, the rows and the columns."""
    return tuple(i for axes in problem.kept for i in axes)


def epilogue_space(problem: Problem) -> tuple[Domain, tuple[AffineIndex, ...]]:
    """The epilogue's domain, and where the output, or a section of it, lies there."""
    kept, nest = kept_axes(problem), problem.nest
    places = (
        AffineIndex(tuple(a.coefficients[i] for i in kept), a.offset) for a in nest.section_place
    )
    return Domain(tuple(nest.axes[i].extent for i in kept)), tuple(places)


def functor(
    body: Graph, problem: Problem, epilogue: Epilogue, sums: ColumnSums | None, apart: bool
) -> list[str]:
    """The struct `Epilogue` of the arrays, with what is done to a sum, to a run of so many of them,
    or to those of sections; `sums` are added up of runs alone. `apart` from what it loads, which
    it may do before there are sums."""
    nest, index = problem.nest, index_type(body)
    if not problem.limits:  # else indices may be those of padding
        verify_nest(epilogue_nest(epilogue))
    merged, axes = _merged(problem, epilogue)
    indices = [nest.axes[group[-1]].name for group in axes]
    element = C_TYPES[nest.node.output.type.dtype]
    total = f"{element} sum" if nest.sections is None else f"const {element}* sum"
    padding = [_padding(problem, limit) for limit in problem.limits]

    def define(program: RegisterProgram) -> list[str]:
        used, named = program.used(indices), zip(axes, indices, strict=True)
        return [*(_index(problem, g, name, index) for g, name in named if name in used), *padding]

    runs = None if apart else runs_of_sums(problem, epilogue, tails=sums is None)
    one, several, fields = [], [], []
    if runs is not None:
        added = sums.added(epilogue.live_out) if sums else ()
        given, vectors = f"const {element} sum = sums.at[step];", runs.vectors
        sources = {_address(s): f"columns.{s.results[0].name}" for s in vectors}
        text = runs.lines(indices, index, define, [given], added, sources)
        taken = [f"const Run<{element}, {RUN}>& sums", *(["Results& results"] if sums else ())]
        taken += ["const Columns& columns"] if vectors else []
        several = [
            f"  GRAPHC_INLINE void operator()({', '.join((*PLACE, *taken))}) const {{",
            *(line if line[0] == "#" else f"    {line}" for line in text),
            "  }",
        ]
        if vectors:
            place = _index(problem, axes[-1], indices[-1], index)
            fields = _columns(runs, indices, place, nest.extents(axes[-1]))
            several += [
                f"  GRAPHC_INLINE void operator()({', '.join((*PLACE, taken[0]))}) const {{",
                "    (*this)(batch, row, column, sums, columns(column));",
                "  }",
            ]
    if sums is not None:
        fields = sums.fields
    else:
        program, unpacked = merged.program, list[str]()
        if apart:
            first, program = split_loads(program)
            results = [r for s in first.statements for r in s.results]
            names = ", ".join(r.name for r in results)
            fields = [
                "",
                "  struct Loads {",
                *(f"    vec<{C_TYPES[r.dtype]}> {r.name};" for r in results),
                "  };",
                "  GRAPHC_INLINE Loads loaded(int batch, int row, int column) const {",
                *(f"    {line}" for line in (*define(first), *first.lines(indices, "1"))),
                f"    return {{{names}}};",
                "  }",
            ]
            total += ", const Loads& loads"
            unpacked = [f"const auto [{names}] = loads;"] if names else []
        one = [
            f"  GRAPHC_INLINE void operator()(int batch, int row, int column, {total}) const {{",
            *(f"    {line}" for line in (*define(program), *unpacked)),
            *(f"    {line}" for line in program.lines(indices, "1")),
            "  }",
        ]
    return [
        "struct Epilogue {",
        *(
            f"  {'const ' if v in body.inputs else ''}{C_TYPES[v.type.dtype]}* {name};"
            for name, v in epilogue.used.items()
        ),
        *fields,
        "",
        f"  static constexpr int run = {RUN if runs else 1};",
        *one,
        *several,
        "};",
    ]


def _columns(runs: Runs, indices: list[str], place: str, extent: int) -> list[str]:
    """What a run of columns loads of vectors that are not aligned, for all of its rows; and that
    its sums leave as a whole run if nothing else is loaded: what is stored has places for it."""
    fields, loads, lane = [], [], [*indices[:-1], "lane"]
    for load in runs.vectors:
        (name, dtype), address = load.results[0], _address(load)
        assert address.access
        fields.append(f"    Run<{C_TYPES[dtype]}, {RUN}> {name};")
        loads.append(f"{name}.at[step] = {address.pointer}[{address.access.text(lane)}];")
    return [
        "",
        f"  static constexpr bool pads = {str(_pads(runs, extent)).lower()};",
        "  struct Columns {",
        *fields,
        "  };",
        "  GRAPHC_INLINE Columns columns(int column) const {",
        f"    {place}",
        "    Columns found = {};",
        "#pragma unroll",
        f"    for (int step = 0; step < {RUN}; step++) {{",
        f"      const int lane = {indices[-1]} + step;",
        f"      if (lane >= {extent}) continue;",
        *(f"      found.{text}" for text in loads),
        "    }",
        "    return found;",
        "  }",
    ]


def _address(load: Load) -> Address:
    (address,) = load.arguments
    assert isinstance(address, Address)
    return address


def _pads(runs: Runs, extent: int) -> bool:
    """Whether all that is stored has places behind so many columns, and no other image is read."""
    for s in runs.each.statements:
        if isinstance(s, Call) or (isinstance(s, Load) and s not in runs.vectors):
            return False
        if isinstance(s, Store):
            type = runs.used[s.pointers[0]].type
            axis = type.layout.axis
            if (
                axis is None
                or type.shape[axis] != extent
                or type.layout.width % RUN
                or extent % RUN == 0
            ):
                return False
    return True


def _merged(problem: Problem, epilogue: Epilogue) -> tuple[Epilogue, list[tuple[int, ...]]]:
    """The epilogue over as few axes as can be, and what kept axes each of them stands for."""
    kept = kept_axes(problem)
    kinds = [next(n for n, axes in enumerate(problem.kept) if i in axes) for i in kept]
    merged, groups = epilogue.over(kinds)
    return merged, [tuple(kept[d] for d in group) for group in groups]


def runs_of_sums(problem: Problem, epilogue: Epilogue, tails: bool = False) -> Runs | None:
    """How the epilogue goes through runs of neighbouring columns, with `tails` where the columns
    are not whole runs; None if it does not."""
    nest, columns = problem.nest, problem.columns
    merged, axes = _merged(problem, epilogue)
    wide = [i for i in columns if nest.axes[i].extent > 1]
    if nest.sections is not None or not wide or not axes or axes[-1][-1] != wide[-1]:
        return None
    padded = any(limit.axes & {*columns} for limit in problem.limits)
    tails = tails and nest.extents(axes[-1]) == nest.extents(columns)
    if nest.node.output.type.numpy_dtype.itemsize != 4 or padded:
        return None
    return runs_of(merged, merged.program, shortest=True, tails=tails)


def _index(problem: Problem, group: tuple[int, ...], name: str, index: str) -> str:
    """The definition of the index of merged kept axes, from that of the batch, row or column."""
    return f"const {index} {name} = {_index_text(problem, group)};"


def _index_text(problem: Problem, group: tuple[int, ...]) -> str:
    nest = problem.nest
    for whole, axes in zip(("batch", "row", "column"), problem.kept, strict=True):
        if group[0] in axes:
            after = axes[axes.index(group[-1]) + 1 :]
            step, extent = nest.extents(after), nest.extents(group)
            text = f"{whole} / {step}" if step > 1 else whole
            return text if step * extent == nest.extents(axes) else f"{text} % {extent}"
    raise AssertionError(f"{group} is kept")


def _padding(problem: Problem, limit: Border) -> str:
    """Leaves what lies beyond a limit as it is."""
    factors = ((i, limit.coefficients[i]) for i in sorted(limit.axes))
    terms = (f"{_index_text(problem, (i,))}{f' * {c}' * (c > 1)}" for i, c in factors)
    return f"if ({' + '.join(terms)} >= {limit.extent}) return;"
