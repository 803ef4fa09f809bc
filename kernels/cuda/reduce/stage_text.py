"""Print kernels with reductions: a struct per stage, and a kernel per launch."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from graphc.base.cached import cached_property
from graphc.ir import DTYPES
from graphc.kernels.cuda.reduce.reduce import Shape
from graphc.kernels.cuda.reduce.run_text import RunText
from graphc.kernels.cuda.reduce.stages import bytes_of_stage, operand_of, stage_struct
from graphc.kernels.cuda.shared.loop_printer import statements_of
from graphc.kernels.cuda.shared.runs import Runs, element_text, source_of
from graphc.kernels.loops.language import Loop
from graphc.kernels.loops.rows import RowLoop
from graphc.kernels.program.body.reduce import Reduce
from graphc.kernels.program.body.statement import Address, Call, RegisterProgram, joined
from graphc.ops.pointwise.logic import C_TYPES

AHEAD_BYTES, HELD_BYTES = 128, 192
"""Bytes that a thread loads ahead of use (`AHEAD_BYTES`), and the most together with results of
earlier loops (`HELD_BYTES`); more do not fit its registers."""
GATHERED_BYTES = 12 << 20
"""Bytes of partial results that all blocks read from L2 in the time of a launch."""
GATHERING = 2
"""Neighbouring threads of a launch that combines partial results: they read sectors of 32 bytes,
and there are as many blocks as possible."""


@dataclass(frozen=True)
class ReduceText(RunText):
    """Prints the launches of a reduction. A stage is a loop that has sums."""

    partial_count: int = 0
    """Partial results of the first stage that the workspace already holds; 0 for none."""
    partial_offset: int = 0
    """Byte offset of these partial results in the workspace."""
    tickets: bool = False
    """Whether the last block of a row to store partial results finishes the row (tickets.cuh), if
    what remains is once per row."""
    prologue: tuple[str, ...] = ()
    """Statements at the start of a single launch."""

    @property
    def workspace(self) -> int:
        """Bytes of the workspace."""
        return self.offsets[-1] if self.shape.splits > 1 or self.partial_count else 0

    @property
    def types(self) -> list[list[str]]:
        """The type definitions that the launches use."""
        shapes = {"Rows": self.shape} | ({"Parts": self.gathering} if self.gathers else {})
        settings = [
            f"using {name} = Reduce<Block, {self.index}, {x.rows}, {x.columns}, {x.across}, "
            f"{x.along}, {str(x.rows_apart).lower()}, {x.splits}, {x.length}>;"
            for name, x in shapes.items()
        ]
        return [*(stage_struct(k, loop) for k, loop in enumerate(self.stages)), settings]

    @property
    def stages(self) -> list[RowLoop]:
        """The loops that have sums."""
        return [loop for loop in self.rows.loops if loop.sums]

    @property
    def offsets(self) -> list[int]:
        """The byte offset of each stage's partial results in the workspace, and the workspace's
        size."""
        offsets = [self.partial_offset + self.partial_count * self.part_bytes]
        for number, loop in enumerate(self.stages):
            parts = 1 if self.partial_count and number == 0 else self.shape.splits
            size = bytes_of_stage(loop) * self.shape.rows * parts
            offsets.append(offsets[-1] + -(-size // 16) * 16)
        return offsets

    @property
    def part_bytes(self) -> int:
        """Bytes of one given partial result, for all rows."""
        return bytes_of_stage(self.stages[0]) * self.shape.rows

    @property
    def gathers(self) -> bool:
        """Whether a launch of its own combines the given partial results, which each block would
        read."""
        bytes_again = self.partial_count * self.part_bytes * self.shape.splits
        return bytes_again > GATHERED_BYTES

    @property
    def gathering(self) -> Shape:
        """The division of given partial results among the blocks that combine them."""
        along = self.shape.threads // GATHERING
        return replace(self.shape, across=GATHERING, along=along, splits=1)

    @property
    def draws_tickets(self) -> bool:
        """Whether the last blocks finish: a launch precedes them, and no loop without sums
        follows."""
        looped = len(self.stages) > (1 if self.partial_count else 0)
        once = len(self.rows.loops) == len(self.stages) and self.rows.after.statements
        return self.tickets and self.shape.splits > 1 and looped and bool(once)

    def launches(self, counters: str = "") -> list[tuple[str, list[str], int]]:
        """For each launch its suffix of the kernel's name, its statements and its splits. Tickets
        use `counters`."""
        rows, splits = self.rows, self.shape.splits
        count = len(self.stages)
        finish = self._row_outputs("first_of_row" if counters else "stores")
        rest = [x for k in range(count, len(rows.loops)) for x in self._loop(k)]
        if splits == 1 and not self.partial_count:
            lines = [x for k in range(count) for x in self._loop(k)]
            lines = [*self.prologue, *self._row_loads(), *lines, *rest, *finish]
            return [("kernel", self._kernel(lines, [rows.program]), 1)]
        launches, known, before = [], list[str](), 0
        for k, loop in enumerate(self.stages):
            kind, place = self._stage(k), f"workspace + {self.offsets[k]}"
            lines = [f"rows.store_partial({place}, stage{k});"]
            part = f"stage{k}" if k else "kernel"
            how, given = "combine", f"workspace + {self.partial_offset}, {self.partial_count}"
            if k or not self.partial_count:
                lines = self._kernel([*known, *self._loop(k), *lines], [loop.program])
                launches.append((part, lines, splits))
            elif self.gathers:
                first = f"const auto stage0 = rows.combine_partial<{kind}>({given});"
                launches.append(("gather", ["const Parts rows(block);", first, *lines], 1))
                how = "load"
            else:
                place = given
            before = len(known)
            known.append(f"const {kind} stage{k} = rows.{how}_partial<{kind}>({place});")
            known += self._results(k)
        if counters:
            name, lines, splits = launches[-1]
            last = f"if (!draws_last({counters} + block.x(), {splits})) return;"
            ends = [*known[before:], *finish]
            launches[-1] = name, [*lines, last, "{", *(f"  {x}" for x in ends), "}"], splits
        elif finish or rest:
            programs = [*(loop.program for loop in rows.loops[count:]), rows.after]
            lines = self._kernel([*known, *rest, *finish], programs)
            launches.append(("finish", lines, splits if rest else 1))
        return launches

    def _stage(self, number: int) -> str:
        """The type of a stage's results."""
        return f"Several<Stage{number}, {self.shape.length}>" if self._several else f"Stage{number}"

    def _kernel(self, lines: Sequence[str], programs: Iterable[RegisterProgram]) -> list[str]:
        """The statements of a kernel, after definitions of the row's indices that its programs
        use."""
        row = self._indices("rows.row", self.rows.kept_axes, joined(programs))
        return ["const Rows rows(block);", *row, *lines]

    def _row_loads(self) -> list[str]:
        """The statements that load what all loops read."""
        if not self.shape.keeps_row:
            return []
        struct, functor = self._loading("Loads", self._kept_loads)
        steps = f"{self.shape.register_steps}, {self.shape.shared_steps}"
        kept = f"Held<Loads, {steps}, Rows::threads> held;"
        named = [f"const auto load_step = {functor[0]}", *functor[1:-1], "};"]
        lines = [*struct, *named, kept]
        if self.shape.shared_steps:
            lines.append(f"static_assert(sizeof(Loads) == {self._kept_bytes});")
            lines.append("held.memory = dynamic_shared;")
        return [*lines, "rows.hold(held, load_step);"]

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory for kept loads."""
        return (
            self.shape.shared_steps
            and self.shape.shared_steps * self.shape.threads * self._kept_bytes
        )

    @property
    def _kept_bytes(self) -> int:
        """Bytes of a step's kept loads as a struct."""
        end = widest = 0
        for size in map(self._bytes, self._kept_loads):
            own = min(size, 16)
            end, widest = -(-end // own) * own + size, max(widest, own)
        return -(-end // widest) * widest

    @cached_property
    def _kept_loads(self) -> dict[Address, str]:
        """The loads that a thread keeps for all loops."""
        return self._loads(s for loop in self.plain.loops for s in loop.body.statements)

    def _loop(self, number: int) -> list[str]:
        """The statements of a loop: what is the same for a whole row, then each column."""
        loop, plain = self.rows.loops[number], self.plain.loops[number]
        held = self.shape.keeps_row
        early = self._loads(plain.before) if self._several else {}
        rows = {a: f"{name}run" for a, name in early.items() if self._varies(a)}
        head = [s.text(self.names, "1") for s in loop.before]
        head += [f"const auto {name} = {self._place(a)};" for a, name in rows.items()]
        loads = self._kept_loads if held else self._loads(plain.body.statements)
        sources = {**rows, **{address: f"loads.{field}" for address, field in loads.items()}}
        kind = "Loads" if held else f"Loads{number}"
        stage, settings = self._stage(number), [self._stage(number)] if loop.sums else []
        first = ["held,", "load_step,"]
        if not held:
            struct, functor = self._loading(kind, loads)
            head, first = [*head, *struct], [*functor[:-1], "},"]
            size = sum(map(self._bytes, loads))
            taps = sum(s.taps for s in loop.body.statements if isinstance(s, Call))
            size += 4 * taps * self.shape.length  # what calls load waits in registers as well
            settings.append(str(max(1, min(4, self._prefetch_bytes(number) // max(size, 1)))))
        call = f"rows.{'reduce' if loop.sums else 'each'}"
        call += f"<{', '.join(settings)}>(" if settings else "("
        call = f"const {stage} stage{number} = {call}" if loop.sums else call
        results = f", {stage}& results" if loop.sums else ""
        body = [f"[&]({self.index} column, const {kind}& loads{results}) {{"]
        body += [f"  {x}" for x in self._elements(number, sources)]
        known = self._results(number) if loop.sums and self.shape.splits == 1 else ()
        return [*head, call, *(f"    {x}" for x in (*first, *body)), "    });", *known]

    def _prefetch_bytes(self, number: int) -> int:
        """Bytes that a thread loads ahead in a loop."""
        sums = [s for loop in self.rows.loops[:number] for s in loop.sums]
        dtypes = {r.name: r.dtype for s in self.rows.nest.statements for r in s.results}
        held = sum(DTYPES[dtypes[s.operand]].itemsize for s in sums) * self.shape.length
        return min(AHEAD_BYTES, HELD_BYTES - held)

    def _elements(self, number: int, sources: Mapping[Address, str]) -> list[str]:
        """The statements of a run, or of an element."""
        loop = self.rows.loops[number]
        sums, elements = loop.sums, loop.body
        joins = [s.joined(f"results{self._at}", operand_of(s)) for s in sums]
        if self.shape.length == 1:
            lines = self._column(elements.filter(lambda s: not source_of(s, sources)))
            texts = (element_text(s, self.names, sources) for s in elements.statements)
            return [*lines, *texts, *joins]
        *once, lanes = loop.loop.body
        assert isinstance(lanes, Loop), f"no loop over lanes: {lanes}"
        each = statements_of(s for s in lanes.body if not isinstance(s, Reduce))
        runs = Runs(self.shape.length, statements_of(once), each, self._values, self._inner)
        known = self._result_definitions(each, [s.operand for s in sums], number)
        return runs.lines(self.names, self.index, self._column, [*known], joins, sources)

    @property
    def _at(self) -> str:
        return ".at[step]." if self._several else "."

    def _row_outputs(self, which: str) -> list[str]:
        """The statements that store values that exist once per row, in the threads where
        `rows.which()`."""
        after = self.rows.after
        if not after.statements:
            return []
        lines = after.lines(self._lane if self._several else self.names, "1")
        if self._several:
            kind, first = f"const {self.index} lane", self.names[self._inner]
            own = [f"{kind} = {first} + step;"] if "lane" in after.used(self._lane) else []
            own += self._result_definitions(after, (), len(self.stages))
            head = f"for (int step = 0; step < {self.shape.length}; step++) {{"
            lines = ["#pragma unroll", head, *(f"  {x}" for x in (*own, *lines)), "}"]
        return [f"if (rows.{which}()) {{", *(f"  {x}" for x in lines), "}"]

    def _results(self, number: int) -> list[str]:
        """The results of a stage as registers, where a thread has one row."""
        return [] if self._several else list(self._registers(number))

    def _result_definitions(
        self, program: RegisterProgram, operands: Iterable[str], count: int
    ) -> Iterator[str]:
        """The results of the first `count` stages that the program or `operands` use, of one row of
        a run."""
        used = {*operands, *(r for s in program.statements for r in s.operands)}
        for number in range(count if self._several else 0):
            yield from self._registers(number, used)

    def _registers(self, number: int, used: Container[str] | None = None) -> Iterator[str]:
        for s in self.stages[number].sums:
            kind = C_TYPES[s.dtype]
            if used is None or s.result in used:
                place = f"stage{number}{self._at}{s.result}"
                yield f"const vec<{kind}> {s.result} = static_cast<{kind}>({place});"
