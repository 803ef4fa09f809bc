"""Lower pointwise bodies to pointwise.cuh: each nest is a range of the launch's blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from graphc.base.cached import cached_property
from graphc.ir import Graph, Value
from graphc.kernels.cuda.pointwise.nhwc_to_nchw import turned
from graphc.kernels.cuda.shared.kernel_source import (
    BLOCKS,
    RESIDENT,
    THREADS,
    constant_arrays,
    index_type,
    memory_order,
)
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.cuda.shared.loop_printer import ThreadLoops
from graphc.kernels.cuda.shared.patch_partition import count
from graphc.kernels.cuda.shared.patch_partition import owned as owned_patches
from graphc.kernels.cuda.shared.runs import runs_of
from graphc.kernels.loops.language import Nest
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.rewrites import bind, hoist, in_runs, loads_ahead
from graphc.kernels.loops.shares import own_shares
from graphc.kernels.loops.text import form_of
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.names import Identifiers, Pointers
from graphc.kernels.program.body.statement import RegisterProgram, joined
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.kernel import GridLaunch, Kernel
from graphc.kernels.program.pieces import space
from graphc.kernels.program.pointwise_nest import PointwiseNest, group_outputs, make_pointwise_nest
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES


@dataclass(frozen=True)
class PartLoops:
    """The loops over threads of a launch's parts, each of which has a range of its blocks."""

    parts: tuple[ThreadLoops, ...]

    @property
    def blocks(self) -> int:
        return sum(part.blocks for part in self.parts)

    @property
    def nests(self) -> tuple[Nest, ...]:
        return tuple(part.nest for part in self.parts)

    @property
    def settings(self) -> Hashable:
        return tuple((part.index, part.threads, part.patches) for part in self.parts)

    @cached_property
    def alike(self) -> list[list[ThreadLoops]]:
        """The parts in groups that do the same to other arrays, so that they share a functor."""
        groups: dict[str, list[ThreadLoops]] = {}
        for part in self.parts:
            groups.setdefault(form_of(part.nest), []).append(part)
        return list(groups.values())

    @property
    def functors(self) -> list[list[str]]:
        """The definitions of the functors of several parts."""
        groups = self.alike if len(self.parts) > 1 else []
        return [_functor(f"Part{number}", group[0]) for number, group in enumerate(groups)]

    @cached_property
    def lines(self) -> list[str]:
        if len(self.parts) == 1:
            (part,) = self.parts
            count = "" if part.patches else f"{part.index}({part.nest.domain.size})"
            return part.lines("block.x()", count)
        lines, first = list[str](), 0
        for number, group in enumerate(self.alike):
            last = first + sum(part.blocks for part in group)
            lines += [f"if (block.x() < {last}) {{", f"  Part{number} part;"]
            lines.append(f"  {group[0].index} count, first;")
            lines += [f"  {line}" for line in _chosen(group, first)]
            first = last
            lines += ["  part.run(count, block.x() - first);", "  return;", "}"]
        return lines


def _scheduled(
    part: PointwiseNest, index: str, large: bool, runs: bool, threads: int
) -> ThreadLoops:
    """The loops over threads of a part, with a run of elements per thread if `runs` is set and
    memory allows it. In a `large` launch a thread has several, unless it is the only one, as all
    its loads would wait in registers. A single element is read only by the thread that stores it,
    with all that it is made of, so that it may be in place."""
    nest = bind(plain_nest(part), "thread")
    if part.domain.size > 1:
        nest = hoist(nest)
        found = runs_of(part, _elements(part), shortest=not large) if runs else None
        if found:
            nest = in_runs(nest, found.length)
        elif large:
            nest = loads_ahead(nest, 4)
    return ThreadLoops(nest, part.used, index, threads)


def _elements(part: PointwiseNest) -> RegisterProgram:
    """The statements that differ from element to element."""
    return part.program.split(frozenset())[1]


