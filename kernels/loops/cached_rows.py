"""Cache elements of a row that one loop computes and later loops read.

The loops over a row recompute what they share, such as softmax's exponentials, which both its sum
and its quotients need. Where recomputing costs more than a store and a load, the first loop stores
the values, in a row-sized cache in the nearest cache level or in memory where the last loop is
going to store an output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from graphc.ir import DTYPES
from graphc.kernels.loops.language import Alloc
from graphc.kernels.loops.rows import Rows
from graphc.kernels.program.body.reduce import Reduce
from graphc.kernels.program.body.statement import Address, Load, Register, Statement, Store

Cost = Callable[[Statement], float]
"""The cost of a statement, in the caller's unit."""
AddressOf = Callable[[Register], Address | None]
"""Allocates memory for all elements of a value of the row; None if there is none left."""

Statements = tuple[Statement, ...]
_DTYPES = ("f32", "f64")


def cache_rows(rows: Rows, cost: Cost, min_cost: float, limit: int) -> Rows:
    """`rows` with values cached that cost `min_cost` or more to recompute, in at most `limit`
    bytes."""
    access, size, cached = rows.cache_access, rows.cache_elements, list[Alloc]()
    if access is None:
        return rows

    def allocate(register: Register) -> Address | None:
        new = Alloc(f"held{len(cached)}_data", register.dtype, size)
        if size * sum(DTYPES[a.dtype].itemsize for a in (*cached, new)) > limit:
            return None
        cached.append(new)
        return Address(new.name, access)

    return rows.with_bodies(bodies_with_cache(rows, cost, min_cost, allocate), cached)


def cache_rows_in_outputs(rows: Rows, cost: Cost, min_cost: float) -> Rows:
    """`rows` with values that cost `min_cost` or more to recompute cached in the memory of outputs
    of the same dtype, until the last loop stores these."""
    dtypes = {name: value.type.dtype for value, name in rows.pointers.items()}
    elements = rows.loop_program.statements
    stores = [s for s in rows.loops[-1].body.statements if isinstance(s, Store)]
    free = [
        address
        for s in stores
        if isinstance(address := s.arguments[0], Address) and address.access is not None
        if sum(address.pointer in other.pointers for other in elements) == 1
    ]

    def allocate(register: Register) -> Address | None:
        place = next((a for a in free if dtypes.get(a.pointer) == register.dtype), None)
        if place is not None:
            free.remove(place)
        return place

    return rows.with_bodies(bodies_with_cache(rows, cost, min_cost, allocate))


def bodies_with_cache(
    rows: Rows, cost: Cost, min_cost: float, allocate: AddressOf
) -> list[Statements]:
    """The statements of the loops, where the first loop that computes an expensive value stores it
    to memory from `allocate`, and later loops load it."""
    numbers, cached = value_numbers(rows), dict[int, Address]()
    made: dict[int, tuple[int, Register]] = {}
    bodies: list[Statements] = []
    for k, loop in enumerate(rows.loops):
        reads: dict[str, Address] = {}
        old = loop.statements
        for register in _recomputed(old, lambda name: numbers[name] in made, cost, min_cost):
            number = numbers[register.name]
            if number not in cached and (place := allocate(register)):
                cached[number] = place
            if number in cached:
                reads[register.name] = cached[number]
        bodies.append(_loading_cached(old, reads))
        for statement in bodies[k]:
            for register in () if isinstance(statement, Load) else statement.results:
                made.setdefault(numbers[register.name], (k, register))
    for number, place in cached.items():
        k, register = made[number]
        at = next(i for i, s in enumerate(bodies[k]) if register in s.results) + 1
        stored = Store((), (place, register.name))  # as soon as it is computed
        bodies[k] = (*bodies[k][:at], stored, *bodies[k][at:])
    return bodies


def value_numbers(rows: Rows) -> dict[str, int]:
    """A number for each register of the loops' bodies, equal for registers of equal value."""
    found: dict[str, int] = {}
    known: dict[object, int] = {}
    for s in (s for loop in rows.loops for s in loop.statements):
        arguments = tuple(found.get(a, a) if isinstance(a, str) else a for a in s.arguments)
        what = type(s), replace(s, results=(), arguments=()), arguments
        for i, register in enumerate(s.results):
            found[register.name] = known.setdefault((what, i), len(known))
    return found


def _roots(body: Statements) -> list[str]:
    """The registers that a loop ultimately needs: those it reduces and stores."""
    reduced = (s for s in body if isinstance(s, Reduce))
    return [x for s in (*reduced, *(s for s in body if not s.results)) for x in s.operands]


def _recomputed(
    body: Statements, made: Callable[[str], bool], cost: Cost, min_cost: float
) -> Iterator[Register]:
    """The largest values of a loop that an earlier loop has computed and that are expensive."""
    makers = {s.results[0].name: s for s in body if len(s.results) == 1}
    waiting, seen = _roots(body), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in makers:
            continue
        seen.add(name)
        (register,) = makers[name].results
        taken = _dependencies(body, [name])
        repeated = sum(cost(s) for s in body if any(r.name in taken for r in s.results))
        if made(name) and register.dtype in _DTYPES and repeated >= min_cost:
            yield register
        else:
            waiting += makers[name].operands


def _dependencies(body: Statements, roots: Iterable[str]) -> set[str]:
    """The registers that `roots` depend on, themselves included."""
    found = set(roots)
    for s in reversed(body):
        if any(r.name in found for r in s.results):
            found.update(s.operands)
    return found


def _loading_cached(body: Statements, reads: Mapping[str, Address]) -> Statements:
    """The statements with some registers loaded from the cache, without those that become
    unused."""
    loaded = tuple(
        Load(s.results, (reads[s.results[0].name],))
        if s.results and s.results[0].name in reads
        else s
        for s in body
    )
    needed = _dependencies(loaded, _roots(body))
    return tuple(
        s
        for s in loaded
        if isinstance(s, Reduce) or not s.results or any(r.name in needed for r in s.results)
    )
