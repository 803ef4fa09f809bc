"""The plan as C++: one straight list of calls, with the address of every argument."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from graphc.export.interface import Function
from graphc.export.memory import CONSTANTS, Memory
from graphc.export.names import commented
from graphc.runtime.plan.places import Place, Places
from graphc.runtime.plan.plan import Copy, Launch, Loop, Range, Step


def body_of(function: Function, memory: Memory, symbols: Mapping[str, str]) -> str:
    """Return the statements that play a function's plan.

    They use `work`, `state` and `constants`, which are `char*`, the function's `inputs` and
    `outputs`, and `play`. `symbols` has the names of the kernels' functions.
    """
    return "\n".join(_Calls(function, memory, symbols).steps(function.entry.plan.steps, "  ", ()))


class _Calls:
    def __init__(self, function: Function, memory: Memory, symbols: Mapping[str, str]) -> None:
        self.function, self.memory, self.symbols = function, memory, symbols
        self.plan = function.entry.plan
        self.places = Places(self.plan)

    def steps(self, steps: Sequence[Step], indent: str, around: tuple[Loop, ...]) -> Iterator[str]:
        """The statements of steps within loops, the outermost first.

        Neighbours that may be left out while the guard of the loop is false are one block.
        """
        played = (step for step in steps if isinstance(step, Loop | Launch | Copy))
        for guarded, group in groupby(played, lambda step: step.guarded):
            if guarded:
                yield f"{indent}if (goes_on{len(around) - 1}) {{"
            for step in group:
                assert step.stage == 0, "a plan of one stream has no wavefronts"
                yield from self.step(step, indent + "  " * guarded, around)
            if guarded:
                yield f"{indent}}}"

    def step(
        self, step: Loop | Launch | Copy, indent: str, around: tuple[Loop, ...]
    ) -> Iterator[str]:
        if isinstance(step, Loop):
            t = f"t{len(around)}"
            yield f"{indent}// {commented(step.name)}"
            yield f"{indent}for (int {t} = 0; {t} < {step.count}; {t}++) {{"
            if step.guard is not None:
                guard = self.address(step.guard, (*around, step))
                yield f"{indent}  const bool goes_on{len(around)} = *(const bool*)({guard});"
            yield from self.steps(step.steps, indent + "  ", (*around, step))
            yield f"{indent}}}"
        elif isinstance(step, Copy):
            size = step.source.stop - step.source.start
            if size:
                target, source = (self.address(r, around) for r in (step.target, step.source))
                yield f"{indent}__builtin_memcpy({target}, {source}, {size});"
        else:
            yield from self.launch(step, indent, around)

    def launch(self, step: Launch, indent: str, around: tuple[Loop, ...]) -> Iterator[str]:
        kernel = self.plan.kernels[step.kernel]
        yield f"{indent}{{"
        yield f"{indent}  void* const arguments[] = {{"
        for number, argument in enumerate(step.arguments):
            address = self.address(argument, around, kernel.offset(number))
            name = f"  // {commented(argument.value)}" if argument.value else ""
            yield f"{indent}      {address},{name}"
        yield f"{indent}  }};"
        symbol = self.symbols[step.kernel]
        for phase, chunks in enumerate(kernel.phases):
            if chunks == 1:
                yield f"{indent}  {symbol}(arguments, {phase}, 0);"
            elif chunks:
                yield f"{indent}  PLAY({symbol}, arguments, {phase}, {chunks});"
        yield f"{indent}}}"

    def address(self, range: Range, around: tuple[Loop, ...], more: int = 0) -> str:
        """The address of a range as an expression."""
        place = self.places.place(range)
        base, offset = self.base(place)
        offset += more
        text = base
        if offset:
            text += f" {'-' if offset < 0 else '+'} {abs(offset)}"
        return text + moved(place, around)

    def base(self, place: Place) -> tuple[str, int]:
        """The expression of a place's memory, and the offset in it."""
        if place.segment == "work":
            return "work", place.offset
        if place.segment == "state":
            buffer = self.function.entry.buffers[place.index]
            kind, start = self.memory.places[id(buffer)]
            return "constants" if kind == CONSTANTS else "state", start + place.offset
        inputs = self.function.inputs
        if place.index < len(inputs):
            return f"(char*)inputs->{inputs[place.index].symbol}", place.offset
        output = self.function.outputs[place.index - len(inputs)]
        return f"(char*)outputs->{output.symbol}", place.offset


def moved(place: Place, around: Sequence[Loop]) -> str:
    """Return how a place moves with the loops around it, as what is added to an address.

    The iterations are `t0`, `t1`, ..., the outermost first.
    """
    text = ""
    for depth, (loop, move) in enumerate(zip(around, place.moves, strict=False)):
        if move.stride and move.period > 1:
            t = f"t{depth}" if loop.count <= move.period else f"t{depth} % {move.period}"
            sign = "-" if move.stride < 0 else "+"
            text += f" {sign} {abs(move.stride)} * (ptrdiff_t)({t})"
    return text
