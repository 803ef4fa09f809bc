"""Schedules: rewrites of nests, each of which keeps what a nest computes.

A rewrite says under which condition it applies, and asserts it. Tests interpret nests before and
after each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from graphc.kernels.loops.along import along_of
from graphc.kernels.loops.language import Alloc, Barrier, Kind, Loop, Nest, Step
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.along import Along
from graphc.kernels.program.body.reduce import Order, Reduce
from graphc.kernels.program.body.statement import Address, Load, Register, Statement, Store


def bind(nest: Nest, kind: Kind) -> Nest:
    """Let the workers of `kind` run the only loop of a plain nest. Its iterations store different
    elements, so that their order does not matter."""
    before, loop = _last_loop(nest)
    assert loop.kind == "serial", "a plain nest has one serial loop"
    return replace(nest, body=(*before, replace(loop, kind=kind)))


def hoist(nest: Nest) -> Nest:
    """Move statements that use no index in front of the loop."""
    before, loop = _last_loop(nest)
    early, late = _split(loop.body, axes_of(nest.statements, nest.domain), frozenset(loop.axes))
    return replace(nest, body=(*before, *early, replace(loop, body=late)))


def split_last(nest: Nest) -> Nest:
    """Split the loop into one over the last axis, inside one over the others.

    Statements that do not use the last index are computed once for the inner loop.
    """
    before, loop = _last_loop(nest)
    if len(loop.axes) < 2:
        return nest
    last = loop.axes[-1]
    early, late = _split(loop.body, axes_of(nest.statements, nest.domain), frozenset((last,)))
    inner = Loop((last,), loop.kind, late)
    return replace(nest, body=(*before, Loop(loop.axes[:-1], loop.kind, (*early, inner))))


def in_runs(nest: Nest, length: int) -> Nest:
    """Let the loop advance by runs of `length` neighbours along its last axis.

    A loop of lanes goes through each run, with the statements that use the last index. The last run
    along the axis may be shorter; not all printers take such nests.
    """
    before, loop = _last_loop(nest)
    last = loop.axes[-1]
    once, each = _split(loop.body, axes_of(nest.statements, nest.domain), frozenset((last,)))
    lanes = Loop((last,), "lane", each, length)
    return replace(nest, body=(*before, replace(loop, body=(*once, lanes), step=length)))


def along_last(nest: Nest, kind: Kind = "serial", each: int = 1) -> Nest:
    """Split the loop into one of `kind` over the axis of its running result or sort, inside one
    over the rows; a worker has `each` neighbouring rows together."""
    before, loop = _last_loop(nest)
    axis = along_of(nest).op.axis
    inner = Loop((axis,), kind, loop.body)
    rows = tuple(d for d in loop.axes if d != axis)
    return replace(nest, body=(*before, Loop(rows, loop.kind, (inner,), each=each)))


def in_order(nest: Nest, by: int = 1, pieces: int = 1) -> Nest:
    """Join a running result in runs of `by` and in `pieces`. The op is associative, but for the
    rounding of floats."""
    old = along_of(nest)
    return replace(nest, body=_replaced(nest.body, old, replace(old, by=by, pieces=pieces)))


def in_sum_order(nest: Nest, rows: Order, columns: Order | None = None) -> Nest:
    """Reduce rows in one order, and columns, whose results are in memory, in another. Reductions
    are associative, but for the rounding of floats."""

    def ordered(statement: Statement) -> Statement:
        if not isinstance(statement, Reduce) or not statement.axes:
            return statement
        return replace(statement, order=columns if statement.address else rows)

    return replace(nest, body=_changed(nest.body, ordered))


def rows_by(nest: Nest, kind: Kind, each: int = 1, elements: Kind = "serial") -> Nest:
    """Let the workers of `kind` run the loop over rows of a nest with reductions, `each`
    neighbouring rows together, and those of another kind the loops over a row's `elements`."""
    (rows,) = nest.body
    assert isinstance(rows, Loop) and rows.kind == "serial", "a plain nest has one serial loop"
    steps = (replace(s, kind=elements) if isinstance(s, Loop) else s for s in rows.body)
    return replace(nest, body=(replace(rows, kind=kind, body=tuple(steps), each=each),))


