"""Lower pointwise bodies: one loop nest per group of outputs, several nests per launch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphc.base.target import Target
from graphc.ir import Graph, Value
from graphc.ir.graph import remembered
from graphc.kernels.cpu.shared.kernel_source import (
    argument_order,
    array_text,
    chunk_count,
    domain_text,
    entry,
    make_kernel,
    program_cost,
    share,
)
from graphc.kernels.cpu.shared.loop_printer import chunk_lines
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.rewrites import bind, hoist, split_last
from graphc.kernels.loops.text import form_of
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import AffineAccess, Domain, access_cost
from graphc.kernels.program.body.names import Identifiers, Pointers, identifier
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.pieces import space
from graphc.kernels.program.pointwise_nest import PointwiseNest, group_outputs, make_pointwise_nest
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES


def lower_pointwise(node: KernelNode, target: Target) -> Kernel:
    """The kernel of a body without reductions and contractions."""
    body = node.body
    parts = [p for p in find_nests(body, target.lanes) if _units(p)]
    groups: dict[str, list[PointwiseNest]] = {}
    for part in parts:
        groups.setdefault(form_of(plain_nest(part)), []).append(part)
    costs = [program_cost(p.program, target.lanes) for p in parts]
    total = sum(c * _units(p) for c, p in zip(costs, parts, strict=True))
    chunks = chunk_count(total, sum(_units(p) for p in parts))
    functions = [_Function(f"part{i}", group) for i, group in enumerate(groups.values())]
    order = argument_order(node)
    if len(parts) == 1:
        cut = share(_units(parts[0]), chunks)
        shell = entry(node, [f"part0(arguments, slots_part0[0], {cut});"])
    else:
        pieces = _cut(parts, costs, total / chunks)
        chunks = len(pieces)
        shell = _pieces_shell(node, functions, parts, pieces)
    return make_kernel(
        node,
        [*(f.text(order) for f in functions), shell],
        (chunks,),
        flops=sum(p.domain.size * p.program.work for p in parts),
        inplace=inplace_pairs(body, [p.program for p in parts], Identifiers().pointers(body)),
    )


@remembered
def find_nests(body: Graph, width: int) -> tuple[PointwiseNest, ...]:
    """The loop nests of a pointwise body, in the order of the outputs."""
    names = Identifiers()
    pointers = names.pointers(body)
    places = {v: i for i, v in enumerate(body.inputs)}
    groups = group_outputs(body)
    return tuple(_vectorized(body, outputs, places, pointers, width) for outputs in groups)


def _vectorized(
    body: Graph,
    outputs: tuple[Value, ...],
    places: Mapping[Value, int],
    pointers: Pointers,
    width: int,
) -> PointwiseNest:
    """The nest with the cheapest axis in the lanes."""
    shape = space(body, outputs[0])
    laned = [v for v in outputs if v.type.layout.axis is not None]
    lanes = lane_candidates(shape or (1,), laned or (*outputs, *_read(body, outputs, places)))
    best, least = None, math.inf
    for lane in lanes:
        part = make_pointwise_nest(body, outputs, Domain(shape or (1,), lane, width), pointers)
        cost = lane_cost(part.program.accesses, part.domain)
        if cost < least:
            best, least = part, cost
        if least <= 0.5 * width * len(outputs):
            break  # any other axis than the last one makes every store a strided one
    assert best is not None
    return best.merged


def _read(body: Graph, outputs: Sequence[Value], places: Mapping[Value, int]) -> list[Value]:
    """The body inputs that `outputs` depend on, in order; `places` numbers all inputs."""
    needed, producers, waiting = set(outputs), body.producers, list(outputs)
    while waiting:
        producer = producers.get(waiting.pop())
        new = () if producer is None else set(producer.inputs) - needed
        needed.update(new)
        waiting.extend(new)
    return sorted((v for v in needed if v in places), key=places.__getitem__)


def lane_candidates(shape: Sequence[int], values: Sequence[Value]) -> tuple[int, ...]:
    """Axes that may lie in the lanes: the batch axis where a value has lanes, else any, last
    first."""
    laned = [v.type for v in values if v.type.layout.axis is not None]
    if laned:
        widest = max(laned, key=lambda t: t.rank)
        assert widest.layout.axis is not None
        return (len(shape) - widest.rank + widest.layout.axis,)
    wide = [d for d in reversed(range(len(shape))) if shape[d] != 1]
    return tuple(wide) or (len(shape) - 1,)


def lane_cost(accesses: Sequence[AffineAccess], domain: Domain) -> float:
    """Loads and stores per element, in contiguous registers, unused lanes of the tail included."""
    assert domain.lane is not None
    extent = max(domain.extents[domain.lane], 1)
    waste = domain.steps(domain.lane) * domain.width / extent
    return waste * sum(access_cost(a, domain.width) for a in accesses)


def _units(part: PointwiseNest) -> int:
    """Registers to compute."""
    return math.prod(map(part.domain.steps, range(part.domain.rank)))


@dataclass(frozen=True)
class _Function:
    """The C++ function that similar nests share."""

    name: str
    parts: Sequence[PointwiseNest]

    @property
    def fixed_extent(self) -> bool:
        """Whether the extent is a compile-time constant of the function."""
        return len(self.parts) == 1 or not self.parts[0].domain.rank == 1

    def text(self, order: Mapping[Value, int]) -> str:
        """The function's definition."""
        part = self.parts[0]
        nest = split_last(hoist(bind(plain_nest(part), "chunk")))
        verify_nest(nest)
        domain = f"Domain_{self.name}" if self.fixed_extent else ""
        lines = [
            f"static void {self.name}(void* const* arguments, const short* slots, long begin, "
            "long end) {",
            *(f"  {line}" for line in array_text(part.program.arrays).splitlines()),
            *(f"  {line}" for line in self._pointers(part)),
            *(f"  {line}" for line in chunk_lines(nest, domain)),
            "}",
        ]
        text = "".join(f"{line}\n" for line in lines)
        struct = domain_text(domain, part.domain) if domain else ""
        return struct + self._slots(order) + text

    def _pointers(self, part: PointwiseNest) -> list[str]:
        outputs = set(part.outputs)
        return [
            f"{'' if value in outputs else 'const '}{C_TYPES[value.type.dtype]}* const {name} = "
            f"({C_TYPES[value.type.dtype]}*)arguments[slots[{i}]];"
            for i, (name, value) in enumerate(part.used.items())
        ]

    def _slots(self, order: Mapping[Value, int]) -> str:
        """The argument numbers of each nest, one row per nest."""
        rows = [[str(order[v]) for v in p.used.values()] for p in self.parts]
        names = ", ".join(identifier(p.outputs[0].name) for p in self.parts)
        comment = f"// {names}\n" if len(rows) > 1 else ""
        width = len(rows[0])
        table = ", ".join(f"{{{', '.join(r)}}}" for r in rows)
        return f"{comment}static const short slots_{self.name}[][{max(width, 1)}] = {{{table}}};\n"


