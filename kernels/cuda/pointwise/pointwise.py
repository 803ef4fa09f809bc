"""Lower pointwise bodies to pointwise.cuh: each nest is a range of the launch's blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphc.ir import Graph, Value
from graphc.kernels.cuda.pointwise.nhwc_to_nchw import turned
from graphc.kernels.cuda.shared.block_partition import owned
from graphc.kernels.cuda.shared.kernel_source import (
    BLOCKS,
    RESIDENT,
    THREADS,
    Launches,
    constant_arrays,
    delinearize,
    index_type,
    memory_order,
    wrapped,
)
from graphc.kernels.cuda.shared.load_functors import loads_first
from graphc.kernels.cuda.shared.patch_partition import count
from graphc.kernels.cuda.shared.patch_partition import owned as owned_patches
from graphc.kernels.cuda.shared.runs import Runs, runs_of
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
class _NestText:
    """Prints what the threads of a nest do."""

    part: PointwiseNest
    """The loop nest."""
    index: str
    """The C++ index type."""
    per_thread: int
    """Elements, or runs, per thread."""
    runs: Runs | None = None
    """The nest in runs; None for single elements."""
    patches: tuple[int, ...] = ()
    """(rows, columns) that blocks cover in patches; () for linear blocks."""
    threads: int = THREADS
    """Threads of a block."""

    @staticmethod
    def of(part: PointwiseNest, index: str, large: bool, runs: bool) -> _NestText:
        """The nest with a run of elements per thread if `runs` is set and memory allows it. In a
        `large` launch a thread has several, unless it is the only one, as all its loads would wait
        in registers."""
        several = part.domain.size > 1
        elements = _scalars_and_elements(part)[1]
        found = runs_of(part, elements, shortest=not large) if several and runs else None
        return _NestText(
            part, index, found.length if found else 4 if several and large else 1, found
        )

    @property
    def function_key(self) -> object:
        """Equal for nests that can share a function."""
        return self.part.function_key, self.runs is not None and self.per_thread

    @property
    def blocks(self) -> int:
        """Blocks of the nest."""
        return -(-self.part.domain.size // (self.threads * self.per_thread))

    def lines(self, block: str, count: str) -> list[str]:
        """The statements of a thread: what is the same for all elements, then each element. A
        single element is read only by the thread that stores it, so it may be in place."""
        index = self.index
        scalars, elements = _scalars_and_elements(self.part)
        head = scalars.lines(self._names, "1")
        if self.runs:
            lines = self.runs.lines(self._names, index, self._define)
            body = [line if line[0] == "#" else f"  {line}" for line in lines]
            call = f"each_run<{self.per_thread}>({count}, {block}, [&]({index} i) {{"
            return [*head, call, *body, "});"]
        if self.per_thread == 1:
            lines = elements.lines(self._names, "1")
            body = [f"  {line}" for line in (*self._define(elements), *lines)]
            threads = f"<{self.threads}>" if self.threads != THREADS else ""
            call = f"each{threads}({count}, {block}, [&]({index} i) {{"
            if self.patches:
                rows, columns = self.patches
                call = f"each_of_patch<{rows}, {columns}>({block}, [&]({index} i) {{"
            return [*head, call, *body, "});"]
        loads, functors = loads_first(elements, self._names, f"{index} i", self._define)
        return [*head, *loads, f"each<{self.per_thread}>({count}, {block},", *functors]

    @property
    def _names(self) -> list[str]:
        """The domain's indices."""
        rank = self.part.domain.rank
        return [f"i{d}" for d in range(rank)] if rank > 1 else ["i"] * rank

    def _define(self, program: RegisterProgram) -> list[str]:
        """Definitions of the indices that `program` uses, from the linear index i."""
        names, extents = self._names, self.part.domain.extents
        return delinearize("i", names, extents, self.index, program.used(names) - {"i"})


def _scalars_and_elements(part: PointwiseNest) -> tuple[RegisterProgram, RegisterProgram]:
    """The statements that are the same for all elements, and the others. A single element has only
    the latter."""
    if part.domain.size == 1:
        return replace(part.program, statements=()), part.program
    return part.program.split(frozenset())


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
        return launches.kernel(("pointwise/pointwise",), [constant_arrays(images.program)])
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
    texts = [_NestText.of(part, index, large, runs) for part in parts]
    threads = THREADS
    if len(parts) == 1 and aligned_with and own and not large:
        threads = _equal_share(parts[0].domain.size, aligned_with.grid[0])
        texts = [replace(text, threads=threads) for text in texts]
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
    text = _NestText(part, index_type(body), 1, patches=patches)
    inplace = inplace_pairs(body, [part.program], pointers)
    launches = Launches(node, pointers, inplace=inplace)
    lines = text.lines("block.x()", "")
    own = owned_patches(body, part.program, pointers, (rows, columns))
    launches.add(lines, count(rows, columns), owned=own)
    launches.set_patches((rows, columns))
    return launches.kernel(("pointwise/pointwise",), [constant_arrays(part.program)])


def _owned(
    body: Graph, groups: Sequence[Sequence[Value]], texts: Sequence[_NestText]
) -> tuple[int, ...]:
    """The arguments that blocks own, if each block computes whole rows of the outputs."""
    if len(texts) != 1 or len(groups) != 1:
        return ()
    ((group,), (text,)) = groups, texts
    shape, rows = space(body, group[0]), group[0].type.shape[:1]
    whole = text.part.domain.size == text.blocks * text.threads * text.per_thread
    in_order = memory_order(group) == tuple(range(len(shape)))
    return owned(body, text.blocks) if whole and in_order and shape[:1] == rows else ()


def _equal_share(size: int, blocks: int) -> int:
    """Threads of a block if `blocks` blocks share `size` elements, one per thread, in whole warps;
    else the default."""
    share = size // blocks
    return share if size % blocks == share % 32 == 0 and 0 < share <= THREADS else THREADS


def _together(texts: Sequence[_NestText]) -> tuple[list[list[str]], list[str]]:
    """The functors of the nests, shared by similar ones, and the kernel's statements."""
    alike: dict[object, list[_NestText]] = {}
    for text in texts:
        alike.setdefault(text.function_key, []).append(text)
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


def _chosen(texts: Sequence[_NestText], first: int) -> list[str]:
    """The statements that select one of several similar nests, whose blocks begin at `first`, by
    binary search."""
    if len(texts) == 1:
        (text,) = texts
        assign = wrapped("part = {", tuple(text.part.used), "};")
        return [*assign, f"count = {text.part.domain.size}, first = {first};"]
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


def _functor(name: str, text: _NestText) -> list[str]:
    """The struct with the arrays of a nest and its code."""
    used, outputs = text.part.used, text.part.outputs
    return [
        f"struct {name} {{",
        *(
            f"  {'' if value in outputs else 'const '}{C_TYPES[value.type.dtype]}* {member};"
            for member, value in used.items()
        ),
        "",
        f"  GRAPHC_INLINE void run({text.index} count, int block) const {{",
        *(f"    {x}" for x in text.lines("block", "count")),
        "  }",
        "};",
    ]
