"""CUDA from loop nests: over threads, over runs of neighbours, along an axis, of each worker."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from graphc.ir import Value
from graphc.kernels.cuda.shared.kernel_source import THREADS, delinearize
from graphc.kernels.cuda.shared.runs import Runs
from graphc.kernels.loops.along import along_loops
from graphc.kernels.loops.language import Alloc, At, Loop, Nest, Step, Unless, walk
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.body.statement import Address, RegisterProgram, Statement
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


@dataclass(frozen=True)
class WorkerLoops:
    """A nest of one loop over threads or warps, each of which goes through loops of its own.
    `index` is the type of element indices."""

    nest: Nest
    index: str

    def __post_init__(self) -> None:
        verify_nest(self.nest)

    @property
    def loop(self) -> Loop:
        (loop,) = self.nest.body
        assert isinstance(loop, Loop) and loop.kind in ("thread", "warp"), f"no workers: {loop}"
        return loop

    @property
    def counts(self) -> list[int]:
        """Workers along each axis."""
        *outer, last = (self.nest.domain.extents[d] for d in self.loop.axes)
        return [*outer, -(-last // self.loop.step)]

    @property
    def threads(self) -> int:
        """Threads of all workers."""
        return math.prod(self.counts) * (32 if self.loop.kind == "warp" else 1)

    def lines(self) -> list[str]:
        """The statements of a thread."""
        loop, names, last = self.loop, self._names, self.loop.axes[-1]
        looked = {
            names[x.axes[0]] for _, inner in walk(loop.body) for x in inner if isinstance(x, At)
        }
        used = looked | statements_of(loop.body).used(names)
        number, warp = "static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x", []
        if loop.kind == "warp":
            number, warp = f"({number}) / 32", ["const int lane = threadIdx.x % 32;"]
        names = [names[d] for d in loop.axes]
        if loop.step > 1:
            names[-1] = "strip"
            warp.append(f"const {self.index} run{last} = strip * {loop.step};")
        return [
            f"const long long number = {number};",
            f"if (number >= {math.prod(self.counts)}) return;",
            *delinearize("number", names, self.counts, self.index, {*used, "strip"}),
            *(*warp, *self._steps(loop.body, "")),
        ]

    def functor(self, indices: Mapping[str, Sequence[int]], body: Sequence[Step]) -> list[str]:
        """The statements of a body that is given a linear index for the axes of each letter."""
        lines = statements_of(body).lines(self._names, "1")
        return [*self.define(indices, body), *lines]

    def define(self, indices: Mapping[str, Sequence[int]], body: Sequence[Step]) -> list[str]:
        """The definitions of the indices that a body uses, from those of letters."""
        lines, used = list[str](), statements_of(body).used(self._names)
        for letter, axes in indices.items():
            names = [self._names[d] for d in axes]
            extents = [self.nest.domain.extents[d] for d in axes]
            lines += delinearize(letter, names, extents, self.index, used)
        return lines

    def place(self, statement: Statement) -> str:
        """The pointer to the element that a load or a store moves."""
        address = statement.arguments[0]
        assert isinstance(address, Address) and address.access is not None
        return f"{address.pointer} + {address.access.text(self._names)}"

    @property
    def _names(self) -> list[str]:
        return [f"i{d}" for d in range(self.nest.domain.rank)]

    def _steps(self, body: Iterable[Step], lives: str) -> Iterator[str]:
        """The statements of steps. Under the condition `lives`, which begins with an index, are
        those that use the index, and stores to memory that is not the thread's own."""
        memory = {m.name for m in self.nest.memory if m.written}
        for plain, group in groupby(body, lambda s: isinstance(s, Statement)):
            steps = [*group]
            program = statements_of(steps)
            if not plain:
                yield from (line for step in steps for line in self._step(step, lives))
                continue
            lines, used = program.lines(self._names, "1"), program.used(self._names)
            waits = lives and (lives.split()[0] in used or memory.intersection(program.pointers))
            yield from _block(f"if ({lives})", lines) if waits else lines

    def _step(self, step: Step, lives: str) -> Iterator[str]:
        if isinstance(step, Alloc):
            yield f"{C_TYPES[step.dtype]} {step.name}[{step.size}];"
        elif isinstance(step, Unless):
            head = f"if ({step.source} != {step.target})"
            yield from _block(head, self._steps(step.body, lives))
        elif isinstance(step, At):
            yield from self._at(step, lives)
        elif isinstance(step, Loop) and step.kind == "lane":
            yield from self._lanes(step)
        else:
            assert isinstance(step, Loop) and step.kind == "serial", f"not a thread's own: {step}"
            yield from self._votes(step, lives) if step.each > 1 else self._serial(step, lives)

    def _at(self, at: At, lives: str) -> Iterator[str]:
        (axis,), kind = at.axes, self.index
        if axis in self.loop.axes:
            yield from _block(f"if ({at.register} == i{axis})", self._steps(at.body, lives))
            return
        here = f"at >= 0 && at < {self.nest.domain.extents[axis]}"
        index = f"const {kind} i{axis} = static_cast<{kind}>(at);"
        head = f"if (const long long at = {at.register}; {here})"
        yield from _block(head, (index, *self._steps(at.body, lives)))

    def _lanes(self, loop: Loop) -> Iterator[str]:
        """A run that the lanes of a warp share; those that have one index take turns."""
        ((axis,), extents), at = (loop.axes, self.nest.domain.extents), loop.body[-1]
        lives = f"i{axis} < {extents[axis]}" if extents[axis] % loop.step else ""
        yield f"const {self.index} i{axis} = run{axis} + lane;"
        if not isinstance(at, At) or at.axes[0] in self.loop.axes:
            yield from self._steps(loop.body, lives)
            return
        place = at.axes[0]
        yield f"in_turn<{extents[place]}>({lives or 'true'}, [&] {{"
        yield from _indented(self._steps(loop.body[:-1], ""))
        yield f"  return {at.register};"
        yield f"}}, [&]({self.index} i{place}) {{"
        yield from (*_indented(self._steps(at.body, "")), "});")

    def _votes(self, loop: Loop, lives: str) -> Iterator[str]:
        """Iterations of which all lanes of a warp take the same."""
        *find, at = loop.body
        assert isinstance(at, At) and at.axes[0] in self.loop.axes, f"nothing to look up: {loop}"
        lane = self._names[self.loop.axes[-1]]
        assert lane not in statements_of(find).used(self._names), f"an index of a lane: {find}"
        indices, count = {"i": loop.axes}, math.prod(self._extents(loop))
        yield f"each_vote<{count}>(i{at.axes[0]}, [&](int i) {{"
        yield from _indented((*self.functor(indices, find), f"return {at.register};"))
        yield "}, [&](int i) {"
        yield from _indented(self.define(indices, at.body))
        yield from (*_indented(self._steps(at.body, lives)), "});")

    def _serial(self, loop: Loop, lives: str) -> Iterator[str]:
        lines, last = self._steps(loop.body, lives), loop.axes[-1]
        for axis, extent in reversed([*zip(loop.axes, self._extents(loop), strict=True)]):
            name, step = f"i{axis}", f"i{axis}++"
            if axis == last and loop.step > 1:
                name, step = f"run{axis}", f"run{axis} += {loop.step}"
            head = f"for ({self.index} {name} = 0; {name} < {extent}; {step})"
            lines = _block(head, lines)
        yield from lines

    def _extents(self, loop: Loop) -> list[int]:
        return [self.nest.domain.extents[d] for d in loop.axes]


def _block(head: str, lines: Iterable[str]) -> Iterator[str]:
    yield from (f"{head} {{", *_indented(lines), "}")


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
