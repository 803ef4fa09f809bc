"""Print kernels with reductions: a struct per stage, and a kernel per launch."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from graphc.kernels.cuda.reduce.reduce import Shape
from graphc.kernels.cuda.reduce.run_text import RunText
from graphc.kernels.cuda.reduce.stages import bytes_of_stage, operand_of, stage_struct
from graphc.kernels.cuda.shared.runs import call_of_run, element_of_run, makes_runs
from graphc.kernels.program.body.statement import (
    Address,
    Call,
    Load,
    RegisterProgram,
    Statement,
    Store,
    joined,
)
from graphc.kernels.program.rows import RowLoop
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
        return self._loads(joined(loop.body for loop in self.rows.loops))

    def _loop(self, number: int) -> list[str]:
        """The statements of a loop: what is the same for a whole row, then each column."""
        loop, held = self.rows.loops[number], self.shape.keeps_row
        head, program, sources = self._before(loop)
        loads = self._kept_loads if held else self._loads(loop.body)
        sources |= {address: f"loads.{field}" for address, field in loads.items()}
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
        body += [f"  {x}" for x in self._elements(loop, program, sources, number)]
        known = self._results(number) if loop.sums and self.shape.splits == 1 else ()
        return [*head, call, *(f"    {x}" for x in (*first, *body)), "    });", *known]

    def _prefetch_bytes(self, number: int) -> int:
        """Bytes that a thread loads ahead in a loop."""
        sums = [s for loop in self.rows.loops[:number] for s in loop.sums]
        held = sum(s.value.type.numpy_dtype.itemsize for s in sums) * self.shape.length
        return min(AHEAD_BYTES, HELD_BYTES - held)

    def _before(self, loop: RowLoop) -> tuple[list[str], RegisterProgram, dict[Address, str]]:
        """The statements before a loop, the loop's program, and the registers with runs of row
        values. For a run of rows only loads come before the loop; the compiler hoists the rest."""
        if not self._several:
            return loop.before.lines(self.names, "1"), loop.body, {}
        runs = {a: name for a, name in self._loads(loop.before).items() if self._varies(a)}
        head = [f"const auto {name}run = {self._place(a)};" for a, name in runs.items()]
        return head, loop.program, {a: f"{name}run" for a, name in runs.items()}

    def _elements(
        self,
        loop: RowLoop,
        program: RegisterProgram,
        sources: Mapping[Address, str],
        number: int,
    ) -> list[str]:
        """The statements of a run, or of an element."""
        sums, length = loop.sums, self.shape.length
        computed = program.filter(
            lambda s: not isinstance(s, Load) or self._address(s) not in sources
        )
        lines = self._column(computed)
        if length == 1:
            lines += [self._statement(s, sources, {}) for s in program.statements]
            return [*lines, *(s.joined("results.", operand_of(s)) for s in sums)]
        others = frozenset(range(self.rows.domain.rank)) - {self._inner}
        once, each = program.split(others)
        stores = [a for s in each.statements if isinstance(s, Store) if (a := self._address(s))]
        runs = {a: f"run{i}" for i, a in enumerate(stores)}
        lines += [self._statement(s, sources, {}) for s in once.statements]
        lines += [call_of_run(s, self.names, length) for s in each.statements if self._calls(s)]
        lines += [f"{self._run(a)} {run};" for a, run in runs.items()]
        lines += self._steps(
            [
                *self._result_definitions(each, [s.operand for s in sums], number),
                *(self._statement(s, sources, runs) for s in each.statements),
                *(s.joined(f"results{self._at}", operand_of(s)) for s in sums),
            ],
            each.filter(lambda s: self._address(s) is None and not self._calls(s)),
        )
        return [*lines, *(f"{self._place(a, '')} = {run};" for a, run in runs.items())]

    @property
    def _at(self) -> str:
        return ".at[step]." if self._several else "."

    def _steps(self, lines: Iterable[str], program: RegisterProgram) -> list[str]:
        """A loop over the elements of a run, which defines `lane` where the program uses it."""
        name, index = self.names[self._inner], self.index
        own = "lane" in program.used(self._lane)
        return [
            "#pragma unroll",
            f"for (int step = 0; step < {self.shape.length}; step++) {{",
            *([f"  const {index} lane = {name} + step;"] if own else []),
            *(f"  {x}" for x in lines),
            "}",
        ]

    def _calls(self, statement: Statement) -> bool:
        """Whether it is a call for a whole run."""
        length = self.shape.length
        return length > 1 and makes_runs(statement, self._values, self._inner, length)

    def _statement(
        self, statement: Statement, sources: Mapping[Address, str], runs: Mapping[Address, str]
    ) -> str:
        """A statement of one element; `sources` and `runs` are registers that replace memory."""
        address = self._address(statement)
        if address and address in sources and isinstance(statement, Load):
            ((name, dtype),) = statement.results
            step = " + step" if self._varies(address) else ""
            return f"const vec<{C_TYPES[dtype]}> {name} = load<1, 0>({sources[address]}.at{step});"
        if address and address in runs:
            return f"store<1, 0>({runs[address]}.at + step, {statement.arguments[1]});"
        if self._calls(statement):
            return element_of_run(statement)
        return statement.text(self._lane if self.shape.length > 1 else self.names, "1")

    def _row_outputs(self, which: str) -> list[str]:
        """The statements that store values that exist once per row, in the threads where
        `rows.which()`."""
        after = self.rows.after
        if not after.statements:
            return []
        lines = after.lines(self._lane if self._several else self.names, "1")
        if self._several:
            lines = self._steps(
                [*self._result_definitions(after, (), len(self.stages)), *lines], after
            )
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
