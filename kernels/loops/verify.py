"""The proof that a nest stays within its memory, and that its parallel iterations have no races.

All accesses are affine, so that extremes lie at the ends of axes, and two iterations meet in an
element only where the strides of a store leave room for it. The simulator's checks of running
kernels remain the judge of what is printed.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import combinations

from graphc.base.errors import GraphError
from graphc.kernels.loops.language import Alloc, Barrier, Loop, Memory, Nest, Step, walk
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.statement import Address, Load, Statement, Store


def verify_nest(nest: Nest) -> None:
    """Raises GraphError for a register that is read before it is made or is made twice, an index
    without a loop, an access outside of its memory, a store to what is not written, elements that
    several iterations store, a barrier that some threads of a block do not reach, and one that is
    missing between a store to shared memory and a load."""
    given = {m.name for m in nest.memory}
    memory = {m.name: m for m in nest.memory}
    _check_steps(nest.body, (), set(), memory)
    _check_barriers(nest.body, memory.keys() - given)
    stores: dict[str, list[tuple[AffineAccess, tuple[int, ...]]]] = {}
    for statement, around in walk(nest.body):
        axes = tuple(sorted({d for loop in around for d in loop.axes}))
        for access in statement.accesses:
            loose = [d for d, stride in enumerate(access.strides) if stride and d not in axes]
            extents = nest.domain.extents
            _expect(all(extents[d] == 1 for d in loose), statement, f"a loop over axes {loose}")
        _check_bounds(statement, nest.domain, memory)
        if isinstance(statement, Store):
            (name,) = statement.pointers
            own = [d for loop in around if loop.kind == "block" for d in loop.axes]
            axes = axes if name in given else tuple(d for d in axes if d not in own)
            stores.setdefault(name, []).append((statement.accesses[0], axes))
    for name, places in stores.items():
        for access, axes in places:
            if not _injective(access, axes, nest.domain):
                raise GraphError(f"{name}: several iterations store one element, at {access}")
        for (one, _), (other, _) in combinations(places, 2):
            if _meet(one, other, nest.domain):
                raise GraphError(f"{name}: two stores meet, at {one} and {other}")


def _expect(condition: bool, step: object, what: str) -> None:
    if not condition:
        raise GraphError(f"nest: expected {what}, got {step}")


def _check_steps(
    body: Sequence[Step], around: tuple[Loop, ...], known: set[str], memory: dict[str, Memory]
) -> None:
    """Registers, memory and barriers of the steps; `known` registers are made before."""
    known = set(known)
    for step in body:
        if isinstance(step, Loop):
            _expect(0 <= step.ahead <= len(step.body), step, "steps ahead that there are")
            _check_steps(step.body, (*around, step), known, memory)
        elif isinstance(step, Alloc):
            _expect(step.name not in memory, step, "a new name")
            memory[step.name] = Memory(step.name, step.dtype, step.size, written=True)
        elif isinstance(step, Barrier):
            _expect(all(x.kind == "block" for x in around), step, "a barrier that all reach")
        else:
            _expect(known.issuperset(step.operands), step, "registers that are known")
            made = [r.name for r in step.results]
            _expect(known.isdisjoint(made), step, "registers that are new")
            known.update(made)
            for pointer in step.pointers:
                _expect(pointer in memory, step, f"the memory {pointer}")
                stores = isinstance(step, Store)
                _expect(not stores or memory[pointer].written, step, f"{pointer} as written")


def _check_barriers(body: Sequence[Step], shared: Set[str]) -> None:
    """What a block shares is not read before a barrier behind the store."""
    stored = set[str]()
    for step in body:
        if isinstance(step, Barrier):
            stored.clear()
        elif isinstance(step, Loop) and step.kind == "block":
            _check_barriers(step.body, shared)
        else:
            inside = [s for s, _ in walk((step,))]
            written = {p for s in inside if isinstance(s, Store) for p in s.pointers}
            read = {p for s in inside if not isinstance(s, Store) for p in s.pointers}
            early = read & shared & (stored | written)
            _expect(not early, step, f"a barrier before {', '.join(sorted(early))} is read")
            stored |= written


def _check_bounds(statement: Statement, domain: Domain, memory: dict[str, Memory]) -> None:
    """Loads without a condition, and stores, stay within their memory."""
    if not isinstance(statement, Load | Store) or (
        isinstance(statement, Load) and not statement.plain
    ):
        return
    (address,) = (a for a in statement.arguments if isinstance(a, Address))
    assert address.access is not None
    least, most = reach(address.access, domain)
    size = memory[address.pointer].size
    inside = domain.size == 0 or (least >= 0 and most < size)
    _expect(inside, statement, f"0 to {size - 1}, not {least} to {most}, in {address.pointer}")


def reach(access: AffineAccess, domain: Domain) -> tuple[int, int]:
    """The least and the greatest element of a plain access."""
    least = most = access.offset
    for stride, extent in _dimensions(access, range(domain.rank), domain):
        least += min(0, stride * (extent - 1))
        most += max(0, stride * (extent - 1))
    return least, most


def _dimensions(access: AffineAccess, axes: Sequence[int], domain: Domain) -> list[tuple[int, int]]:
    """The strides of an access along `axes`, with the indices that there are; the lane axis is one
    of registers and one of lanes, or one alone where registers follow each other."""
    found = []
    for axis in axes:
        stride, extent = access.strides[axis], domain.extents[axis]
        if axis != domain.lane or access.lane_stride == stride:
            found.append((stride, extent))
        else:
            found.append((stride * domain.width, -(-extent // domain.width)))
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
