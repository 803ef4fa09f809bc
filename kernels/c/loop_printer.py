"""Plain C11 from loop nests: any compiler builds it, and every loop is a `for`.

One thread runs all iterations in order, those of chunks, blocks and threads one after another and
the lanes of a register in a loop of their own. So a barrier prints nothing, shared memory is an
array of the block, and loads need not come ahead.

Calls of the headers of other devices are calls of macros here, `name<settings>(arguments)` as
`name(settings, arguments)`, so that the formulas of ops are printed as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from graphc.ir import FLOATS, NARROW
from graphc.kernels.c.along import Row
from graphc.kernels.c.reductions import WORDS, Partials, partials_behind
from graphc.kernels.loops.language import Alloc, At, Barrier, Loop, Memory, Nest, Step, Unless
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.along import Along
from graphc.kernels.program.body.literals import TRUE, literal, memory_literal
from graphc.kernels.program.body.reduce import Reduce
from graphc.kernels.program.body.statement import (
    Address,
    Argument,
    Call,
    Compute,
    Formula,
    Literal,
    Load,
    Masked,
    Statement,
    Store,
)
from graphc.ops.base import Op
from graphc.ops.pointwise.logic import C_TYPES, REGISTER_TYPES

INDENT = "  "
WRAPPING = ("add", "subtract", "multiply", "square", "negative", "bitwise_not")
"""Ops whose results of integers are cut off, which C leaves open or says by a conversion."""
LEAST = {-(2**31): "INT32_MIN", -(2**63): "INT64_MIN"}
"""Numbers that are no literal behind a minus sign."""


def function_text(name: str, nests: Sequence[Nest], parameters: Sequence[Memory]) -> str:
    """The C function `name` of pointers to `parameters`, which runs nests one after another.
    Other memory of the nests is the function's own."""
    pointers = [_pointer(m) for m in parameters]
    listed = ", ".join(pointers) if sum(map(len, pointers)) < 70 else ",\n    ".join(pointers)
    lines = [f"void {name}({listed or 'void'}) {{"]
    constants = {m.name: m for nest in nests for m in nest.memory if m.elements is not None}
    given = {m.name for m in parameters}
    own = {m.name: m for nest in nests for m in nest.memory if m.name not in given}
    for memory in own.values():
        if memory.elements is None:
            lines.append(f"  static {C_TYPES[memory.dtype]} {memory.name}[{max(memory.size, 1)}];")
    for memory in constants.values():
        elements = ", ".join(memory_literal(x, memory.dtype) for x in memory.array)
        lines.append(f"  static const {C_TYPES[memory.dtype]} {memory.name}[] = {{{elements}}};")
    blocks = [list(nest_lines(nest)) for nest in nests]
    if len(blocks) > 1:  # each has names of its own
        blocks = [["{", *(INDENT + line for line in block), "}"] for block in blocks]
    lines += (INDENT + line for block in blocks for line in block)
    return "\n".join([*lines, "}", ""])


def _pointer(memory: Memory) -> str:
    return f"{'' if memory.written else 'const '}{C_TYPES[memory.dtype]}* {memory.name}"


def nest_lines(nest: Nest) -> Iterator[str]:
    """The statements of a nest, whose memory is in scope."""
    names = tuple(f"i{d}" for d in range(nest.domain.rank))
    yield from _Printer(nest).steps(nest.body, names)


