"""Describe kernels with reductions: strips for the bodies of loops, sums in the order stated.

See `reduce.h`. Every loop over the elements of rows is a program of strips that leaves the terms of
its sums in scratch memory; a block of rows, or a piece of a long one, has terms that fit a
first-level cache.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import Node
from graphc.ir.sum_order import SumOrder
from graphc.kernels.cpu.reduce.column_sums import Columns
from graphc.kernels.cpu.reduce.order_text import chains, first_steps, groups, order_of
from graphc.kernels.cpu.reduce.reduce import vectorized_rows
from graphc.kernels.cpu.shared.kernel_source import argument_order, statement_cost
from graphc.kernels.loops.cached_rows import bodies_with_cache, value_numbers
from graphc.kernels.loops.language import Loop, Step
from graphc.kernels.loops.reduction_orders import ordered_rows
from graphc.kernels.loops.rewrites import axes_of
from graphc.kernels.loops.rows import Rows
from graphc.kernels.prebuilt.description import Prebuilt
from graphc.kernels.prebuilt.operations import KINDS, NUMBERS
from graphc.kernels.prebuilt.places import BYTES, Memory
from graphc.kernels.prebuilt.row_blocks import RowBlocks
from graphc.kernels.prebuilt.strips import AXES, strip_program
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.reduce import Reduce
from graphc.kernels.program.body.statement import (
    Address,
    Load,
    Register,
    RegisterProgram,
    Statement,
    Store,
    joined,
)
from graphc.kernels.program.kernel import Kernel
from graphc.ops.base import COMBINES
from graphc.ops.fused import KernelNode

STRIPS = 49152
"""Bytes of a program's strips, of several rows each, so that programs begin less often; they fill
more than a first-level cache."""
DEAR = 5.0
"""Nanoseconds per register from which a value is kept for later loops."""


def describe_reduce(node: Node, kernel: Kernel, target: Target) -> Prebuilt | None:
    """The description of a kernel with reductions; None if it has a statement or a dtype that is
    not there, or sums over rows along several axes."""
    assert isinstance(node, KernelNode)
    rows = ordered_rows(node.body, vectorized_rows(node.body, target.lanes))
    sums = [s for loop in rows.loops for s in loop.sums]
    if any(s.combine not in COMBINES or s.dtype not in NUMBERS for s in sums):
        return None
    if rows.columns and len(rows.kept_axes) != 1:
        return None
    columns = Columns(node, rows)
    if any(columns.output(c).type.dtype not in ("f32", "f64") for c in rows.columns):
        return None
    order = order_of(rows.loops[0].sums)
    if not rows.reduced_axes:
        rows = _with_reduced_axis(rows)
    return _Description(node, kernel, rows, order, columns).data()


def _with_reduced_axis(rows: Rows) -> Rows:
    """`rows` with one more axis, of one element, for those whose reduced axes have one each."""
    domain = rows.domain
    wide = Domain((*domain.extents, 1), domain.lane, domain.width)

    def along(step: Step) -> Step:
        if isinstance(step, Loop) and not step.axes:
            return replace(step, axes=(domain.rank,))
        return step

    loop = replace(rows.loop, body=tuple(map(along, rows.loop.body)))
    return replace(rows, nest=replace(rows.nest, domain=wide, body=(loop,)))


class _Description(RowBlocks):
    """The bytes of a `Reduce`."""

    def __init__(
        self,
        node: KernelNode,
        kernel: Kernel,
        rows: Rows,
        order: SumOrder,
        columns: Columns,
    ) -> None:
        self.node, self.kernel, self.columns = node, kernel, columns
        self.sums = list[Reduce]()
        for loop in rows.loops:
            self.sums += [*loop.sums, *loop.columns]
        self.count = len(node.inputs) + len(node.outputs)
        widest = max((BYTES[self._dtype(s)] for s in self.sums), default=4)
        super().__init__(rows, order, max(kernel.phases), widest)
        order_of = argument_order(node)
        self.inplace = [(i, len(node.inputs) + o) for i, o in kernel.inplace]
        self.memory = {
            name: Memory(order_of[v], v.type.dtype, kernel.offset(order_of[v]))
            for v, name in rows.pointers.items()
        }
        self.registers = dict[str, Memory]()
        for i, s in enumerate(self.sums):
            self.memory[f"terms{i}"] = self.terms(self.count + i, self._dtype(s))
            if s.results:
                results = self.count + len(self.sums) + i
                self.registers[s.result] = self.results(results, s.dtype)
        names = (name for x in rows.program.statements for name in x.operands)
        self.read = frozenset(names) | {s.operand for s in self.sums}
        self.arrays, self.axes = rows.program.arrays, self._register_axes()
        self.always = self._statements(())
        """What does not vary at all."""
        self.once = list[str]()
        """The dtypes of what is computed once per row."""
        self.direct = list[tuple[int, ...]]()
        self.programs = list[bytes | None]()
        self.overwritten = set[int]()
        """The numbers of inputs in whose memory programs have stored outputs so far."""
        self.heads = list[tuple[int, int, int, int]]()

    def _dtype(self, sum: Reduce) -> str:
        """The dtype of a sum's terms."""
        return sum.dtype if sum.results else self.columns.output(sum).type.dtype

    def _register_axes(self) -> dict[str, frozenset[int]]:
        """The axes of more than one index that each register depends on."""
        wide = {d for d, n in enumerate(self.domain.extents) if n > 1}
        found = axes_of(self.rows.nest.statements, self.domain)
        return {name: axes & wide for name, axes in found.items()}

    def _statements(self, statements: Sequence[Statement]) -> RegisterProgram:
        """A program of some statements of the rows, or of values that they cached."""
        axes = dict(self.axes)
        for statement in statements:
            for register in statement.results:
                axes.setdefault(register.name, frozenset(range(self.domain.rank)))
        return RegisterProgram(tuple(statements), self.arrays, axes)

    def data(self) -> Prebuilt | None:
        """The description, or None."""
        held, numbers = set[int](), value_numbers(self.rows)
        terms, outputs = self._terms_of_values(numbers), self._outputs_of_values(numbers)

        def allocate(register: Register) -> Address | None:
            """The terms of a sum, which a later loop may read, or an output."""
            found = terms.get(register.name) if self.whole else None
            if found is None:
                return outputs.get(register.name)
            held.add(found)
            return Address(f"terms{found}", self._identity)

        width = self.domain.width
        bodies = bodies_with_cache(self.rows, lambda s: statement_cost(s, width), DEAR, allocate)
        number = 0
        bodies = [tuple(dict.fromkeys(body)) for body in bodies]  # an output is stored once
        for loop in self.rows.with_bodies(bodies).loops:
            sums, body = [*loop.sums, *loop.columns], self._statements(loop.body.statements)
            own = range(number, number + len(sums))
            number += len(sums)
            first = self._once(self._statements(loop.before))
            stored = any(isinstance(s, Store) for s in body.statements)
            direct = [
                () if i in held else self._direct(body, s) for i, s in zip(own, sums, strict=True)
            ]
            if not self.along and (stored or loop.columns or not all(direct)):
                direct = [()] * len(own)
            self.direct += direct
            stores = [
                Store((), (Address(f"terms{i}", self._identity), s.operand))
                for i, s, found in zip(own, sums, direct, strict=True)
                if i not in held and not (self.along and found)
            ]
            each = self._program(body, stores) if stores or stored else 0
            self.heads.append((first, each, own.start, own.stop))
        after = self._once(self._statements(self.rows.after.statements))
        self.heads.append((after, 0, 0, 0))
        return self._packed() if None not in self.programs else None

    def _terms_of_values(self, numbers: Mapping[str, int]) -> dict[str, int]:
        """For each register of a loop's body that an earlier loop computes to add it up, the number
        of that sum, whose terms are this register's values."""
        number = 0
        first, sums, found = dict[int, int](), dict[int, int](), dict[str, int]()
        for k, loop in enumerate(self.rows.loops):
            made = [r.name for s in loop.body.statements for r in s.results]
            found.update((n, sums[numbers[n]]) for n in made if numbers[n] in sums)
            for name in made:
                first.setdefault(numbers[name], k)
            own = [*loop.sums, *loop.columns]
            for i, s in enumerate(own):
                if first.get(numbers.get(s.operand, -1)) == k:
                    sums.setdefault(numbers[s.operand], number + i)
            number += len(own)
        return found

    def _outputs_of_values(self, numbers: Mapping[str, int]) -> dict[str, Address]:
        """For each register that an earlier loop stores as it is, the output's address."""
        stored, found = dict[int, Address](), dict[str, Address]()
        for loop in self.rows.loops:
            statements = loop.body.statements
            made = [r for s in statements for r in s.results]
            found.update((r.name, a) for r in made if (a := stored.get(numbers[r.name])))
            dtypes = {r.name: r.dtype for r in made}
            for s in statements:
                if isinstance(s, Store) and not s.lanes:
                    address, value = s.arguments
                    assert isinstance(address, Address) and isinstance(value, str)
                    if self.memory[address.pointer].dtype == dtypes.get(value):
                        stored.setdefault(numbers[value], address)
        return found

    def _once(self, program: RegisterProgram) -> int:
        """Add the program of what is computed once per row; returns its number, counted from 1, or
        0 if there is none. What it defines is left in memory for later ones."""
        always = program.filter(lambda s: bool(s.results) and not self._varies(program, s))
        own = program.filter(lambda s: not s.results or self._varies(program, s))
        self.always = joined((self.always, always))
        if not own.statements:
            return 0
        stores = []
        made = [r for s in own.statements for r in s.results if r.name in self.read]
        for register in made:
            dtype = "bool" if register.dtype == "auto" else KINDS[register.dtype]
            self.once.append(dtype)
            name = f"once{len(self.once)}"
            number = self.count + 2 * len(self.sums) + len(self.once) - 1
            self.memory[name] = self.results(number, dtype)
            stores.append(Store((), (Address(name, self._identity), register.name)))
        found = self._program(own, stores)
        for register, store in zip(made, stores, strict=True):
            (pointer,) = store.pointers
            self.registers[register.name] = self.memory[pointer]
        return found

    def _varies(self, program: RegisterProgram, statement: Statement) -> bool:
        """Whether what a statement defines differs from row to row."""
        return any(program.axes[r.name] for r in statement.results)

    def _program(self, program: RegisterProgram, stores: Sequence[Store]) -> int:
        """Add a program, with stores behind it; returns its number, counted from 1."""
        whole = joined((self.always, program))
        needed = _needed(replace(whole, statements=(*whole.statements, *stores)))
        memory, inplace = self.memory, self.inplace
        made = strip_program(self.domain, needed, memory, inplace, self.registers, STRIPS)
        loads = (p for s in needed.statements if s.results for p in s.pointers)
        reads = {memory[p].number for p in loads if p in memory}  # the others are constants
        if reads & self.overwritten:
            made = None  # an earlier loop has written over what this one reads
        self.programs.append(made)
        stored = (p for s in program.statements if isinstance(s, Store) for p in s.pointers)
        written = {memory[p].number for p in stored}
        self.overwritten.update(i for i, o in inplace if o in written)
        return len(self.programs)

    def _direct(self, body: RegisterProgram, own: Reduce) -> tuple[int, ...]:
        """Number and offset of the memory that has the terms of a sum, and elements from one
        register of a run and from one index of each axis to the next; () if they are computed,
        or do not lie as rows do."""
        makers = (s for s in body.statements if any(r.name == own.operand for r in s.results))
        load = next(makers, None)
        if not isinstance(load, Load) or not load.plain or self.across:
            return ()
        (address,) = load.arguments
        assert isinstance(address, Address) and address.access is not None
        access, memory = address.access, self.memory.get(address.pointer)
        if memory is None or memory.dtype != self._dtype(own) or memory.strides is not None:
            return ()
        stored = any(isinstance(s, Store) for s in body.statements)
        if memory.number in self.overwritten | {i for i, _ in self.inplace if stored}:
            return ()
        if own.address is not None and not self._whole_registers:
            return ()
        lane, kept, reduced = self.domain.lane, self.kept, self.reduced
        strides = [*access.strides, 0]
        blocked = lane is not None and strides[lane] != access.lane_stride
        if blocked and not (self.along and access.lane_stride == 1):
            return ()
        if kept.axes and kept.at != len(kept.axes) - 1:
            return ()
        beside = strides[kept.axes[-1]] if kept.axes else 0
        if (access.lane_stride if self.along else beside) != 1:
            return ()
        step = strides[reduced.axes[-1]] * self.domain.width if self.along else 0
        offset = access.offset * BYTES[memory.dtype] - memory.moved
        return (memory.number, offset, step, *(strides[d] for d in range(self.domain.rank)))

    @property
    def _whole_registers(self) -> bool:
        """Whether a row is one run of whole registers."""
        axes = self.reduced.axes
        return self.along and len(axes) == 1 and self.domain.extents[axes[0]] % 16 == 0

    @property
    def _identity(self) -> AffineAccess:
        return AffineAccess(0, (0,) * self.domain.rank)

    def _packed(self) -> Prebuilt:
        """The bytes, with where each program begins and its sums."""
        lanes, extents = self.domain.width, [*self.domain.extents, *(1,) * AXES][:AXES]
        scratch = -(-8 * (self.count + 2 * len(self.sums) + len(self.once) + 1) // 64) * 64
        rows = -(-self.most // 16) * 16
        own = chains(self.order, self.rows), groups(self.rows)
        terms = self.piece_elements() * (self.most if self.along and self.whole else 1)
        partial = rows * own[0] * (own[1] * lanes if self.along else 1)

        def room(size: int) -> int:
            nonlocal scratch
            scratch += -(-size // 64) * 64 + 64
            return scratch - -(-size // 64) * 64 - 64

        sums = []
        for s, direct in zip(self.sums, self.direct, strict=True):
            size, column = BYTES[self._dtype(s)], s.address is not None
            if column:
                outputs = argument_order(self.node)
                place = self.columns.offset(s)
                places = [room(terms * size), place, outputs[self.columns.output(s)]]
            else:
                places = [room(elements * size) for elements in (terms, partial, rows)]
            codes = [*COMBINES].index(s.combine), NUMBERS.index(self._dtype(s)), size, column
            memory = [*(direct or (-1,)), *(0,) * (AXES + 3)][: AXES + 3]
            sums.append(struct.pack(f"<4i{3 + 3 + AXES}q", *codes, *places, *memory))
        sizes = [1 if d == "bool" else BYTES[d] for d in self.once]
        once = b"".join(struct.pack("<2q", room(rows * n), n) for n in sizes)
        programs = [p for p in self.programs if p is not None]
        loops = b"".join(bytes(24) for _ in self.heads)
        starts, at = [0], _HEADER
        for part in (loops, b"".join(sums), once, *programs):
            starts.append(at)
            at += -(-len(part) // 64) * 64
        loops_at, sums_at, once_at, *places = starts[1:]
        places = [0, *places]
        loops = b"".join(
            struct.pack("<2q2i", places[first], places[each], a, b)
            for first, each, a, b in self.heads
        )
        first, phases = self.order.loops[0], self.kernel.phases
        extent = self.domain.extents[self.reduced.axes[0]]
        numbers = (
            self.count, phases.index(self.chunks), self.chunks, self.blocks,
            len(self.heads), len(sums), len(self.once), loops_at, sums_at, once_at, scratch,
            self.along, self.across, self.pitch, self.run, *own,
            self.order.parts, -(-extent // first.step), first.step,
            self.domain.lane if self.across else -1, lanes, *self._column_parts(),
        )  # fmt: skip
        head = struct.pack(f"<27q{AXES}q", *numbers, *extents)
        head += self.kept.data() + self.reduced.data()
        parts = (head, loops, b"".join(sums), once, *programs)
        return Prebuilt("graphc_reduce", b"".join(p + bytes(-len(p) % 64) for p in parts))

    def _column_parts(self) -> tuple[int, ...]:
        """Parts of the rows whose column sums are added in the second phase, their steps, the rows
        of a step, the bytes of a part, and the chunks of that phase."""
        if not self.rows.columns:
            return (0,) * 5
        order, (axis,) = self.columns.order, self.kept.axes
        steps, registers = first_steps(order, self.rows, self.rows.kept_axes)
        step = registers * (self.domain.width if axis == self.domain.lane else 1)
        if order.parts == 1:
            steps, step = 1, self.domain.extents[axis]
        (chunks,) = self.columns.phases
        return order.parts, steps, step, self.columns.nbytes, chunks


_HEADER = -(-(8 * (27 + AXES) + 2 * (4 * (2 + AXES) + 8 * (2 + 2 * AXES))) // 64) * 64


def _needed(program: RegisterProgram) -> RegisterProgram:
    """The statements that a store needs."""
    found, kept = set[str](), []
    for statement in reversed(program.statements):
        if not statement.results or any(r.name in found for r in statement.results):
            found.update(statement.operands)
            kept.append(statement)
    return replace(program, statements=tuple(reversed(kept)))
