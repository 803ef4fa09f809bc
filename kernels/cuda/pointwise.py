"""Pointwise bodies for pointwise.cuh.

Outputs that are computed from the same arrays over one shape are a part: a range of blocks of the
launch. Parts that do the same to different arrays, as the update of every parameter does, share
one functor, so that the text does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graphc.ir import Graph, Node, Value
from graphc.kernels.cuda.shell import (
    BLOCKS,
    Signature,
    constant_arrays,
    decomposed,
    index_type,
    kernel_text,
    loads_first,
    make_kernel,
    source,
    symbol_of,
    wrapped,
)
from graphc.kernels.program.access import Domain, merge_axes
from graphc.kernels.program.expression import Walk
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.kernel import GridLaunch, Kernel
from graphc.kernels.program.names import Names
from graphc.kernels.program.pieces import pieces, space
from graphc.kernels.program.statement import Program, joined
from graphc.ops.fused import Fused
from graphc.ops.logic import C_TYPES

THREADS = 256


@dataclass(frozen=True)
class Part:
    """Outputs over one domain: `program` stores them at each index of `extents`."""

    outputs: tuple[Value, ...]
    extents: tuple[int, ...]
    program: Program

    @property
    def count(self) -> int:
        return Domain(self.extents).size

    def blocks(self, per_thread: int) -> int:
        return -(-self.count // (THREADS * per_thread))

    def lines(self, index: str, per_thread: int, block: str, count: str) -> list[str]:
        """The statements of a thread: what is the same for all elements, then each element. A
        single element is read by the thread that stores it alone: it may be in place."""
        scalars, elements = self.program.split(frozenset())
        if self.count == 1:
            scalars, elements = replace(self.program, statements=()), self.program
        head = scalars.lines(self.names, "1")
        if per_thread == 1:
            lines = elements.lines(self.names, "1")
            body = [f"  {line}" for line in (*self._define(elements, index), *lines)]
            return [*head, f"each({count}, {block}, [&]({index} i) {{", *body, "});"]
        loads, functors = loads_first(
            elements, self.names, f"{index} i", lambda program: self._define(program, index)
        )
        return [*head, *loads, f"each<{per_thread}>({count}, {block},", *functors]

    @property
    def names(self) -> list[str]:
        """The domain's indices."""
        rank = len(self.extents)
        return [f"i{d}" for d in range(rank)] if rank > 1 else ["i"] * rank

    def _define(self, program: Program, index: str) -> list[str]:
        """The definitions of the indices that `program` uses, from i."""
        if len(self.extents) < 2:
            return []
        return decomposed("i", self.names, self.extents, index, program.used(self.names))


def lower_pointwise(node: Node) -> Kernel:
    """The kernel of a fused node without a reduction; every value is row-major."""
    op = node.op
    assert isinstance(op, Fused)
    body = op.body
    names = Names()
    pointers = names.pointers(body)
    parts = [p for group in grouped(body) if (p := make_part(body, group, pointers, names)).count]
    if not parts:
        return make_kernel(node, source(node, (), ()), ())
    whole = joined(p.program for p in parts)
    inplace = inplace_pairs(body, [p.program for p in parts], pointers)
    signature = Signature(pointers, body, inplace)
    per_thread = 4 if sum(p.count for p in parts) >= BLOCKS * THREADS * 4 else 1
    index = index_type(body)
    if len(parts) == 1:
        count = f"{index}({parts[0].count})"
        functors: list[list[str]] = []
        lines = parts[0].lines(index, per_thread, "blockIdx.x", count)
    else:
        functors, lines = _parts(parts, pointers, index, per_thread)
    symbol = symbol_of(node)
    sections = [constant_arrays(whole), *functors, kernel_text(symbol, signature, THREADS, lines)]
    blocks = sum(p.blocks(per_thread) for p in parts)
    return make_kernel(
        node,
        source(node, ("pointwise",), sections),
        [GridLaunch(symbol, (blocks, 1, 1), (THREADS, 1, 1))],
        inplace=inplace,
    )


