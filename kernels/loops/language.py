"""The loop language: loop nests over the statements of `kernels.program.body`, as values.

    nest      := domain, memory*, step*
    step      := loop | at | unless | alloc | barrier | statement
    loop      := for AXES [by STEP] kind [each COUNT [ahead STEPS]]: step*
    kind      := serial | sorted | chunk | block | warp | thread | lane
    at        := at AXIS = REGISTER kind: step*, where the axis has the index in a register
    unless    := unless MEMORY is MEMORY: step*, a copy of one to the other
    alloc     := an array of a block, in shared memory, or of an iteration
    barrier   := where the threads of a block wait for each other
    statement := Load | Store | Compute | Call | Along | Reduce, at affine accesses of the indices

A nest is hashable and compares by value. `text.py` prints it and parses it back, `verify.py` proves
that it stays within its memory and has no races, and `interpret.py` computes it in NumPy. A
schedule is what `rewrites.py` makes of a plain nest, and a target is a printer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal as Choice
from typing import get_args

import numpy as np

from graphc.ir import DTYPES
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.reduce import Reduce
from graphc.kernels.program.body.statement import Statement
from graphc.ops.base import Array

Kind = Choice["serial", "sorted", "chunk", "block", "warp", "thread", "lane"]
"""Who runs the iterations of a loop:

- `serial`: one worker, one after another.
- `sorted`: as `serial`, but only those whose index an `At` in the loop finds equal to that of a
  loop around: an earlier launch sorted the indices.
- `chunk`: workers of a CPU, each a contiguous range of the iterations of this loop and of the
  chunk loops in it, counted as one.
- `block`: blocks of a GPU, an iteration each.
- `warp`: warps of a GPU, an iteration each; a loop of lanes in it is its threads'.
- `thread`: threads of a GPU, neighbours on neighbouring iterations. Outside of a block loop they
  are the threads of all blocks.
- `lane`: one worker, all iterations at once: a vector register on a CPU, a run of neighbours that
  move between memory and registers as one on a GPU. An `At` in it takes them in order.
"""
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Memory:
    """An array that a nest reads or writes: `size` elements of `dtype`. `elements` are those of a
    constant."""

    name: str
    dtype: str
    size: int
    written: bool = False
    elements: bytes | None = None

    @property
    def array(self) -> Array:
        """The elements of a constant."""
        assert self.elements is not None, f"{self.name} is no constant"
        return np.frombuffer(self.elements, DTYPES[self.dtype])


@dataclass(frozen=True)
class Loop:
    """Runs `body` for each index of `axes`, which are numbers of the domain's axes, the last one
    fastest. The index of the last of them advances by `step`; a loop of kind `lane` then goes
    through the elements in between. What an `Along` or a `Reduce` in it carries from one to the
    next is a state, which has an order of its own.

    `each` iterations are a thread's own, or, of a serial loop, come together. The worker runs the
    first `ahead` steps of the body for all of them before the others: loads that no store of its
    own may delay.
    """

    axes: tuple[int, ...]
    kind: Kind
    body: tuple[Step, ...]
    step: int = 1
    each: int = 1
    ahead: int = 0


@dataclass(frozen=True)
class At(Loop):
    """Runs `body` at the index of its one axis that `register` holds, if the axis has that index;
    inside of a loop over the axis, only if it is the index of the loop.

    Of kind `chunk` it is run by the worker that has the index, of kind `serial` by each that gets
    there. Loops of a worker around it run in order, so that it may change what it changed before.
    """

    register: str = ""


@dataclass(frozen=True)
class Unless:
    """Runs `body`, which copies memory `source` to memory `target`, unless they are one array."""

    source: str
    target: str
    body: tuple[Step, ...]


@dataclass(frozen=True)
class Alloc:
    """`size` elements of `dtype` that the threads of a block share; inside of another loop, each
    iteration has its own."""

    name: str
    dtype: str
    size: int


@dataclass(frozen=True)
class Barrier:
    """All threads of a block arrive before one goes on, and see what the others wrote."""


Step = Loop | Unless | Alloc | Barrier | Statement


@dataclass(frozen=True)
class Nest:
    """Loops over `domain`; its lane axis lies in vector registers."""

    domain: Domain
    memory: tuple[Memory, ...]
    body: tuple[Step, ...]

    @property
    def statements(self) -> tuple[Statement, ...]:
        """All statements, in the order of the text."""
        return tuple(s for s, _ in walk(self.body))


def ending(reduce: Reduce, around: Sequence[Loop]) -> int:
    """Which of the loops `around` a reduction its result is known behind."""
    over = (i for i, loop in enumerate(around) if not {*loop.axes}.isdisjoint(reduce.axes))
    inner = (i for i, loop in reversed([*enumerate(around)]) if loop.kind != "lane")
    return next(over if reduce.axes else inner, -1)


def walk(
    body: Iterable[Step], around: tuple[Loop, ...] = ()
) -> Iterator[tuple[Statement, tuple[Loop, ...]]]:
    """Each statement, with the loops around it, the outermost first."""
    for step in body:
        if isinstance(step, Loop):
            yield from walk(step.body, (*around, step))
        elif isinstance(step, Unless):
            yield from walk(step.body, around)
        elif isinstance(step, Statement):
            yield step, around
