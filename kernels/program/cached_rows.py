"""Elements of a row that one loop computes and later ones read.

The loops of a row compute anew what they share, as softmax's exponentials, which its sum and its
quotients need. What is dearer than to be written down and read is computed by the first of them,
which leaves it in memory of a row's length, the cache next to the core, or where the last loop is
going to store an output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from graphc.kernels.program.body.statement import Address, Load, Register, Statement, Store
from graphc.kernels.program.rows import CachedRow, RowLoop, Rows

Cost = Callable[[Statement], float]
AddressOf = Callable[[Register], Address | None]
"""Memory for all elements of a value that is to be held, if there is some."""

_DTYPES = ("f32", "f64")


def cache_rows(rows: Rows, cost: Cost, dear: float, limit: int) -> Rows:
    """`rows` with those values held that cost `dear` or more to compute again, as long as they
    take at most `limit` bytes together."""
    access, size, held = rows.place, rows.length, list[CachedRow]()
    if access is None:
        return rows

    def room(register: Register) -> Address | None:
        new = CachedRow(f"held{len(held)}", register.dtype, size)
        if sum(h.nbytes for h in held) + new.nbytes > limit:
            return None
        held.append(new)
        return Address(new.pointer, access)

    loops = _loops_with_cache(rows, cost, dear, room)
    return replace(rows, loops=loops, held=tuple(held))


def cache_rows_in_outputs(rows: Rows, cost: Cost, dear: float) -> Rows:
    """`rows` with values held that cost `dear` or more to compute again, as far as the last loop
    stores outputs of their dtype, in whose memory they lie until then."""
    dtypes = {name: value.type.dtype for value, name in rows.pointers.items()}
    elements = rows.elements.statements
    stores = [s for s in rows.loops[-1].body.statements if isinstance(s, Store)]
    free = [
        address
        for s in stores
        if isinstance(address := s.arguments[0], Address) and address.access is not None
        if sum(address.pointer in other.pointers for other in elements) == 1
    ]

    def room(register: Register) -> Address | None:
        place = next((a for a in free if dtypes.get(a.pointer) == register.dtype), None)
        if place is not None:
            free.remove(place)
        return place

    return replace(rows, loops=_loops_with_cache(rows, cost, dear, room))


def _loops_with_cache(rows: Rows, cost: Cost, dear: float, room: AddressOf) -> tuple[RowLoop, ...]:
    """The loops, of which the first to make a dear value leaves it where there is `room`, and later
    ones read it there."""
    numbers, held = _numbers(rows), dict[int, Address]()
    made: dict[int, tuple[int, Register]] = {}
    loops: list[RowLoop] = []
    for k, loop in enumerate(rows.loops):
        reads: dict[str, Address] = {}
        for register in _recomputed(loop, lambda name: numbers[name] in made, cost, dear):
            number = numbers[register.name]
            if number not in held and (place := room(register)):
                held[number] = place
            if number in held:
                reads[register.name] = held[number]
        loops.append(_loading_cached(loop, reads))
        for statement in loops[k].body.statements:
            for register in () if isinstance(statement, Load) else statement.results:
                made.setdefault(numbers[register.name], (k, register))
    for number, place in held.items():
        k, register = made[number]
        loops[k] = _storing_cached(loops[k], register, place)
    return tuple(loops)


def _numbers(rows: Rows) -> dict[str, int]:
    """A number for each register of the loops' bodies, one for those that hold the same value."""
    found: dict[str, int] = {}
    known: dict[object, int] = {}
    for s in (s for loop in rows.loops for s in loop.body.statements):
        arguments = tuple(found.get(a, a) if isinstance(a, str) else a for a in s.arguments)
        what = type(s), replace(s, results=(), arguments=()), arguments
        for i, register in enumerate(s.results):
            found[register.name] = known.setdefault((what, i), len(known))
    return found


def _roots(loop: RowLoop) -> list[str]:
    """The registers that the loop computes everything for: what it adds up and stores."""
    stores = (s.operands for s in loop.body.statements if not s.results)
    added = [*(s.operand for s in loop.sums), *(c.operand for c in loop.columns)]
    return [*added, *(name for names in stores for name in names)]


def _recomputed(
    loop: RowLoop, made: Callable[[str], bool], cost: Cost, dear: float
) -> Iterator[Register]:
    """The largest values of the loop's body that an earlier loop has made and that are dear."""
    body = loop.body.statements
    makers = {s.results[0].name: s for s in body if len(s.results) == 1}
    waiting, seen = _roots(loop), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in makers:
            continue
        seen.add(name)
        (register,) = makers[name].results
        taken = _dependencies(body, [name])
        repeated = sum(cost(s) for s in body if any(r.name in taken for r in s.results))
        if made(name) and register.dtype in _DTYPES and repeated >= dear:
            yield register
        else:
            waiting += makers[name].operands


def _dependencies(body: Sequence[Statement], roots: Iterable[str]) -> set[str]:
    """The registers that `roots` are made of, themselves included."""
    found = set(roots)
    for s in reversed(body):
        if any(r.name in found for r in s.results):
            found.update(s.operands)
    return found


def _loading_cached(loop: RowLoop, reads: Mapping[str, Address]) -> RowLoop:
    """The loop with some registers read from where they are held, and what they were made of gone
    as far as nothing else needs it."""
    body = [
        Load(s.results, (reads[s.results[0].name],))
        if s.results and s.results[0].name in reads
        else s
        for s in loop.body.statements
    ]
    needed = _dependencies(body, _roots(loop))
    kept = (s for s in body if not s.results or any(r.name in needed for r in s.results))
    return replace(loop, body=replace(loop.body, statements=tuple(kept)))


def _storing_cached(loop: RowLoop, register: Register, place: Address) -> RowLoop:
    """The loop that writes a register to where it is held as soon as it is made."""
    body: list[Statement] = []
    for s in loop.body.statements:
        body.append(s)
        if register in s.results:
            body.append(Store((), (place, register.name)))
    return replace(loop, body=replace(loop.body, statements=tuple(body)))