def grouped(body: Graph) -> list[tuple[Value, ...]]:
    """The outputs in groups of one shape (of a section, where a concat makes it) that read a common
    array of more than one element, or none."""
    arrays: dict[Value, frozenset[Value]] = {
        v: frozenset((v,)) if v.type.size > 1 else frozenset() for v in body.inputs
    }
    for node in body.nodes:
        read = frozenset[Value]().union(*(arrays[v] for v in node.inputs))
        made = {v for v in node.outputs if not node.inputs and v.type.size > 1}
        arrays.update(dict.fromkeys(node.outputs, read | made))
    groups: list[tuple[list[Value], frozenset[Value]]] = []
    for output in dict.fromkeys(body.outputs):
        members, read = [output], arrays[output]
        for group in list(groups):
            same_shape = space(body, group[0][0]) == space(body, output)
            if same_shape and (group[1] & read or not group[1] | read):
                groups.remove(group)
                members, read = [*group[0], *members], group[1] | read
        groups.append((members, read))
    return [tuple(members) for members, _ in groups]


def make_part(
    body: Graph, outputs: Sequence[Value], pointers: Mapping[Value, str], names: Names
) -> Part:
    """The part that stores these outputs of one shape."""
    domain = Domain(space(body, outputs[0]))
    walk = Walk(body, domain, pointers, names)
    here = domain.identity()
    wanted = [(v, p) for v in outputs for p in pieces(body, v, here, domain.extents)]
    walk.store_all(wanted)
    program = walk.program()
    merged, groups = merge_axes(domain, program.accesses)
    return Part(tuple(outputs), merged.extents, program.merged(groups))


def _parts(
    parts: Sequence[Part], pointers: Mapping[Value, str], index: str, per_thread: int
) -> tuple[list[list[str]], list[str]]:
    """The functors of the parts, one for all that are alike, and the kernel's statements."""
    types = {p: v.type.dtype for v, p in pointers.items()}
    alike: dict[object, list[tuple[Part, tuple[str, ...]]]] = {}
    for part in parts:
        members = tuple(p for p in part.program.pointers if p in types)
        alike.setdefault(_likeness(part, members, types), []).append((part, members))
    functors, lines, first = [], [], 0
    for number, group in enumerate(alike.values()):
        name, (example, members) = f"Part{number}", group[0]
        written = {pointers[v] for v in example.outputs}
        functors.append(
            [
                f"struct {name} {{",
                *(
                    f"  {'' if m in written else 'const '}{C_TYPES[types[m]]}* {m};"
                    for m in members
                ),
                "",
                f"  GRAPHC_INLINE void run({index} count, int block) const {{",
                *(f"    {x}" for x in example.lines(index, per_thread, "block", "count")),
                "  }",
                "};",
            ]
        )
        last = first + sum(p.blocks(per_thread) for p, _ in group)
        lines += [f"if (blockIdx.x < {last}) {{", f"  {name} part;", f"  {index} count, first;"]
        for position, (part, arguments) in enumerate(group):
            end = first + part.blocks(per_thread)
            test = f"if (blockIdx.x < {end}) " if position + 1 < len(group) else ""
            head = f"  {'} else ' if position else ''}{test}{{"
            assign = wrapped("    part = {", arguments, "};")
            lines += [head, *assign, f"    count = {part.count}, first = {first};"]
            first = end
        lines.append("  }")
        lines += ["  part.run(count, blockIdx.x - first);", "  return;", "}"]
    return functors, lines


def _likeness(part: Part, members: Sequence[str], types: Mapping[str, str]) -> object:
    """Equal for parts that one functor can do, given pointers and, of one axis, an extent."""
    registers = [r.name for s in part.program.statements for r in s.results]
    names = {name: f"name{i}" for i, name in enumerate((*members, *registers))}
    lines = part.program.renamed(names).lines(part.names, "1")
    extents = part.extents if len(part.extents) > 1 else ()
    return extents, tuple(types[m] for m in members), tuple(lines)