def rows_in_runs(nest: Nest, length: int, of_rows: bool = False) -> Nest:
    """Let the loops over a row's elements, or with `of_rows` the one over rows, advance by runs of
    `length` neighbours along the last axis, with loops of lanes as `in_runs` has them. With runs
    `of_rows` each loop over elements computes itself what there is once per row."""
    (rows,) = nest.body
    assert isinstance(rows, Loop), "a loop over rows"
    *_, last = (s for s in rows.body if isinstance(s, Loop))
    known, axis = axes_of(nest.statements, nest.domain), (rows if of_rows else last).axes[-1]
    body, waiting = list[Step](), list[Step]()
    for step in rows.body:
        if isinstance(step, Loop):
            once, each = _split((*waiting, *step.body), known, frozenset((axis,)))
            inside = (*once, Loop((axis,), "lane", each, length))
            body.append(replace(step, body=inside, step=1 if of_rows else length))
            waiting = []
        else:
            (waiting if of_rows else body).append(step)
    body += [Loop((axis,), "lane", tuple(waiting), length)] if waiting else []
    return replace(nest, body=(replace(rows, body=tuple(body), step=length if of_rows else 1),))


def loads_ahead(nest: Nest, each: int) -> Nest:
    """Give each thread `each` iterations of the loop, whose loads that need no computed register
    come first, for all of them."""
    before, loop = _last_loop(nest)
    assert loop.kind == "thread", "threads have iterations of their own"
    first = [isinstance(s, Load) and not s.operands for s in loop.body]
    loads = tuple(s for s, early in zip(loop.body, first, strict=True) if early)
    rest = tuple(s for s, early in zip(loop.body, first, strict=True) if not early)
    ahead = replace(loop, body=(*loads, *rest), each=each, ahead=len(loads))
    return replace(nest, body=(*before, ahead))


def staged(nest: Nest, name: str, shared: Alloc, place: AffineAccess, order: Sequence[int]) -> Nest:
    """Let a block of threads have each index of the first axis, and keep what it stores in memory
    `name` in `shared` memory, an element at `place`, until all of it is there; then copy it, going
    through the other axes in `order`. The nest is of one loop over threads, in runs or not."""
    (loop,) = nest.body
    assert isinstance(loop, Loop) and loop.kind == "thread", "a loop of threads"
    (store,) = (s for s in nest.statements if isinstance(s, Store) and name in s.pointers)
    (memory,) = (m for m in nest.memory if m.name == name)
    target, _ = store.arguments
    here, element = Address(shared.name, place), Register(f"{name}_element", memory.dtype)
    copy = Load((element,), (here,)), Store((), (target, element.name))
    waiting = replace(store, arguments=(here, store.arguments[1]))
    inside = replace(loop, axes=loop.axes[1:], body=_replaced(loop.body, store, waiting))
    steps = shared, inside, Barrier(), Loop(tuple(order), "thread", copy)
    return replace(nest, body=(Loop(loop.axes[:1], "block", steps),))


def _replaced(body: Sequence[Step], old: Statement, new: Statement) -> tuple[Step, ...]:
    """The body, with `new` in place of `old`."""
    return _changed(body, lambda statement: new if statement == old else statement)


def _changed(body: Sequence[Step], change: Callable[[Statement], Statement]) -> tuple[Step, ...]:
    """The body with all statements changed."""

    def changed(step: Step) -> Step:
        if isinstance(step, Loop):
            return replace(step, body=_changed(step.body, change))
        return change(step) if isinstance(step, Statement) else step

    return tuple(map(changed, body))


def _last_loop(nest: Nest) -> tuple[tuple[Step, ...], Loop]:
    """The loop that a nest ends with, and the steps in front of it."""
    *before, loop = nest.body
    assert isinstance(loop, Loop), "the last step of a nest is its loop"
    return tuple(before), loop


def axes_of(statements: Iterable[Statement], domain: Domain) -> Mapping[str, frozenset[int]]:
    """The axes that each register depends on."""
    known: dict[str, frozenset[int]] = {}
    for statement in statements:
        used = set[int]()
        for access in statement.accesses:
            used |= {d for d, stride in enumerate(access.strides) if stride}
            if access.lane_stride and domain.lane is not None:
                used.add(domain.lane)
        if isinstance(statement, Along):
            used.add(statement.op.axis)
        if isinstance(statement, Reduce):
            left = frozenset(range(domain.rank)).difference(statement.axes)
            known.update((r.name, left) for r in statement.results)
            continue
        axes = frozenset(used.union(*(known.get(name, ()) for name in statement.operands)))
        known.update((register.name, axes) for register in statement.results)
    return known


def _split(
    body: Sequence[Step], known: Mapping[str, frozenset[int]], axes: frozenset[int]
) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """The statements of a loop's body that depend on none of `axes`, store nothing and reduce
    nothing, and the others; registers depend on the `known` axes."""
    statements = [s for s in body if isinstance(s, Statement)]
    assert len(statements) == len(body), "a loop of statements alone"

    def early(s: Statement) -> bool:
        kept = bool(s.results) and not isinstance(s, Reduce)
        return kept and all(not known[r.name] & axes for r in s.results)

    return tuple(filter(early, statements)), tuple(s for s in statements if not early(s))
