"""Nests as text, and back: `parse_nest(nest_text(nest)) == nest`.

    nest (6, 8) lanes 1 by 4
    memory x_data : f32[48]
    memory y_data : f32[48] written
    for i0 chunk
      for i1 chunk
        x_ : f32 = load x_data[8*i0 + 1*i1 ; lanes 1]
        relu_ : f32 = op relu (x_) cost 1
        store y_data[8*i0 + 1*i1 ; lanes 1], relu_

`at i1 = p_ serial` and `unless x_data is y_data` have steps of their own, as loops have.

A statement reads: results, what it does, arguments. An argument is a register's name, a number such
as `f32:0.5`, an access in brackets, or memory with one. A formula is an op with its attributes, a
function such as `fn convert<'float'>`, or either of them as a mask, `mask op less`. A running
result says in which order it is joined: `along op cumsum axis=1 reverse=False (x_) by 16 in 3`. So
does a reduction, `reduce sum x_ over i1 in 1%16`, whose result may be an element of memory:
`reduce sum y_data[1*i1], x_ over i0`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from graphc.base.errors import GraphError
from graphc.ir import DTYPES, REGISTRY
from graphc.kernels.loops.language import (
    KINDS,
    Alloc,
    At,
    Barrier,
    Loop,
    Memory,
    Nest,
    Step,
    Unless,
)
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.along import Along
from graphc.kernels.program.body.literals import NAN, TRUE, splat_literal, word_literal
from graphc.kernels.program.body.reduce import JOINS, Reduce, parse_order
from graphc.kernels.program.body.statement import (
    Address,
    Argument,
    Call,
    Compute,
    Formula,
    Literal,
    Load,
    Masked,
    NamedFunction,
    Register,
    Statement,
    Store,
)
from graphc.ops.base import Op
from graphc.text.literal import literal_of

INDENT = "  "


def nest_text(nest: Nest) -> str:
    """The text of a nest, a line for each step."""
    return _text(nest, {})


def form_of(nest: Nest) -> str:
    """The text with numbers for the names of memory and registers, without the sizes of memory and,
    of a single axis, its extent: a function is given these. Nests of one form do the same to other
    arrays."""
    memory = tuple(replace(m, size=0) for m in nest.memory)
    domain = nest.domain
    if domain.rank == 1:
        domain = replace(domain, extents=())
    return _text(replace(nest, domain=domain, memory=memory), _numbers(nest))


def form_with_arguments(nest: Nest, arguments: Sequence[str]) -> str:
    """The text with numbers for names, those of memory by its place among a function's `arguments`.
    Nests of one such form do the same to the same arguments."""
    places = {name: f"argument{i}" for i, name in enumerate(arguments)}
    return _text(nest, _numbers(nest) | places)


def _numbers(nest: Nest) -> dict[str, str]:
    """Numbers for the names of memory and registers."""
    registers = (r.name for s in nest.statements for r in s.results)
    return {name: f"_{i}" for i, name in enumerate((*(m.name for m in nest.memory), *registers))}


def _text(nest: Nest, names: Names) -> str:
    lines = [f"nest {nest.domain.extents}{_lanes(nest.domain)}"]
    lines += (_memory_text(m, names.get(m.name, m.name)) for m in nest.memory)
    return "\n".join([*lines, *_lines(nest.body, "", names)])


Names = Mapping[str, str]
"""Other names of registers and memory."""


def _lanes(domain: Domain) -> str:
    return f" lanes {domain.lane} by {domain.width}" if domain.lane is not None else ""


def _memory_text(memory: Memory, name: str) -> str:
    elements = f" = {memory.elements.hex()}" if memory.elements is not None else ""
    mark = " written" if memory.written else ""
    return f"memory {name} : {memory.dtype}[{memory.size}]{mark}{elements}"


def _lines(body: Iterable[Step], indent: str, names: Names) -> Iterator[str]:
    for step in body:
        if isinstance(step, Loop):
            yield indent + _head(step, names)
            yield from _lines(step.body, indent + INDENT, names)
        elif isinstance(step, Unless):
            source, target = (names.get(x, x) for x in (step.source, step.target))
            yield f"{indent}unless {source} is {target}"
            yield from _lines(step.body, indent + INDENT, names)
        elif isinstance(step, Alloc):
            yield f"{indent}alloc {names.get(step.name, step.name)} : {step.dtype}[{step.size}]"
        elif isinstance(step, Barrier):
            yield f"{indent}barrier"
        else:
            yield indent + _statement(step, names)


def _head(loop: Loop, names: Names) -> str:
    if isinstance(loop, At):
        return f"at i{loop.axes[0]} = {names.get(loop.register, loop.register)} {loop.kind}"
    step = f" by {loop.step}" if loop.step != 1 else ""
    each = f" each {loop.each}" if loop.each != 1 else ""
    ahead = f" ahead {loop.ahead}" if loop.ahead else ""
    axes = ", ".join(f"i{d}" for d in loop.axes) or "once"
    return f"for {axes}{step} {loop.kind}{each}{ahead}"


def _statement(statement: Statement, names: Names) -> str:
    results = ", ".join(f"{names.get(r.name, r.name)} : {r.dtype}" for r in statement.results)
    head = f"{results} = " if results else ""
    arguments = [_argument(a, names) for a in statement.arguments]
    if isinstance(statement, Load):
        return f"{head}load {', '.join(arguments)}"
    if isinstance(statement, Store):
        return f"store{'_lanes' if statement.lanes else ''} {', '.join(arguments)}"
    listed = f"({', '.join(arguments)})"
    if isinstance(statement, Reduce):
        axes = ", ".join(f"i{d}" for d in statement.axes) or "none"
        order = f" in {statement.order}" if statement.order else ""
        return f"{head}reduce {statement.combine} {', '.join(arguments)} over {axes}{order}"
    if isinstance(statement, Along):
        order = f" by {statement.by} in {statement.pieces}"
        return f"{head}along {_formula(statement.op)}{listed}{order}"
    if isinstance(statement, Compute):
        return f"{head}{_formula(statement.formula)}{listed} cost {statement.operations}"
    assert isinstance(statement, Call)
    function = NamedFunction(statement.function, statement.settings)
    live, steps = ("live ", statement.steps) if statement.live else ("", statement.steps)
    return f"{head}call {live}{_formula(function)}{listed} taps {statement.taps} {steps}"


def _formula(formula: Formula | Op) -> str:
    if isinstance(formula, Masked):
        return f"mask {_formula(formula.formula)}"
    if isinstance(formula, NamedFunction):
        return f"fn {formula.name}<{', '.join(map(_setting, formula.settings))}>"
    assert isinstance(formula, Op)
    pairs = (f"{k}={v!r}".replace(" ", "") for k, v in formula.attributes.items())
    attributes = "".join(f" {pair}" for pair in pairs)
    return f"op {formula.name}{attributes} "


def _setting(setting: object) -> str:
    return f"'{setting}'" if isinstance(setting, str) else str(setting)


def _argument(argument: Argument, names: Names) -> str:
    if isinstance(argument, str):
        return names.get(argument, argument)
    if isinstance(argument, Literal):
        return f"{argument.dtype or 'word'}:{argument.value!r}"
    if isinstance(argument, AffineAccess):
        return f"[{_access(argument)}]"
    pointer = names.get(argument.pointer, argument.pointer)
    return pointer + (f"[{_access(argument.access)}]" if argument.access else "[]")


def _access(access: AffineAccess) -> str:
    terms = [f"{s}*i{d}" for d, s in enumerate(access.strides) if s]
    terms += [str(access.offset)] if access.offset or not terms else []
    lanes = f" ; lanes {access.lane_stride}" if access.lane_stride else ""
    return " + ".join(terms) + lanes + (f" ; over {access.divisor}" if access.divisor != 1 else "")


_HEAD = re.compile(r"nest (?P<extents>\([\d, ]*\))(?: lanes (?P<lane>\d+) by (?P<width>\d+))?")
_MEMORY = re.compile(r"memory (\w+) : (\w+)\[(\d+)\]( written)?(?: = ([0-9a-f]*))?")
_LOOP = re.compile(
    r"for (?P<axes>once|i\d+(?:, i\d+)*)(?: by (?P<step>\d+))? (?P<kind>\w+)"
    r"(?: each (?P<each>\d+))?(?: ahead (?P<ahead>\d+))?"
)
_AT = re.compile(r"at i(\d+) = (\w+) (\w+)")
_UNLESS = re.compile(r"unless (\w+) is (\w+)")
_ALLOC = re.compile(r"alloc (\w+) : (\w+)\[(\d+)\]")
_RESULTS = re.compile(r"(?P<results>\w+ : \w+(?:, \w+ : \w+)*) = ")
_ARGUMENT = re.compile(r"(\w+):(-?[\w.+-]+)|(\w*)\[([^\]]*)\]|(\w+)")
_COMPUTE = re.compile(r"(?P<formula>.*?)\((?P<arguments>[^()]*)\) cost (?P<cost>\d+)")
_CALL = re.compile(
    r"call (?P<live>live )?(?P<formula>fn .*>)\((?P<arguments>[^()]*)\) taps (?P<taps>\d+) "
    r"(?P<steps>\([\d, ]*\))"
)
_ALONG = re.compile(r"along (?P<op>op .*?)\((?P<arguments>\w+)\) by (?P<by>\d+) in (?P<pieces>\d+)")
_REDUCE = re.compile(
    r"reduce (?P<combine>\w+) (?P<arguments>.*) over (?P<axes>none|i\d+(?:, i\d+)*)"
    r"(?: in (?P<order>.*))?"
)
_FUNCTION = re.compile(r"fn (\w*)<(.*)>")


def parse_nest(text: str) -> Nest:
    """The nest that prints as `text`. Raises GraphError with the line that is not understood."""
    lines = text.splitlines()
    parser = _Parser(lines)
    try:
        return parser.nest()
    except GraphError:
        raise
    except (AssertionError, IndexError, KeyError, SyntaxError, TypeError, ValueError) as error:
        line = lines[min(parser.place, len(lines)) - 1] if lines else ""
        raise GraphError(f"nest text: not understood: {line!r} ({error})") from None


def _memory(line: str) -> Memory:
    found = _matched(_MEMORY, line)
    elements = None if found[5] is None else bytes.fromhex(found[5])
    return Memory(found[1], found[2], int(found[3]), bool(found[4]), elements)


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise GraphError(f"nest text: not understood: {text!r}")
    return found


class _Parser:
    """The lines, of which those before `place` are understood."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self.place, self.rank = lines, 0, 0

    def next(self) -> str:
        self.place += 1
        return self.lines[self.place - 1]

    def nest(self) -> Nest:
        """The whole text."""
        head = _matched(_HEAD, self.next() if self.lines else "")
        lane = None if head["lane"] is None else int(head["lane"])
        domain = Domain(literal_of(head["extents"]), lane, int(head["width"] or 1))
        self.rank = domain.rank
        memory: list[Memory] = []
        while self.place < len(self.lines) and self.lines[self.place].startswith("memory "):
            memory.append(_memory(self.next()))
        return Nest(domain, tuple(memory), self.steps(""))

    def steps(self, indent: str) -> tuple[Step, ...]:
        """The steps whose lines begin with `indent`."""
        found: list[Step] = []
        while self.place < len(self.lines) and self.lines[self.place].startswith(indent):
            line = self.next()[len(indent) :]
            found.append(self.step(line, indent))
        return tuple(found)

    def step(self, line: str, indent: str) -> Step:
        if line.startswith("for "):
            head = _matched(_LOOP, line)
            names = head["axes"].removeprefix("once")
            axes = tuple(int(name[1:]) for name in names.split(", ") if name)
            numbers = (int(head[k] or d) for k, d in (("step", 1), ("each", 1), ("ahead", 0)))
            kind: Any = head["kind"]
            known = kind in KINDS and all(axis < self.rank for axis in axes)
            assert known, f"expected one of {', '.join(KINDS)}, over axes of the domain"
            return Loop(axes, kind, self.steps(indent + INDENT), *numbers)
        if line.startswith("at "):
            axis, register, kind = _matched(_AT, line).groups()
            assert kind in KINDS and int(axis) < self.rank, "expected a kind, at an axis"
            return At((int(axis),), kind, self.steps(indent + INDENT), register=register)
        if line.startswith("unless "):
            source, target = _matched(_UNLESS, line).groups()
            return Unless(source, target, self.steps(indent + INDENT))
        if line == "barrier":
            return Barrier()
        if line.startswith("alloc "):
            found = _matched(_ALLOC, line)
            return Alloc(found[1], found[2], int(found[3]))
        return self.statement(line)

    def statement(self, line: str) -> Statement:
        found, results = _RESULTS.match(line), tuple[Register, ...]()
        if found:
            pairs = [pair.split(" : ") for pair in found["results"].split(", ")]
            assert {dtype for _, dtype in pairs} <= {*DTYPES, "auto"}, "expected dtypes"
            results = tuple(Register(name, dtype) for name, dtype in pairs)
            line = line[found.end() :]
        word, _, rest = line.partition(" ")
        if word == "load":
            return Load(results, self.arguments(rest))
        if word in ("store", "store_lanes"):
            return Store((), self.arguments(rest), word == "store_lanes")
        if word == "call":
            call = _matched(_CALL, line)
            function = self.formula(call["formula"])
            assert isinstance(function, NamedFunction)
            extra = bool(call["live"]), int(call["taps"]), literal_of(call["steps"])
            arguments = self.arguments(call["arguments"])
            return Call(results, arguments, function.name, function.settings, *extra)
        if word == "reduce":
            what = _matched(_REDUCE, line)
            axes = tuple(int(name[1:]) for name in what["axes"].split(", ") if name != "none")
            assert what["combine"] in JOINS and all(axis < self.rank for axis in axes)
            order = parse_order(what["order"]) if what["order"] else None
            return Reduce(results, self.arguments(what["arguments"]), what["combine"], axes, order)
        if word == "along":
            found = _matched(_ALONG, line)
            op: Any = self.formula(found["op"])
            return Along(results, (found["arguments"],), op, int(found["by"]), int(found["pieces"]))
        made = _matched(_COMPUTE, line)
        arguments, cost = self.arguments(made["arguments"]), int(made["cost"])
        return Compute(results, arguments, self.formula(made["formula"]), cost)

    def formula(self, text: str) -> Formula:
        word, _, rest = text.partition(" ")
        if word == "mask":
            return Masked(self.formula(rest))
        if word == "fn":
            name, settings = _matched(_FUNCTION, text).groups()
            return NamedFunction(name, literal_of(f"({settings},)") if settings else ())
        name, *attributes = rest.split()
        if word != "op" or name not in REGISTRY:
            raise GraphError(f"nest text: expected a formula, got {text!r}")
        pairs = (attribute.split("=", 1) for attribute in attributes)
        op: Any = REGISTRY[name](**{key: literal_of(value) for key, value in pairs})
        return op  # type: ignore[no-any-return]

    def arguments(self, text: str) -> tuple[Argument, ...]:
        found = [self.argument(*one.groups("")) for one in _ARGUMENT.finditer(text)]
        whole = ", ".join(one[0] for one in _ARGUMENT.finditer(text))
        assert whole == text, f"expected arguments, got {text!r}"
        return tuple(found)

    def argument(self, dtype: str, number: str, pointer: str, access: str, name: str) -> Argument:
        if name:
            return name
        if not dtype:
            place = self.access(access) if access else None
            if pointer:
                return Address(pointer, place)
            assert place is not None
            return place
        if number in ("True", "False"):
            return TRUE if dtype == "word" else splat_literal(number == "True", dtype)
        value: Any = NAN if number == "nan" else literal_of(number)
        return word_literal(value) if dtype == "word" else splat_literal(value, dtype)

    def access(self, text: str) -> AffineAccess:
        terms, *marks = text.split(" ; ")
        offset, strides, sizes = 0, [0] * self.rank, {"lanes": 0, "over": 1}
        for term in terms.split(" + "):
            factor, _, index = term.partition("*i")
            if index:
                strides[int(index)] = int(factor)
            else:
                offset = int(factor)
        for mark in marks:
            name, _, size = mark.partition(" ")
            assert name in sizes, f"expected lanes or over, got {name!r}"
            sizes[name] = int(size)
        return AffineAccess(offset, tuple(strides), sizes["lanes"], sizes["over"])