def lower_pointwise(node: KernelNode, aligned_with: GridLaunch | None = None) -> Kernel:
    """The kernel of a fused node without a reduction.

    If the launch `aligned_with` has patches and the node has one element per row and column of
    these, each block takes a patch. Else blocks take equal parts, as many as that launch has blocks
    that own rows, if each part is whole threads.
    """
    body = node.body
    names = Identifiers()
    pointers = names.pointers(body)
    parts, groups, patches = [], group_outputs(body), aligned_with.patches if aligned_with else ()
    if len(groups) == 1 and len(patches) == 2 and space(body, groups[0][0]) == patches:
        return _by_patches(node, groups[0], patches, names, pointers)
    if not aligned_with and (images := turned(body, groups, pointers, names)) is not None:
        launches = Launches(node, pointers)
        launches.add(images, images.images, threads=images.threads)
        return launches.kernel(("pointwise/pointwise",), [constant_arrays(images.part.program)])
    for group in groups:
        order = memory_order(group)
        domain = Domain(tuple(space(body, group[0])[d] for d in order))
        if domain.size:
            parts.append(make_pointwise_nest(body, group, domain, pointers, names, order).merged)
    whole = joined(p.program for p in parts)
    inplace = inplace_pairs(body, [p.program for p in parts], pointers)
    size, own = sum(p.domain.size for p in parts), bool(aligned_with and aligned_with.owned)
    large, index = size >= BLOCKS * THREADS * 4, index_type(body)
    runs = large or (size >= BLOCKS * THREADS and not own)
    threads = THREADS
    if len(parts) == 1 and aligned_with and own and not large:
        threads = _equal_share(parts[0].domain.size, aligned_with.grid[0])
    loops = PartLoops(tuple(_scheduled(part, index, large, runs, threads) for part in parts))
    launches = Launches(node, pointers, inplace=inplace)
    resident, whose = RESIDENT if large else 1, _owned(body, pointers, loops)
    launches.add(loops, loops.blocks, threads=threads, resident=resident, owned=whose)
    return launches.kernel(("pointwise/pointwise",), [constant_arrays(whole), *loops.functors])


def _by_patches(
    node: KernelNode,
    group: tuple[Value, ...],
    patches: tuple[int, ...],
    names: Identifiers,
    pointers: Pointers,
) -> Kernel:
    """The kernel whose blocks take patches."""
    body, (rows, columns) = node.body, patches
    part = make_pointwise_nest(body, group, Domain(patches), pointers, names)
    nest = hoist(bind(plain_nest(part), "thread"))
    loops = PartLoops((ThreadLoops(nest, part.used, index_type(body), patches=patches),))
    inplace = inplace_pairs(body, [part.program], pointers)
    launches = Launches(node, pointers, inplace=inplace)
    own = owned_patches(body, part.program, pointers, (rows, columns))
    launches.add(loops, count(rows, columns), owned=own)
    launches.set_patches((rows, columns))
    return launches.kernel(("pointwise/pointwise",), [constant_arrays(part.program)])


def _owned(body: Graph, pointers: Pointers, loops: PartLoops) -> tuple[int, ...]:
    """The arguments that blocks own, if all have as many elements."""
    if len(loops.parts) != 1:
        return ()
    (part,) = loops.parts
    whole = part.nest.domain.size == part.blocks * part.threads * part.per_thread
    own = own_shares(part.nest, part.blocks) if whole else ()
    return tuple(i for i, v in enumerate((*body.inputs, *body.outputs)) if pointers[v] in own)


def _equal_share(size: int, blocks: int) -> int:
    """Threads of a block if `blocks` blocks share `size` elements, one per thread, in whole warps;
    else the default."""
    share = size // blocks
    return share if size % blocks == share % 32 == 0 and 0 < share <= THREADS else THREADS


def _chosen(texts: Sequence[ThreadLoops], first: int) -> list[str]:
    """The statements that select one of several similar nests, whose blocks begin at `first`, by
    binary search."""
    if len(texts) == 1:
        (text,) = texts
        assign = f"part = {{{', '.join(text.memory)}}};"
        return [assign, f"count = {text.nest.domain.size}, first = {first};"]
    half = len(texts) // 2
    middle = first + sum(text.blocks for text in texts[:half])
    lower, upper = _chosen(texts[:half], first), _chosen(texts[half:], middle)
    return [
        f"if (block.x() < {middle}) {{",
        *(f"  {line}" for line in lower),
        "} else {",
        *(f"  {line}" for line in upper),
        "}",
    ]


def _functor(name: str, text: ThreadLoops) -> list[str]:
    """The struct with the arrays of a nest and its code."""
    written = {m.name for m in text.nest.memory if m.written}
    return [
        f"struct {name} {{",
        *(
            f"  {'' if member in written else 'const '}{C_TYPES[value.type.dtype]}* {member};"
            for member, value in text.memory.items()
        ),
        "",
        f"  GRAPHC_INLINE void run({text.index} count, int block) const {{",
        *(f"    {x}" for x in text.lines("block", "count")),
        "  }",
        "};",
    ]