class _Printer:
    """Prints the steps of a nest; `indices` names those of the axes at a place in the text, which
    loops are `around`."""

    def __init__(self, nest: Nest) -> None:
        self.domain: Domain = nest.domain
        self.dtypes = {m.name: m.dtype for m in nest.memory}
        self.around: tuple[Loop, ...] = ()
        self.partials: dict[Reduce, Partials] = {}

    def steps(self, body: Iterable[Step], indices: tuple[str, ...]) -> Iterator[str]:
        for step in body:
            if isinstance(step, At):
                yield from self.at(step, indices)
            elif isinstance(step, Loop) and any(isinstance(s, Along) for s in step.body):
                yield from self.along(step, indices)
            elif isinstance(step, Loop):
                yield from self.loop(step, indices)
            elif isinstance(step, Unless):
                yield f"if ({step.source} != {step.target}) {{"
                yield from (INDENT + line for line in self.steps(step.body, indices))
                yield "}"
            elif isinstance(step, Alloc):
                self.dtypes[step.name] = step.dtype
                yield f"{C_TYPES[step.dtype]} {step.name}[{step.size}];"
            elif not isinstance(step, Barrier):
                yield from self.statement(step, indices)

    def at(self, at: At, indices: tuple[str, ...]) -> Iterator[str]:
        """The body at the index that a register holds, if the axis has it."""
        (axis,) = at.axes
        name, names = f"i{axis}", list(indices)
        names[axis] = name
        yield f"const int64_t {name} = {at.register};"
        yield f"if ({name} >= 0 && {name} < {self.domain.extents[axis]}) {{"
        yield from (INDENT + line for line in self.steps(at.body, tuple(names)))
        yield "}"

    def loop(self, loop: Loop, indices: tuple[str, ...]) -> Iterator[str]:
        """A `for` for each axis. Where the last one advances by runs, `run` is the first index of
        a run, and a loop of lanes goes through it."""
        depth, names = 0, list(indices)
        ended = [*partials_behind(loop, self.around, self.domain, self.dtypes)]
        self.partials.update((partials.reduce, partials) for partials in ended)
        yield from (line for partials in ended for line in partials.begin())
        for axis in loop.axes:
            name, extent = f"i{axis}", self.domain.extents[axis]
            start, stop, advance = "0", str(extent), f"{name}++"
            if loop.kind == "lane":
                start, whole = indices[axis], f"{indices[axis]} + {loop.step}"
                stop = f"({whole} < {extent} ? {whole} : {extent})"
            elif axis == loop.axes[-1] and loop.step > 1:
                name = f"run{axis}"
                advance = f"{name} += {loop.step}"
            names[axis] = name
            head = f"for (int64_t {name} = {start}; {name} < {stop}; {advance}) {{"
            yield INDENT * depth + head
            depth += 1
        self.around = (*self.around, loop)
        yield from (INDENT * depth + line for line in self.steps(loop.body, tuple(names)))
        self.around = self.around[:-1]
        yield from (INDENT * d + "}" for d in reversed(range(depth)))
        yield from (line for partials in ended for line in self.end(partials, indices))

    def along(self, loop: Loop, indices: tuple[str, ...]) -> Iterator[str]:
        """A loop that takes the elements of a row, and one over the results."""
        (at,) = (i for i, s in enumerate(loop.body) if isinstance(s, Along))
        along, names = loop.body[at], [*indices]
        assert isinstance(along, Along)
        axis, rows = along.op.axis, tuple(d for d in loop.axes if d != along.op.axis)
        if rows:
            inner = replace(loop, axes=(axis,))
            yield from self.loop(replace(loop, axes=rows, body=(inner,)), indices)
            return
        row = Row(along, self.domain.extents[axis], self.domain.lane is not None)
        names[axis] = name = f"i{axis}"

        def over(count: int, *lines: Iterator[str]) -> Iterator[str]:
            yield f"for (int64_t {name} = 0; {name} < {count}; {name}++) {{"
            yield from (INDENT + line for part in lines for line in part)
            yield "}"

        yield from row.begin()
        yield from over(row.extent, self.steps(loop.body[:at], tuple(names)), row.add(name))
        yield from row.end()
        after = loop.body[at + 1 :]
        yield from over(row.count, row.results(name, after), self.steps(after, tuple(names)))

    def end(self, partials: Partials, indices: tuple[str, ...]) -> Iterator[str]:
        """The result of a reduction, as a register or in memory."""
        reduce, names = partials.reduce, [*indices]
        for axis in partials.inside:
            names[axis] = f"i{axis}"
            yield f"for (int64_t i{axis} = 0; i{axis} < {self.domain.extents[axis]}; i{axis}++) {{"
        yield from partials.end(names)
        if reduce.address:
            yield from self._store(Store((), (reduce.address, partials.at(names))), names)
        for name, dtype in reduce.results:
            yield f"const {REGISTER_TYPES[dtype]} {name} = {partials.at(names)};"
        yield from ("}" for _ in partials.inside)

    def statement(self, statement: Statement, indices: Sequence[str]) -> Iterator[str]:
        if isinstance(statement, Store):
            yield from self._store(statement, indices)
            return
        if isinstance(statement, Reduce):
            yield self.partials[statement].add(indices)
            return
        kinds = [REGISTER_TYPES.get(r.dtype, "bool") for r in statement.results]
        if len(kinds) == 1:
            (register,) = statement.results
            yield f"const {kinds[0]} {register.name} = {self._expression(statement, indices)};"
            return
        results = zip(kinds, statement.results, strict=True)
        yield from (f"{kind} {register.name};" for kind, register in results)
        yield f"{self._expression(statement, indices)};"

    def _store(self, store: Store, indices: Sequence[str]) -> Iterator[str]:
        """An element; behind the last one of an axis in the lanes, zeros for lanes without one."""
        address, argument = store.arguments
        assert isinstance(address, Address) and address.access is not None
        dtype, value = self.dtypes[address.pointer], self._argument(argument, indices)
        place = self._place(address.access, indices)
        stored = f"encode_{C_TYPES[dtype]}({value})" if dtype in NARROW else value
        yield f"{address.pointer}[{place}] = {stored};"
        lane, width = self.domain.lane, self.domain.width
        if store.lanes and lane is not None and (rest := -self.domain.extents[lane] % width):
            behind = f"&{address.pointer}[{place} + 1]"
            zeros = f"memset({behind}, 0, {rest} * sizeof({C_TYPES[dtype]}));"
            yield f"if ({indices[lane]} == {self.domain.extents[lane] - 1}) {zeros}"

    def _expression(self, statement: Statement, indices: Sequence[str]) -> str:
        if isinstance(statement, Load):
            return self._load(statement, indices)
        arguments = [self._argument(a, indices) for a in statement.arguments]
        if isinstance(statement, Compute):
            (register,) = statement.results
            return _formula(statement.formula, arguments, register.dtype)
        assert isinstance(statement, Call), f"no expression: {statement}"
        several = statement.results if len(statement.results) > 1 else ()
        made = [f"&{register.name}" for register in several]
        settings = map(_setting, statement.settings)
        return f"{statement.function}({', '.join((*settings, *arguments, *made))})"

    def _load(self, load: Load, indices: Sequence[str]) -> str:
        """An element, or 0 where a condition does not hold."""
        (pointer,), (access,) = load.pointers, load.accesses
        dtype, place = self.dtypes[pointer], self._place(access, indices)
        element = f"{pointer}[{f'({place}) / {access.divisor}' if access.divisor > 1 else place}]"
        read = f"decode_{C_TYPES[dtype]}({element})" if dtype in NARROW else element
        if load.plain or load.arguments[0] == TRUE:
            return read
        return f"{self._argument(load.arguments[0], indices)} ? {read} : 0"

    def _argument(self, argument: Argument, indices: Sequence[str]) -> str:
        if isinstance(argument, str):
            return argument
        if isinstance(argument, Literal):
            return _number(argument)
        if isinstance(argument, AffineAccess):
            return self._place(argument, indices)
        offset = f" + {self._place(argument.access, indices)}" if argument.access else ""
        return argument.pointer + offset

    def _place(self, access: AffineAccess, indices: Sequence[str]) -> str:
        """The offset of an element. The index of an axis in the lanes is that of a register and a
        lane."""
        lane, width = self.domain.lane, self.domain.width
        if lane is None or access.lane_stride == access.strides[lane]:
            return access.text(indices)
        index, names = indices[lane], list(indices)
        names[lane] = f"({index} - {index} % {width})"
        split = replace(access, strides=(*access.strides, access.lane_stride))
        return split.text([*names, f"({index} % {width})"])