def _cut(
    parts: Sequence[PointwiseNest], costs: Sequence[float], budget: float
) -> list[list[tuple[int, int, int]]]:
    """Chunks of pieces (nest, first unit, end), each of about `budget` nanoseconds."""
    chunks: list[list[tuple[int, int, int]]] = [[]]
    left = budget
    for i, (part, cost) in enumerate(zip(parts, costs, strict=True)):
        done = 0
        while done < _units(part):
            if left <= 0:
                chunks.append([])
                left = budget
            end = min(_units(part), done + max(1, round(left / cost)))
            chunks[-1].append((i, done, end))
            left -= (end - done) * cost
            done = end
    return chunks


def _pieces_shell(
    node: KernelNode,
    functions: Sequence[_Function],
    parts: Sequence[PointwiseNest],
    chunks: Sequence[Sequence[tuple[int, int, int]]],
) -> str:
    """The entry function, which dispatches the pieces of a chunk."""
    home = {id(p): (f, i) for f in functions for i, p in enumerate(f.parts)}
    rows, firsts = [], [0]
    for chunk in chunks:
        for which, begin, end in chunk:
            part = parts[which]
            function, slot = home[id(part)]
            if not function.fixed_extent:
                width, extent = part.domain.width, part.domain.extents[0]
                begin, end = begin * width, min(end * width, extent)
            name = function.name
            rows.append(f"{{{name}, slots_{name}[{slot}], {begin}, {end}}}")
        firsts.append(len(rows))
    tables = [
        f"static const Piece pieces[] = {{{', '.join(rows)}}};",
        f"static const int firsts[] = {{{', '.join(map(str, firsts))}}};",
    ]
    loop = [
        "for (int p = firsts[chunk]; p < firsts[chunk + 1]; p++) {",
        "  const Piece& piece = pieces[p];",
        "  piece.part(arguments, piece.slots, piece.begin, piece.end);",
        "}",
    ]
    return "".join(f"{line}\n" for line in tables) + entry(node, loop)
