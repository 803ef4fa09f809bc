"""CUDA from loop nests: loops over threads, over runs of neighbours, and along an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from graphc.ir import Value
from graphc.kernels.cuda.shared.kernel_source import THREADS, delinearize
from graphc.kernels.cuda.shared.runs import Runs
from graphc.kernels.loops.along import along_loops
from graphc.kernels.loops.language import Loop, Nest, Step, walk
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.body.statement import RegisterProgram
from graphc.ops.pointwise.logic import C_TYPES


@dataclass(frozen=True)
class ThreadLoops:
    """A nest of one loop over threads, with what is the same for all of them in front. `memory`
    are the values behind its pointers, `index` is the type of element indices. Blocks have
    `threads`, or, with `patches`, 16 x 16 elements of so many rows and columns each."""

    nest: Nest
    memory: Mapping[str, Value]
    index: str
    threads: int = THREADS
    patches: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        verify_nest(self.nest)

    @property
    def loop(self) -> Loop:
        loop = self.nest.body[-1]
        assert isinstance(loop, Loop) and loop.kind == "thread", f"no loop over threads: {loop}"
        return loop

    @property
    def per_thread(self) -> int:
        """Elements of a thread."""
        return self.loop.step * self.loop.each

    @property
    def blocks(self) -> int:
        return -(-self.nest.domain.size // (self.threads * self.per_thread))

    def lines(self, block: str, count: str) -> list[str]:
        """The statements of a thread of block number `block`, where there are `count` elements."""
        head = statements_of(self.nest.body[:-1]).lines(self._names, "1")
        if self.loop.step > 1:
            return [*head, *self._runs(block, count)]
        if self.loop.each > 1:
            return [*head, *self._loads_ahead(block, count)]
        elements = statements_of(self.loop.body)
        body = [*self._define(elements), *elements.lines(self._names, "1")]
        threads = f"<{self.threads}>" if self.threads != THREADS else ""
        call = f"each{threads}({count}, {block}"
        if self.patches:
            rows, columns = self.patches
            call = f"each_of_patch<{rows}, {columns}>({block}"
        return [*head, f"{call}, [&]({self.index} i) {{", *(f"  {line}" for line in body), "});"]

    def _runs(self, block: str, count: str) -> list[str]:
        """A run of neighbours for each thread; all runs are whole."""
        extents = self.nest.domain.extents
        assert extents[-1] % self.loop.step == 0, f"{extents} in runs of {self.loop.step}"
        lines = run_lines(self.loop, self._names, self.memory, self.index, self._define)
        body = [line if line[0] == "#" else f"  {line}" for line in lines]
        call = f"each_run<{self.loop.step}>({count}, {block}, [&]({self.index} i) {{"
        return [call, *body, "});"]

    def _loads_ahead(self, block: str, count: str) -> list[str]:
        """The type `Loads` of what a thread loads for an element, and a call with two functors: one
        loads, the other does the rest."""
        steps, ahead = self.loop.body, self.loop.ahead
        loads, rest = statements_of(steps[:ahead]), statements_of(steps[ahead:])
        results = [r for s in loads.statements for r in s.results]
        registers = ", ".join(r.name for r in results)
        unpacked = [f"const auto [{registers}] = loads;"] if results else []
        first, second = loads.lines(self._names, "1"), rest.lines(self._names, "1")
        return [
            "struct Loads {",
            *(f"  vec<{C_TYPES[r.dtype]}> {r.name};" for r in results),
            "};",
            f"each<{self.loop.each}>({count}, {block},",
            f"    [&]({self.index} i) {{",
            *(
                f"      {x}"
                for x in (*self._define(loads), *first, f"return Loads{{{registers}}};")
            ),
            "    },",
            f"    [&]({self.index} i, const Loads& loads) {{",
            *(f"      {x}" for x in (*unpacked, *self._define(rest), *second)),
            "    });",
        ]

    @property
    def _names(self) -> list[str]:
        """The domain's indices."""
        rank = self.nest.domain.rank
        return [f"i{d}" for d in range(rank)] if rank > 1 else ["i"] * rank

    def _define(self, program: RegisterProgram) -> list[str]:
        """The definitions of the indices that `program` uses, from i."""
        names, extents = self._names, self.nest.domain.extents
        return delinearize("i", names, extents, self.index, program.used(names) - {"i"})


def run_lines(
    loop: Loop,
    names: Sequence[str],
    memory: Mapping[str, Value],
    index: str = "int",
    define: Callable[[RegisterProgram], list[str]] = lambda _: [],
) -> list[str]:
    """The statements of a run of neighbours, at the indices `names` of its first; `define` gives
    the definitions of those that statements use."""
    *once, lanes = loop.body
    assert isinstance(lanes, Loop) and lanes.kind == "lane", f"no loop over lanes: {lanes}"
    runs = Runs(loop.step, statements_of(once), statements_of(lanes.body), memory)
    return runs.lines([*names], index, define)


def axis_indices(nest: Nest) -> list[str]:
    """The indices of a nest along an axis: i0, i1, ... of the row, j along the axis."""
    axes = along_loops(nest).rows.axes
    return [f"i{axes.index(d)}" if d in axes else "j" for d in range(nest.domain.rank)]


def row_lines(nest: Nest, row: str, index: str, program: RegisterProgram) -> list[str]:
    """The definitions of the row's indices that `program` uses, from its number `row`."""
    extents = [nest.domain.extents[d] for d in along_loops(nest).rows.axes]
    names = [f"i{d}" for d in range(len(extents))]
    return delinearize(row, names, extents, index, program.used(axis_indices(nest)))


def statements_of(steps: Iterable[Step]) -> RegisterProgram:
    """The statements of steps, those in loops over lanes included."""
    return RegisterProgram(tuple(s for s, _ in walk(steps)), {}, {})
