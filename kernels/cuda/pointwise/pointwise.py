"""Lower pointwise bodies to pointwise.cuh: each nest is a range of the launch's blocks."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir import Graph, Value
from graphc.kernels.cuda.pointwise.nhwc_to_nchw import turned
from graphc.kernels.cuda.shared.block_partition import owned
from graphc.kernels.cuda.shared.kernel_source import (
    BLOCKS,
    RESIDENT,
    THREADS,
    Launches,
    constant_arrays,
    index_type,
    memory_order,
)
from graphc.kernels.cuda.shared.loop_printer import ThreadLoops
from graphc.kernels.cuda.shared.patch_partition import count
from graphc.kernels.cuda.shared.patch_partition import owned as owned_patches
from graphc.kernels.cuda.shared.runs import runs_of
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.rewrites import bind, hoist, in_runs, loads_ahead
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
        launches.add(images.lines, images.images, threads=images.threads)
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
    texts = [_scheduled(part, index, large, runs, threads) for part in parts]
    if len(parts) == 1:
        functors: list[list[str]] = []
        lines = texts[0].lines("block.x()", f"{index}({parts[0].domain.size})")
    else:
        functors, lines = _together(texts)
    launches = Launches(node, pointers, inplace=inplace)
    resident = RESIDENT if large else 1
    launches.add(
        lines,
        sum(text.blocks for text in texts),
        threads=threads,
        resident=resident,
        owned=_owned(body, groups, texts),
    )
    return launches.kernel(("pointwise/pointwise",), [constant_arrays(whole), *functors])


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
    text = ThreadLoops(nest, part.used, index_type(body), patches=patches)
    inplace = inplace_pairs(body, [part.program], pointers)
    launches = Launches(node, pointers, inplace=inplace)
    lines = text.lines("block.x()", "")
    own = owned_patches(body, part.program, pointers, (rows, columns))
    launches.add(lines, count(rows, columns), owned=own)
    launches.set_patches((rows, columns))
    return launches.kernel(("pointwise/pointwise",), [constant_arrays(part.program)])


def _owned(
    body: Graph, groups: Sequence[Sequence[Value]], texts: Sequence[ThreadLoops]
) -> tuple[int, ...]:
    """The arguments that blocks own, if each block computes whole rows of the outputs."""
    if len(texts) != 1 or len(groups) != 1:
        return ()
    ((group,), (text,)) = groups, texts
    shape, rows = space(body, group[0]), group[0].type.shape[:1]
    whole = text.nest.domain.size == text.blocks * text.threads * text.per_thread
    in_order = memory_order(group) == tuple(range(len(shape)))
    return owned(body, text.blocks) if whole and in_order and shape[:1] == rows else ()


def _equal_share(size: int, blocks: int) -> int:
    """Threads of a block if `blocks` blocks share `size` elements, one per thread, in whole warps;
    else the default."""
    share = size // blocks
    return share if size % blocks == share % 32 == 0 and 0 < share <= THREADS else THREADS


def _together(texts: Sequence[ThreadLoops]) -> tuple[list[list[str]], list[str]]:
    """The functors of the nests, shared by similar ones, and the kernel's statements."""
    alike: dict[str, list[ThreadLoops]] = {}
    for text in texts:
        alike.setdefault(form_of(text.nest), []).append(text)
    functors, lines, first = [], [], 0
    for number, group in enumerate(alike.values()):
        name, example = f"Part{number}", group[0]
        functors.append(_functor(name, example))
        last = first + sum(text.blocks for text in group)
        lines += [f"if (block.x() < {last}) {{", f"  {name} part;"]
        lines.append(f"  {example.index} count, first;")
        lines += [f"  {line}" for line in _chosen(group, first)]
        first = last
        lines += ["  part.run(count, block.x() - first);", "  return;", "}"]
    return functors, lines


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
