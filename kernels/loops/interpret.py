"""Nests computed in NumPy: what a schedule means, whatever the target.

The iterations of a loop are computed side by side, statement after statement, which is the same as
one after another for a nest without races (`verify.py`). Only blocks follow each other, and the
iterations of a worker's loop around an `At`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.base.dtypes import convert, is_narrow
from graphc.base.errors import GraphError
from graphc.ir import DTYPES, REGISTRY
from graphc.kernels.loops.functions import computed
from graphc.kernels.loops.language import (
    Alloc,
    At,
    Barrier,
    Loop,
    Nest,
    Step,
    Unless,
    ending,
    walk,
)
from graphc.kernels.loops.reducing import reduced_rows
from graphc.kernels.loops.running import along_rows
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.along import Along
from graphc.kernels.program.body.reduce import Reduce
from graphc.kernels.program.body.statement import (
    Address,
    Argument,
    Call,
    Compute,
    Literal,
    Load,
    Statement,
    Store,
)
from graphc.kernels.program.body.window import WINDOWS
from graphc.ops.base import Array, Op
from graphc.ops.random import philox


def interpret(nest: Nest, memory: Mapping[str, Array]) -> None:
    """Runs `nest` on flat arrays by name, of which it changes those that it writes; constants need
    not be given. Raises GraphError for a call that has no meaning here."""
    known = {m.name: m.array for m in nest.memory if m.elements is not None}
    _Run(nest.domain, {**known, **memory}).steps(nest.body)


class _Run:
    """The state at a place in the text: `indices`, for each iteration of the loops around it the
    index of each axis, that of an element in the lanes; the registers, a number for each; the loops
    around; what reductions have come to, for each index of the axes that they leave; and the
    operands of those that have not ended, with their indices."""

    def __init__(self, domain: Domain, memory: Mapping[str, Array]) -> None:
        self.domain, self.memory = domain, dict(memory)
        self.indices = np.zeros((1, domain.rank), np.int64)
        self.registers: dict[str, Array] = {}
        self.around: tuple[Loop, ...] = ()
        self.totals: dict[str, Array] = {}
        self.left: dict[str, tuple[int, ...]] = {}
        self.terms: dict[Reduce, list[tuple[Array, Array]]] = {}

    @property
    def kind(self) -> str:
        """The kind of the innermost loop."""
        return self.around[-1].kind if self.around else ""

    def steps(self, body: Iterable[Step]) -> None:
        for step in body:
            if isinstance(step, At):
                self.at(step)
            elif isinstance(step, Loop):
                self.loop(step)
            elif isinstance(step, Unless):
                self.steps(step.body)  # which changes nothing if they are one
            elif isinstance(step, Alloc):
                self.alloc(step)
            elif not isinstance(step, Barrier):
                self.statement(step)

    def alloc(self, step: Alloc) -> None:
        """An array of the block, or one for each iteration, whose first element a register has."""
        rows = 1 if self.kind == "block" else len(self.indices)
        self.memory[step.name] = np.zeros(rows * step.size, DTYPES[step.dtype])
        if self.kind != "block":
            self.registers[f"{step.name}[]"] = np.arange(rows) * step.size

    def loop(self, loop: Loop) -> None:
        counts = [self._count(loop, axis) for axis in loop.axes]
        size = int(np.prod(counts))
        indices = np.repeat(self.indices, size, axis=0)
        registers = {name: np.repeat(x, size) for name, x in self.registers.items()}
        left = np.tile(np.arange(size), len(self.indices))
        for axis, count in zip(reversed(loop.axes), reversed(counts), strict=True):
            indices[:, axis] += left % max(count, 1) * self._step(loop, axis)
            left = left // max(count, 1)
        extents = np.array(self.domain.extents)
        inside = (indices < extents)[:, list(loop.axes)].all(axis=1)
        # Each block has shared memory of its own; all other iterations are computed at once.
        parts = [np.flatnonzero(inside)]
        if loop.kind == "block":
            parts = list(parts[0][:, None])
        elif _in_order(loop):
            parts = self.in_order(loop, indices, parts[0])
        for part in parts:
            self.body(loop, indices[part], {name: x[part] for name, x in registers.items()})
        for statement, around in walk((loop,), self.around):
            if isinstance(statement, Reduce) and ending(statement, around) == len(self.around):
                self.end(statement)

    def in_order(self, loop: Loop, indices: Array, part: Array) -> list[Array]:
        """Which of the iterations follow each other. Those that differ along an axis by which all
        elements that they store are apart never meet in one."""
        stores = [s for s, _ in walk(loop.body) if isinstance(s, Store)]
        apart = {d for d in loop.axes if all(a.strides[d] for s in stores for a in s.accesses)}
        numbers = self.number(indices[part], [d for d in loop.axes if d not in apart])
        order = np.argsort(numbers, kind="stable")
        return np.split(part[order], np.flatnonzero(np.diff(numbers[order])) + 1)

    def end(self, reduce: Reduce) -> None:
        """The results of a reduction for all indices at which it has terms."""
        extents, axes = self.domain.extents, [*reduce.axes]
        left = tuple(d for d in range(self.domain.rank) if d not in axes)
        found = self.terms.pop(reduce, [])
        indices = np.concatenate(
            [np.zeros((0, self.domain.rank), np.int64), *(i for i, _ in found)]
        )
        values = np.concatenate([x for _, x in found]) if found else np.zeros(0)
        length = int(np.prod([extents[d] for d in axes]))
        keys = self.number(indices, left)
        order = np.lexsort((self.number(indices, axes), keys))
        rows = order.reshape(-1, length) if len(order) else np.zeros((0, 1), np.int64)
        made = reduced_rows(reduce, values[rows], extents) if len(rows) else values[:0]
        if reduce.address is not None:
            array = self.memory[reduce.address.pointer]
            (access,) = reduce.accesses
            array[self.place(access, indices[rows[:, 0]])] = convert(made, array.dtype)
            return
        size = int(np.prod([extents[d] for d in left]))
        neutral = _in_register(np.asarray(reduce.identity), reduce.dtype)
        table = self.totals.setdefault(reduce.result, np.full(size, neutral))
        table[keys[rows[:, 0]]] = made
        self.left[reduce.result] = left

    def term(self, reduce: Reduce) -> Array:
        """The operand of a reduction in each iteration; of products both factors, and whether there
        are such elements."""
        found = [self.argument(name) for name in reduce.operands]
        if reduce.combine != "products":
            return np.broadcast_to(found[0], (len(self.indices),))
        factors = [_in_register(x, reduce.dtype) for x in found[:2]]
        exists = found[2] if len(found) > 2 else np.ones((), bool)
        shape, dtype = (len(self.indices),), factors[0].dtype
        return np.stack([np.broadcast_to(x, shape).astype(dtype) for x in (*factors, exists)], -1)

    def number(self, indices: Array, axes: Sequence[int]) -> Array:
        """The indices along some axes, counted as one."""
        found = np.zeros(len(indices), np.int64)
        for axis in axes:
            found = found * self.domain.extents[axis] + indices[:, axis]
        return found

    def at(self, at: At) -> None:
        (axis,), place = at.axes, self.registers[at.register]
        indices = self.indices.copy()
        if any(axis in loop.axes for loop in self.around):
            keep = place == indices[:, axis]
        else:
            keep = (place >= 0) & (place < self.domain.extents[axis])
            indices[:, axis] = np.where(keep, place, 0)
        self.body(at, indices[keep], {name: x[keep] for name, x in self.registers.items()})

    def body(self, loop: Loop, indices: Array, registers: dict[str, Array]) -> None:
        """The body of a loop at these indices; what is outside of the loop is as before."""
        before = self.indices, self.registers, self.around
        self.indices, self.registers, self.around = indices, registers, (*self.around, loop)
        self.steps(loop.body)
        self.indices, self.registers, self.around = before

    def _step(self, loop: Loop, axis: int) -> int:
        return loop.step if axis == loop.axes[-1] and loop.kind != "lane" else 1

    def _count(self, loop: Loop, axis: int) -> int:
        if loop.kind == "lane":
            return loop.step
        return -(-self.domain.extents[axis] // self._step(loop, axis))

    def place(self, access: AffineAccess, indices: Array | None = None) -> Array:
        """The numerator of the access in each iteration, or at these `indices`."""
        indices = self.indices if indices is None else indices
        place = np.full(len(indices), access.offset, np.int64)
        for axis, stride in enumerate(access.strides):
            index = indices[:, axis]
            if axis == self.domain.lane:
                lane = index % self.domain.width
                place += stride * (index - lane) + access.lane_stride * lane
            else:
                place += stride * index
        return place

    def element(self, address: Address) -> Array:
        """The place in memory in each iteration."""
        assert address.access is not None
        first = self.registers.get(f"{address.pointer}[]", 0)
        found: Array = first + self.place(address.access)
        return found

    def statement(self, statement: Statement) -> None:
        if isinstance(statement, Along):
            self.along(statement)
            return
        if isinstance(statement, Reduce):
            term = self.term(statement)
            self.terms.setdefault(statement, []).append((self.indices, term))
            return
        if isinstance(statement, Store):
            address, stored = statement.arguments
            assert isinstance(address, Address)
            array = self.memory[address.pointer]
            array[self.element(address)] = convert(self.argument(stored), array.dtype)
            return
        if isinstance(statement, Load):
            made: tuple[Array, ...] = (self._load(statement),)
        elif isinstance(statement, Compute):
            values = [self.argument(a) for a in statement.arguments]
            made = computed(statement.formula, values)
        else:
            assert isinstance(statement, Call)
            made = self._call(statement)
        for register, value in zip(statement.results, made, strict=True):
            wide = np.broadcast_to(value, (len(self.indices),))
            self.registers[register.name] = _in_register(wide, register.dtype)

    def along(self, along: Along) -> None:
        """The results in each iteration that has some; the others end."""
        axis, columns = along.op.axis, self.indices.T
        order = np.lexsort((columns[axis], *np.delete(columns, axis, 0)))
        extent = self.domain.extents[axis]
        rows = order.reshape(len(order) // max(extent, 1), extent)
        operand, registers = self.argument(along.operands[0]), self.domain.lane is not None
        made = along_rows(along, operand[rows], registers)
        kept = rows[:, : along.count].ravel()
        self.indices = self.indices[kept]
        self.registers = {name: x[kept] for name, x in self.registers.items()}
        for register, value in zip(along.results, made, strict=True):
            self.registers[register.name] = _in_register(value.ravel(), register.dtype)

    def _load(self, load: Load) -> Array:
        *condition, address = load.arguments[:2]
        assert isinstance(address, Address)
        array, (access,) = self.memory[address.pointer], load.accesses
        if load.plain:
            return array[self.element(address)]
        return _where_passes(
            array, self.place(access) // access.divisor, self.argument(condition[0])
        )

    def _call(self, call: Call) -> tuple[Array, ...]:
        if call.function not in CALLS:
            raise GraphError(f"{call.function} has no meaning in NumPy as part of a nest")
        made = CALLS[call.function](self, call)
        return made if isinstance(made, tuple) else (made,)

    def argument(self, argument: Argument) -> Array:
        if isinstance(argument, str) and argument in self.totals:
            return self.totals[argument][self.number(self.indices, self.left[argument])]
        if isinstance(argument, str):
            return self.registers[argument]
        if isinstance(argument, Literal):
            value = np.asarray(argument.value)
            return _in_register(value, argument.dtype) if argument.dtype else value
        assert isinstance(argument, AffineAccess)
        return self.place(argument)


def _in_order(loop: Loop) -> bool:
    """Whether a worker's iterations follow each other, as an `At` in them may meet again."""
    chosen = any(isinstance(x, At) for _, around in walk(loop.body) for x in around)
    return chosen and loop.kind in ("serial", "sorted", "lane")


