"""Schedules of nests whose indices are data (`index_nest.py`): rewrites as in `rewrites.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from graphc.kernels.loops.language import Alloc, At, Kind, Loop, Nest, Step, Unless
from graphc.kernels.loops.rewrites import axes_of
from graphc.kernels.program.access import AffineAccess
from graphc.kernels.program.body.statement import (
    Address,
    Argument,
    Load,
    Register,
    Statement,
    Store,
)

Steps = tuple[Step, ...]


def inward(nest: Nest, axes: Sequence[int]) -> Nest:
    """Move the loop over `axes` around an `At` into it, where its index depends on none of them."""
    known = axes_of(nest.statements, nest.domain)

    def moved(loop: Loop) -> Steps:
        *find, at = loop.body
        mine, others = _parted(loop, axes)
        if not mine or not isinstance(at, At) or known[at.register].intersection(mine):
            return (loop,)
        at = replace(at, body=(Loop(mine, "serial", at.body),))
        return _over(loop, others, (*find, at))

    return _each_loop(nest, moved)


def together(nest: Nest, axes: Sequence[int], kind: Kind, run: int = 1) -> Nest:
    """Put all loops into one over `axes`, run by the workers of `kind`: each keeps its other axes,
    and goes through a `run` of neighbours along the last of `axes`."""

    def inside(loop: Loop) -> Steps:
        mine, others = _parted(loop, axes)
        body = loop.body
        if run > 1 and axes[-1] in mine:
            body = (Loop((axes[-1],), "lane", body, run),)
        return _over(loop, others, body)

    body = _each_loop(nest, inside).body
    return replace(nest, body=(Loop(tuple(axes), kind, body, run),)) if axes else nest


def shared_out(nest: Nest, axis: int) -> Nest:
    """Let workers of a CPU each have a range of `axis`: a loop over it goes through theirs, and of
    an `At`, whose index they all look up, each runs what is in its range."""

    def own(step: Step) -> Steps:
        if not isinstance(step, Loop) or axis not in step.axes:
            return (step,)
        if isinstance(step, At):
            return (replace(step, kind="chunk"),)
        assert step.axes[0] == axis, "the first axis of its loop"
        return (Loop((axis,), "chunk", _over(step, step.axes[1:], step.body)),)

    return replace(nest, body=_rewritten(nest.body, own))


def in_lanes(nest: Nest, axis: int, length: int) -> Nest:
    """Let loops whose last axis is `axis` advance by `length`; lanes go through what is between."""

    def stepping(loop: Loop) -> Steps:
        lanes = Loop((axis,), "lane", loop.body, length)
        return (replace(loop, body=(lanes,), step=length) if loop.axes[-1] == axis else loop,)

    return _each_loop(nest, stepping)


def accumulated(nest: Nest, name: str) -> Nest:
    """Let each iteration of the innermost loop around all others keep its one element of memory
    `name` in memory of its own, and store it at the end."""
    (memory,) = (m for m in nest.memory if m.name == name)
    own, last = Alloc(f"{name}_sum", memory.dtype, 1), Register(f"{name}_last", memory.dtype)
    here = Address(own.name, AffineAccess(0, (0,) * nest.domain.rank))
    target = next(a for s in nest.statements for a in s.arguments if _is_in(a, name))

    def within(body: Steps) -> Steps:
        if len(body) == 1 and isinstance(body[0], Loop):
            return (replace(body[0], body=within(body[0].body)),)
        moved = with_arguments(body, lambda a: here if _is_in(a, name) else a)
        return own, *moved, Load((last,), (here,)), Store((), (target, last.name))

    return replace(nest, body=within(nest.body))


def looked_up(nest: Nest, axes: Sequence[int], kind: Kind, each: int, ahead: int = 0) -> Nest:
    """Let a worker find the iterations of the loop over `axes`, in which an `At` picks those of its
    own index, in the way of `kind`: `each` at a time."""

    def found(loop: Loop) -> Steps:
        mine = loop.axes == tuple(axes)
        return (replace(loop, kind=kind, each=each, ahead=ahead) if mine else loop,)

    return _each_loop(nest, found)


def _parted(loop: Loop, axes: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of a loop that are among `axes`, and the others."""
    mine = tuple(d for d in loop.axes if d in axes)
    return mine, tuple(d for d in loop.axes if d not in mine)


def _over(loop: Loop, axes: tuple[int, ...], body: Steps) -> Steps:
    """`body` in the loop over these axes alone; as it is if there are none."""
    return (replace(loop, axes=axes, body=body),) if axes else body


def _each_loop(nest: Nest, change: Callable[[Loop], Steps]) -> Nest:
    """The nest with what `change` makes of each loop that is no `At`, of inner ones first."""

    def changed(step: Step) -> Steps:
        return change(step) if isinstance(step, Loop) and not isinstance(step, At) else (step,)

    return replace(nest, body=_rewritten(nest.body, changed))


def _rewritten(body: Steps, change: Callable[[Step], Steps]) -> Steps:
    """The steps that `change` makes of each, of those inside of others first."""
    found: list[Step] = []
    for step in body:
        if isinstance(step, Loop | Unless):
            step = replace(step, body=_rewritten(step.body, change))
        found += change(step)
    return tuple(found)


def with_arguments(body: Steps, change: Callable[[Argument], Argument]) -> Steps:
    """The steps with what `change` makes of each argument of their statements."""

    def changed(step: Step) -> Steps:
        if not isinstance(step, Statement):
            return (step,)
        return (replace(step, arguments=tuple(map(change, step.arguments))),)

    return _rewritten(body, changed)


def _is_in(argument: Argument, name: str) -> bool:
    return isinstance(argument, Address) and argument.pointer == name
