"""The proof that a nest stays within its memory, and that its iterations do not interfere.

All accesses are affine, so that extremes lie at the ends of axes, and two iterations meet in an
element only where the strides of a store leave room for it. Loads under a condition and calls are
not bounded here: the simulator's checks of running kernels are the judge of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import NamedTuple

from graphc.base.errors import GraphError
from graphc.kernels.loops.language import KINDS, Alloc, Barrier, Loop, Memory, Nest, Step, walk
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.along import Along
from graphc.kernels.program.body.statement import Address, Load, Statement, Store


class _Use(NamedTuple):
    """A statement that reads or writes a memory, in loops, after so many barriers, at the indices
    of `domain` for which it runs."""

    statement: Statement
    around: tuple[Loop, ...]
    phase: int
    domain: Domain


def verify_nest(nest: Nest) -> None:
    """Raise GraphError for a nest that is not well formed, leaves its memory or has a race.

    That is: a loop of an unknown kind, over an axis that a loop around it has or in steps that no
    loop of lanes goes through; a running result or sort whose axis no loop of workers goes along; a
    register that is read before it is made, or made twice; an index without a loop; an access
    outside of its memory; a store to memory that is not written; elements that several iterations
    store, or that one loads and another stores; a barrier that some threads of a block do not
    reach, or that is missing between two uses of shared memory.
    """
    memory = {m.name: m for m in nest.memory}
    shared = {s.name: Memory(s.name, s.dtype, s.size, True) for s in _allocs(nest.body)}
    _expect(not memory.keys() & shared, sorted(shared), "new names of shared memory")
    known = memory | shared
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
        stores = [u for u in found if isinstance(u.statement, Store)]
        loads = [u for u in found if not isinstance(u.statement, Store)]
        _check_stores(name, stores, name in shared)
        if name in shared:
            _check_shared(name, loads, stores)
            continue
        for load, store in product(loads, stores):
            here = load.statement.accesses == store.statement.accesses
            own = here and load.around == store.around
            _expect(own, load.statement, f"{name} to be loaded only where it is stored")


def _allocs(body: Sequence[Step]) -> Iterator[Alloc]:
    for step in body:
        if isinstance(step, Alloc):
            yield step
        elif isinstance(step, Loop):
            yield from _allocs(step.body)


def _uses(nest: Nest) -> Iterator[_Use]:
    """All statements; barriers are counted in blocks alone, which is where they may be."""
    ended: dict[tuple[Loop, ...], Domain] = {}

    def use(statement: Statement, around: tuple[Loop, ...], phase: int) -> _Use:
        domain = ended.get(around, nest.domain)
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
            elif isinstance(step, Loop):
                inner = walk(step.body, (*around, step))
                yield from (use(statement, loops, phase) for statement, loops in inner)
            elif isinstance(step, Statement):
                yield use(step, around, phase)

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
            _check_loop(step, around)
            _check_steps(step.body, (*around, step), known, memory)
        elif isinstance(step, Alloc):
            _expect(around and around[-1].kind == "block", step, "shared memory of a block")
        elif isinstance(step, Barrier):
            _expect(all(x.kind == "block" for x in around), step, "a barrier that all reach")
        else:
            _expect(around or not isinstance(step, Store), step, "a loop around a store")
            _expect(known.issuperset(step.operands), step, "registers that are known")
            made = [r.name for r in step.results]
            _expect(known.isdisjoint(made), step, "registers that are new")
            known.update(made)
            if isinstance(step, Along):
                _check_along(step, around)
            for pointer in step.pointers:
                _expect(pointer in memory, step, f"the memory {pointer}")
                stores = isinstance(step, Store)
                _expect(not stores or memory[pointer].written, step, f"{pointer} as written")


def _check_loop(loop: Loop, around: tuple[Loop, ...]) -> None:
    """Its kind, axes and steps, and what a thread does ahead."""
    _expect(loop.kind in KINDS, loop.kind, f"one of {', '.join(KINDS)}")
    _expect(loop.each >= 1 and loop.step >= 1, loop, "steps and iterations above 0")
    ahead = loop.body[: loop.ahead]
    loads = len(ahead) == loop.ahead >= 0 and all(isinstance(s, Load) for s in ahead)
    _expect(loads, loop, "loads ahead")
    outer = around[-1] if around else None
    if loop.kind == "lane":
        run = outer is not None and (outer.axes[-1:], outer.step) == (loop.axes, loop.step)
        _expect(run, loop, "a loop of lanes in a loop of such runs")
        return
    taken = {d for x in around for d in x.axes}
    new = taken.isdisjoint(loop.axes) and len(set(loop.axes)) == len(loop.axes)
    _expect(new, loop.axes, "axes without a loop")
    lanes = sum(isinstance(s, Loop) and s.kind == "lane" for s in loop.body)
    _expect(lanes == (loop.step > 1), loop, "runs that one loop of lanes goes through")


def _check_along(along: Along, around: tuple[Loop, ...]) -> None:
    """The loop over its axis, and whether workers of that loop can join its runs."""
    kinds = [loop.kind for loop in around if along.op.axis in loop.axes]
    plain = {"serial", "chunk", "thread"}
    _expect(plain.issuperset(kinds) and kinds, along, "a loop over its axis, of no blocks or lanes")
    _expect(along.by >= 1 and along.pieces >= 1, along, "runs and pieces of at least 1")
    ordered = (along.by, along.pieces) == (1, 1) or along.count is None
    _expect(ordered, along, "an order of running results alone")


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
        axes = sorted({d for loop in store.around for d in loop.axes} - own)
        if not _injective(access, axes, store.domain):
            raise GraphError(f"{name}: several iterations store one element, at {access}")
    for one, other in combinations(stores, 2):
        if shared and one.phase != other.phase:
            continue
        (access,), (further,) = one.statement.accesses, other.statement.accesses
        if one.domain != other.domain or _meet(access, further, one.domain):
            raise GraphError(f"{name}: two stores meet, at {access} and {further}")


def _check_bounds(statement: Statement, domain: Domain, memory: Mapping[str, Memory]) -> None:
    """Loads without a condition, and stores, stay within their memory."""
    guarded = isinstance(statement, Load) and not statement.plain
    if guarded or not isinstance(statement, Load | Store):
        return
    (address,) = (a for a in statement.arguments if isinstance(a, Address))
    assert address.access is not None
    whole = isinstance(statement, Store) and statement.lanes
    least, most = reach(address.access, domain, whole)
    size = memory[address.pointer].size
    inside = domain.size == 0 or (least >= 0 and most < size)
    _expect(inside, statement, f"0 to {size - 1}, not {least} to {most}, in {address.pointer}")


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