def _in_register(value: Array, dtype: str) -> Array:
    """As a register of `dtype` holds it: floats of two bytes are f32 there."""
    if dtype == "auto":
        return value
    kind = DTYPES[dtype]
    value = convert(value, kind)
    return convert(value, np.dtype(np.float32)) if is_narrow(kind) else value


def _where_passes(array: Array, place: Array, condition: Array) -> Array:
    """The elements at `place`, zero where the condition is false; nothing is read there."""
    found = np.zeros(len(place), array.dtype)
    passes = np.broadcast_to(condition, found.shape)
    found[passes] = array[place[passes]]
    return found


def _take(run: _Run, call: Call) -> Array:
    condition, address, base, index = call.arguments
    assert isinstance(address, Address) and isinstance(base, AffineAccess)
    settings: tuple[Any, ...] = call.settings
    _, divisor, stride, extent, _ = settings
    chosen = run.argument(index).astype(np.int64)
    passes = run.argument(condition) & (chosen >= 0) & (chosen < extent)
    place = run.place(base) // divisor + stride * chosen
    return _where_passes(run.memory[address.pointer], place, passes)


def _search(run: _Run, call: Call) -> Array:
    condition, address, base, value = call.arguments
    assert isinstance(address, Address) and isinstance(base, AffineAccess)
    settings: tuple[Any, ...] = call.settings
    _, divisor, stride, extent, right = settings
    passes = np.broadcast_to(run.argument(condition), len(run.indices))
    first, wanted = np.where(passes, run.place(base) // divisor, 0), run.argument(value)
    rows = run.memory[address.pointer][first[:, None] + stride * np.arange(extent)]
    side: Any = "right" if right == "true" else "left"
    found = [np.searchsorted(row, x, side) for row, x in zip(rows, wanted, strict=True)]
    return np.where(passes, np.array(found, np.int64), 0)


def _philox(run: _Run, call: Call) -> Array:
    seed, number, step, access, word = call.arguments
    assert isinstance(seed, Literal) and isinstance(number, Literal)
    assert isinstance(access, AffineAccess) and isinstance(word, Literal)
    divisor: Any = call.settings[1]
    index = (run.place(access) // divisor).astype(np.uint64)
    u32 = np.uint32
    zeros = np.zeros(len(index), u32)
    counted = zeros + run.argument(step).astype(np.int32).view(u32)
    counter = index.astype(u32), (index >> np.uint64(32)).astype(u32), counted, zeros
    drawn = philox(counter, (int(seed.value), int(number.value)))[int(word.value)]
    uniform: Array = (drawn >> u32(8)).astype(np.float32) * np.float32(2.0**-24)
    return uniform


def _window(run: _Run, call: Call) -> tuple[Array, ...]:
    """What the op makes of each iteration's own images, at the pixel of that iteration."""
    *memory, row, column = call.arguments
    settings: list[Any] = [s for s in call.settings if isinstance(s, tuple)]
    (_, *sizes), *reads = settings
    kernel, stride, padding, size, pixels = zip(sizes[0:10:2], sizes[1:10:2], strict=True)
    counts = (len(sizes) == 10,) if call.function.startswith("avg") else ()
    grad = call.function.endswith("_grad")
    kind: Any = REGISTRY[call.function]
    op: Op = kind(kernel, stride, padding, *counts, *((size,) if grad else ()))
    rows, columns = map(np.arange, pixels if grad else size)
    images = []
    for address, (_, _, down, right) in zip(memory, reads, strict=True):
        assert isinstance(address, Address) and address.access is not None
        pixel = rows[:, None] * down + columns * right
        place = run.place(address.access)[:, None, None, None] + pixel
        images.append(run.memory[address.pointer][place])
    at = np.arange(len(run.indices)), 0, run.argument(row), run.argument(column)
    return tuple(y[at] for y in op.reference(*images))


def _add_parts(run: _Run, call: Call) -> Array:
    """Partial sums, one after another."""
    ((parts, size), (address,)) = call.settings, call.arguments
    assert isinstance(address, Address) and isinstance(parts, int) and isinstance(size, int)
    terms = run.memory[address.pointer].reshape(parts, size)[:, run.element(address)]
    return np.asarray(functools.reduce(np.add, terms))


CALLS: Mapping[str, Callable[[_Run, Call], Array | tuple[Array, ...]]] = {
    "add_parts": _add_parts,
    "take": _take,
    "search": _search,
    "philox_uniform": _philox,
    **dict.fromkeys(WINDOWS, _window),
}
"""Functions that read memory or count, by name."""
