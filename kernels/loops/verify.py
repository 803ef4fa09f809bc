"""The proof that a nest stays within its memory, and that its iterations do not interfere.

All accesses are affine, so that extremes lie at the ends of axes, and two iterations meet in an
element only where the strides of a store leave room for it. An index that a register holds is one
of its axis inside of an `At`, so that it is bounded like any other; what it is, nobody knows, so
that workers are apart only if they are at all of its values. Loads under a condition and calls but
`take` are not bounded here, nor is a list of `sorted` iterations proved to be whole: the
simulator's checks of running kernels are the judge of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any, NamedTuple

from graphc.base.errors import GraphError
from graphc.ir.sum_order import SumOrder
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
    ending,
    walk,
)
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.along import Along
from graphc.kernels.program.body.literals import TRUE
from graphc.kernels.program.body.reduce import Reduce
from graphc.kernels.program.body.statement import Address, Call, Load, Statement, Store

WORKERS = ("chunk", "block", "warp", "thread")
"""The kinds of loops whose iterations have workers of their own."""


class _Use(NamedTuple):
    """A statement that reads or writes a memory, in loops, after so many barriers, at the indices
    of `domain` for which it runs."""

    statement: Statement
    around: tuple[Loop, ...]
    phase: int
    domain: Domain

    @property
    def workers(self) -> frozenset[int]:
        """The axes along which another worker has each index."""
        return frozenset(d for x in self.around if x.kind in WORKERS for d in x.axes)

    @property
    def chosen(self) -> bool:
        """Whether data say where it is done: a worker may get there again, in order."""
        return any(isinstance(x, At) for x in self.around)

    @property
    def stores(self) -> bool:
        """Whether it changes the memory."""
        return isinstance(self.statement, Store | Reduce)

    @property
    def left(self) -> frozenset[int]:
        """The axes whose indices have results of their own."""
        over = self.statement.axes if isinstance(self.statement, Reduce) else ()
        return frozenset(d for loop in self.around for d in loop.axes).difference(over)

    def follows(self, other: _Use) -> bool:
        """Whether an element that both use is one worker's own, which may use it again: as data
        say, or in another loop with the same workers for all indices."""
        if self.statement.accesses != other.statement.accesses:
            return False
        if self.chosen or other.chosen:
            return self.workers == other.workers
        alike = ([(x.axes, x.kind, x.step, x.each) for x in use.around] for use in (self, other))
        return self.around != other.around and next(alike) == next(alike)


def verify_nest(nest: Nest) -> None:
    """Raise GraphError for a nest that is not well formed, leaves its memory or has a race.

    That is: a loop of an unknown kind, over an axis that a loop around it has or in steps that no
    loop of lanes goes through; a running result or sort whose axis no loop of workers goes along; a
    register that is read before it is made, or made twice, or a reduction's before its loops end; a
    reduction without loops, or by workers in no order; an index without a loop; an access outside
    of its memory; a store to memory that is not written; elements that several iterations store, or
    that one loads and another stores; a barrier that some threads of a block do not reach, or that
    is missing between two uses of shared memory; memory of an iteration that is not stored first;
    an `Unless` that is no copy.
    """
    memory = {m.name: m for m in nest.memory}
    made = dict(_allocs(nest.body))
    inner = {a.name: Memory(a.name, a.dtype, a.size, True) for a in made}
    shared = {a.name for a, kind in made.items() if kind == "block"}
    _expect(not memory.keys() & inner, sorted(inner), "new names of shared memory")
    known = memory | inner
    _check_steps(nest.body, (), set(), known)
    uses: dict[str, list[_Use]] = {}
    for use in _uses(nest):
        for access in use.statement.accesses:
            axes = {d for loop in use.around for d in loop.axes}
            loose = [d for d, stride in enumerate(access.strides) if stride and d not in axes]
            one = all(nest.domain.extents[d] == 1 for d in loose)
            _expect(one, use.statement, f"a loop over axes {loose}")
        _check_bounds(use.statement, use.domain, known)
        for pointer in use.statement.pointers:
            uses.setdefault(pointer, []).append(use)
    for name, found in uses.items():
        stores = [u for u in found if u.stores]
        loads = [u for u in found if not u.stores]
        if name in inner and name not in shared:
            _expect(found[0] in stores, found[0].statement, f"a store to {name}")
            continue
        _check_stores(name, stores, name in shared)
        if name in shared:
            _check_shared(name, loads, stores)
            continue
        for load, store in product(loads, stores):
            here = load.statement.accesses == store.statement.accesses
            own = here and (load.around == store.around or load.follows(store))
            _expect(own, load.statement, f"{name} to be loaded only where it is stored")


def _allocs(body: Sequence[Step], kind: str = "") -> Iterator[tuple[Alloc, str]]:
    """All arrays of a nest, with the kinds of the loops that they are in."""
    for step in body:
        if isinstance(step, Alloc):
            yield step, kind
        elif isinstance(step, Loop | Unless):
            yield from _allocs(step.body, step.kind if isinstance(step, Loop) else kind)


def _uses(nest: Nest) -> Iterator[_Use]:
    """All statements; barriers are counted in blocks alone, which is where they may be."""
    ended: dict[tuple[Loop, ...], Domain] = {}

    def use(statement: Statement, around: tuple[Loop, ...], phase: int) -> _Use:
        domain = ended.get(around, nest.domain) if ended else nest.domain
        if isinstance(statement, Along) and statement.count is not None:
            extents = [*domain.extents]
            extents[statement.op.axis] = statement.count
            ended[around] = replace(domain, extents=tuple(extents))
        return _Use(statement, around, phase, domain)

    def steps(body: Sequence[Step], around: tuple[Loop, ...]) -> Iterator[_Use]:
        phase = 0
        for step in body:
            if isinstance(step, Barrier):
                phase += 1
            elif isinstance(step, Loop) and step.kind == "block":
                yield from steps(step.body, (*around, step))
            else:
                inner = walk((step,), around)
                yield from (use(statement, loops, phase) for statement, loops in inner)

    return steps(nest.body, ())


def _expect(condition: object, step: object, what: str) -> None:
    if not condition:
        raise GraphError(f"nest: expected {what}, got {step}")


def _check_steps(
    body: Sequence[Step], around: tuple[Loop, ...], known: set[str], memory: Mapping[str, Memory]
) -> None:
    """Loops, registers, memory and barriers of the steps; `known` registers are made before."""
    known = set(known)
    for step in body:
        if isinstance(step, Loop):
            if isinstance(step, At):
                _expect(step.register in known, step, "registers that are known")
            _check_loop(step, around)
            _check_steps(step.body, (*around, step), known, memory)
            known.update(
                r.name
                for s, inner in walk((step,), around)
                if isinstance(s, Reduce) and ending(s, inner) == len(around)
                for r in s.results
            )
        elif isinstance(step, Unless):
            _check_copy(step)
            _check_steps(step.body, around, known, memory)
        elif isinstance(step, Alloc):
            own = around and around[-1].kind in ("block", "thread", "lane", "chunk")
            _expect(own, step, "shared memory of a block, or memory of a worker or lane")
        elif isinstance(step, Barrier):
            _expect(all(x.kind == "block" for x in around), step, "a barrier that all reach")
        else:
            kinds = {x.kind for x in around}
            alone = isinstance(step, Store) and "warp" in kinds and "lane" not in kinds
            _expect(around or not isinstance(step, Store), step, "a loop around a store")
            _expect(not alone, step, "lanes of a warp around a store")
            _expect(known.issuperset(step.operands), step, "registers that are known")
            made = [r.name for r in step.results]
            _expect(known.isdisjoint(made), step, "registers that are new")
            known.update(made if not isinstance(step, Reduce) else ())
            if isinstance(step, Along):
                _check_along(step, around)
            if isinstance(step, Reduce):
                _check_reduce(step, around)
            for pointer in step.pointers:
                _expect(pointer in memory, step, f"the memory {pointer}")
                if isinstance(step, Store | Reduce):
                    _expect(memory[pointer].written, step, f"{pointer} as written")


def _check_loop(loop: Loop, around: tuple[Loop, ...]) -> None:
    """Its kind, axes and steps, and what a thread does ahead."""
    _expect(loop.kind in KINDS, loop.kind, f"one of {', '.join(KINDS)}")
    _expect(loop.each >= 1 and loop.step >= 1, loop, "steps and iterations above 0")
    ahead = loop.body[: loop.ahead]
    loads = len(ahead) == loop.ahead >= 0 and all(isinstance(s, Load) for s in ahead)
    _expect(loads, loop, "loads ahead")
    if isinstance(loop, At):
        one = len(loop.axes) == loop.step == loop.each == 1 and loop.kind in ("serial", "chunk")
        _expect(one, loop, "the index of one axis, serial or of a chunk")
        alone = loop.kind == "serial" or all(x.kind == "serial" for x in around)
        _expect(alone, loop, "serial loops around a chunk")
        return
    if loop.kind == "lane":
        run = (loop.axes, loop.step) in [(x.axes[-1:], x.step) for x in around]
        _expect(run, loop, "a loop of lanes in a loop of such runs")
        return
    taken = {d for x in around for d in x.axes}
    new = taken.isdisjoint(loop.axes) and len(set(loop.axes)) == len(loop.axes)
    _expect(new, loop.axes, "axes without a loop")
    if loop.kind == "sorted":
        at = loop.body[-1] if loop.body else None
        _expect(isinstance(at, At) and taken.issuperset(at.axes), loop, "an index of a loop around")
    lanes = {x.axes for _, inner in walk(loop.body) for x in inner if x.kind == "lane"}
    runs = loop.axes[-1:] in lanes
    _expect(runs == (loop.step > 1), loop, "runs that loops of lanes go through")


def _check_copy(step: Unless) -> None:
    """It stores what it loads, from one memory to the same places of the other."""
    found = [s for s, _ in walk(step.body)]
    addresses = [a for s in found for a in s.arguments if isinstance(a, Address)]
    copy = [type(s) for s in found] == [Load, Store]
    copy = copy and [a.pointer for a in addresses] == [step.source, step.target]
    copy = copy and addresses[0].access == addresses[1].access
    _expect(copy and found[1].operands == (found[0].results[0].name,), step, "a copy")


def _check_along(along: Along, around: tuple[Loop, ...]) -> None:
    """The loop over its axis, and whether workers of that loop can join its runs."""
    kinds = [loop.kind for loop in around if along.op.axis in loop.axes]
    plain = {"serial", "chunk", "thread"}
    _expect(plain.issuperset(kinds) and kinds, along, "a loop over its axis, of no blocks or lanes")
    _expect(along.by >= 1 and along.pieces >= 1, along, "runs and pieces of at least 1")
    ordered = (along.by, along.pieces) == (1, 1) or along.count is None
    _expect(ordered, along, "an order of running results alone")


def _check_reduce(reduce: Reduce, around: tuple[Loop, ...]) -> None:
    """Loops over its axes, and an order of these where workers share them."""
    own = [x for x in around if not {*x.axes}.isdisjoint(reduce.axes)]
    whole = {d for x in own for d in x.axes}.issuperset(reduce.axes)
    _expect(whole and ending(reduce, around) >= 0, reduce, "loops over it")
    kinds, order = {x.kind for x in own}, reduce.order
    _expect(kinds <= {"serial", "chunk", "thread", "lane"}, reduce, "chunks or threads, if any")
    _expect(order or kinds <= {"serial", "lane"}, reduce, "an order for workers")
    if isinstance(order, SumOrder):
        named = {name for loop in order.loops for name in loop.axes}
        _expect(named == {*map(str, reduce.axes)}, reduce, "an order of its axes")
    for access in reduce.accesses:
        _expect(not any(access.strides[d] for d in reduce.axes), reduce, "an element for all")
        _expect(reduce.combine in ("sum", "prod"), reduce, "a sum or product in memory")


def _check_shared(name: str, loads: Sequence[_Use], stores: Sequence[_Use]) -> None:
    """A barrier lies between a store and a load, and a store comes first."""
    first = min((store.phase for store in stores), default=None)
    for load in loads:
        _expect(first is not None and load.phase >= first, load.statement, f"a store to {name}")
        same = any(load.phase == store.phase for store in stores)
        _expect(not same, load.statement, f"a barrier before {name} is read")


def _check_stores(name: str, stores: Sequence[_Use], shared: bool) -> None:
    """Each element is stored once; in shared memory once between two barriers."""
    stores = [store for store in stores if store.domain.size]
    for store in stores:
        (access,) = store.statement.accesses
        own = {d for x in store.around if x.kind == "block" for d in x.axes} if shared else set()
        axes = store.left - own
        if store.chosen:
            axes = store.workers | {d for d, stride in enumerate(access.strides) if stride}
        if not _injective(access, sorted(axes), store.domain):
            raise GraphError(f"{name}: several iterations store one element, at {access}")
    for one, other in combinations(stores, 2):
        if one.follows(other) or (shared and one.phase != other.phase):
            continue
        (access,), (further,) = one.statement.accesses, other.statement.accesses
        if one.domain != other.domain or _meet(access, further, one.domain):
            raise GraphError(f"{name}: two stores meet, at {access} and {further}")


def _check_bounds(statement: Statement, domain: Domain, memory: Mapping[str, Memory]) -> None:
    """Loads without a condition, also at places that data say, and stores stay in their memory."""
    guarded = isinstance(statement, Load) and not statement.plain
    taken = _taken(statement)
    moves = isinstance(statement, Load | Store | Reduce) and bool(statement.pointers)
    if guarded or (taken is None and not moves):
        return
    (address,) = (a for a in statement.arguments if isinstance(a, Address))
    (access,) = statement.accesses
    whole = isinstance(statement, Store) and statement.lanes
    least, most = reach(access, domain, whole)
    least, most = least + min(0, taken or 0), most + max(0, taken or 0)
    size = memory[address.pointer].size
    inside = domain.size == 0 or (least >= 0 and most < size)
    _expect(inside, statement, f"0 to {size - 1}, not {least} to {most}, in {address.pointer}")


def _taken(statement: Statement) -> int | None:
    """Elements from the first to the last that a `take` without a condition may read; None for
    others, and where there are none."""
    if not isinstance(statement, Call) or statement.function != "take":
        return None
    settings: tuple[Any, ...] = statement.settings
    _, divisor, stride, extent, _ = settings
    if statement.arguments[0] != TRUE or divisor != 1 or not extent:
        return None
    return int(stride * (extent - 1))


def reach(access: AffineAccess, domain: Domain, whole: bool = False) -> tuple[int, int]:
    """The least and the greatest element of a plain access; with `whole`, of whole registers."""
    least = most = access.offset
    for stride, extent in _dimensions(access, range(domain.rank), domain, whole):
        least += min(0, stride * (extent - 1))
        most += max(0, stride * (extent - 1))
    return least, most


def _dimensions(
    access: AffineAccess, axes: Sequence[int], domain: Domain, whole: bool = False
) -> list[tuple[int, int]]:
    """The strides of an access along `axes`, with the indices that there are.

    The lane axis is one of registers and one of lanes, or one alone where registers follow each
    other; with `whole` registers, also of lanes beyond the axis.
    """
    found = []
    for axis in axes:
        stride, extent = access.strides[axis], domain.extents[axis]
        if axis != domain.lane:
            found.append((stride, extent))
            continue
        extent = domain.steps(axis) * domain.width if whole else extent
        if access.lane_stride == stride:
            found.append((stride, extent))
        else:
            found.append((stride * domain.width, domain.steps(axis)))
            found.append((access.lane_stride, min(domain.width, extent)))
    return found


def _injective(access: AffineAccess, axes: Sequence[int], domain: Domain) -> bool:
    """Whether different indices along `axes` are different elements: each stride is longer than all
    that the shorter ones reach together."""
    reached = 0
    for stride, extent in sorted((abs(s), n) for s, n in _dimensions(access, axes, domain)):
        if extent > 1:
            if stride <= reached:
                return False
            reached += stride * (extent - 1)
    return True


def _meet(one: AffineAccess, other: AffineAccess, domain: Domain) -> bool:
    """Whether two accesses may have an element in common."""
    (low, high), (low2, high2) = reach(one, domain), reach(other, domain)
    if high < low2 or high2 < low:
        return False
    if (one.strides, one.lane_stride) != (other.strides, other.lane_stride):
        return True
    # A difference of indices, digit by digit: the longest stride first.
    apart = abs(one.offset - other.offset)
    dimensions = _dimensions(one, range(domain.rank), domain)
    return _sums_to(apart, sorted(((abs(s), n) for s, n in dimensions if s), reverse=True))


def _sums_to(apart: int, dimensions: list[tuple[int, int]]) -> bool:
    """Whether strides, each at most as many times as its axis has steps, forward or back, sum to
    `apart`."""
    if not dimensions:
        return apart == 0
    (stride, extent), *rest = dimensions
    left = sum(s * (n - 1) for s, n in rest)
    first = max(-(extent - 1), -((left - apart) // stride))
    last = min(extent - 1, (apart + left) // stride)
    return any(_sums_to(apart - stride * k, rest) for k in range(first, last + 1))
