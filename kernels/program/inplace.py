"""Find the outputs of a kernel that may overwrite its inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from graphc.ir import Graph, Value
from graphc.kernels.program.body.statement import Load, RegisterProgram, Statement, Store

MOST, NEAR = 4096, 64
"""`MOST` is the number of (input, output) pairs up to which all are checked. A larger kernel checks
only each output with the `NEAR` nearest inputs that it depends on."""

_Places = dict[int, list[tuple[int, Statement]]]
"""The reads or writes of a value by program number: (position, statement)."""


def inplace_pairs(
    body: Graph,
    programs: Sequence[RegisterProgram],
    pointers: Mapping[Value, str],
    operands: Collection[Value] = (),
) -> tuple[tuple[int, int], ...]:
    """The (input, output) pairs where each element of the input is read only to compute the same
    element of the output, by the same program, before its store.

    `operands` are also read elsewhere, so they never qualify. A later program may read the output
    again.
    """
    read: dict[str, _Places] = {}
    written: dict[str, _Places] = {}
    for number, program in enumerate(programs):
        for place, statement in enumerate(program.statements):
            found = written if isinstance(statement, Store) else read
            for pointer in statement.pointers:
                own = found.setdefault(pointer, {})
                own.setdefault(number, []).append((place, statement))
    stored: dict[int, list[int]] = {}
    for o, y in enumerate(body.outputs):
        for number in written.get(pointers[y], {}):
            stored.setdefault(number, []).append(o)
    pairs: list[tuple[int, int]] = []
    large = len(body.inputs) * len(body.outputs) > MOST
    made_of = [_made_of(body, y) for y in body.outputs] if large else []
    near: dict[Value, list[int]] = {}
    for o, values in enumerate(made_of):
        for value in values:
            near.setdefault(value, []).append(o)
    for i, x in enumerate(body.inputs):
        if x in operands:
            continue
        reads = read.get(pointers[x], {})
        # Only what a program that reads x stores can lie over it; what is not read lets all.
        over = stored.get(next(iter(reads)), ()) if reads else range(len(body.outputs))
        for o in near.get(x, ()) if large else over:
            y = body.outputs[o]
            if x.type == y.type and _inplace(reads, written.get(pointers[y], {})):
                pairs.append((i, o))
    return tuple(pairs)


def _made_of(body: Graph, output: Value) -> list[Value]:
    """The inputs that `output` depends on, nearest first."""
    found = {output: None}
    waiting = deque(found)
    while waiting and len(found) < NEAR:
        producer = body.producers.get(waiting.popleft())
        for value in producer.inputs if producer else ():
            if value not in found:
                found[value] = None
                waiting.append(value)
    return list(found)


def _inplace(reads: _Places, stores: _Places) -> bool:
    """Whether the reads of an input all precede the stores of an output to the same elements."""
    for number, loads in reads.items():
        own = stores.get(number, [])
        written = {s.accesses for _, s in own}
        if not all(isinstance(s, Load) and s.accesses in written for _, s in loads):
            return False
        if min(place for place, _ in own) < max(place for place, _ in loads):
            return False
    return True