def _formula(formula: Formula, operands: Sequence[str], dtype: str) -> str:
    """The C expression of a formula whose result is of `dtype`."""
    if isinstance(formula, Masked):
        return _formula(formula.formula, operands, dtype)
    if isinstance(formula, Op) and formula.name == "logical_not":
        return f"!{operands[0]}"
    if isinstance(formula, Op) and formula.name in WRAPPING and dtype in WORDS:
        wide = formula.scalar_expression(*(f"({WORDS[dtype]}){x}" for x in operands))
        return f"({C_TYPES[dtype]})({wide})"
    return re.sub(r"\b(\w+)<([^<>]*)>\(", r"\1(\2, ", formula.scalar_expression(*operands))


def _setting(setting: object) -> str:
    """A template argument; of one that is a template of its own, a call."""
    if isinstance(setting, tuple):
        name, *settings = map(_setting, setting)
        return f"{name}({', '.join(settings)})" if settings else name
    return str(setting).lower() if isinstance(setting, bool) else str(setting)


def _number(number: Literal) -> str:
    """The C text of a literal, of its register's type: functions are selected by it."""
    value, dtype = number.value, number.dtype
    if dtype in ("", "bool"):
        return number.text if not dtype else str(value).lower()
    if dtype in FLOATS:
        text = literal(value, "f64" if dtype == "f64" else "f32")
    else:
        text = LEAST.get(int(value), str(value))
        cast = {"i32": "", "i64": "(int64_t)"}.get(dtype, f"({C_TYPES[dtype]})")
        text = f"{cast}{text}"
    return f"({text})" if text[0] in "(-" else text
