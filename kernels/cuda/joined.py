"""The text of joined launches, which are cooperative: the launches of several kernels as parts.

Each part is the device function that the kernel's text has for it (`Kernel.parts`). The blocks of
the launch play its blocks in turn, by their first threads, and wait for each other (`grid_barrier`)
where a part reads what others wrote. No pointer is `__restrict__`: what other blocks write within
the launch must not be read through a cache that does not see it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graphc.kernels.cuda.near import NearPlace, NearRows, loop_text
from graphc.kernels.cuda.shell import (
    DYNAMIC,
    RESIDENT,
    SHARED_BYTES,
    THREADS,
    entry,
    included,
    part_space,
    within,
    wrapped,
)
from graphc.kernels.program.kernel import GridLaunch, Kernel

MOST_ARGUMENTS = 500
"""Of a joined launch: CUDA's programming guide has 4 KB for a kernel's."""
COPIED_AT_ONCE = 16
"""Bytes that a thread copies at once, where both addresses are a multiple of as many."""


@dataclass(frozen=True)
class Place:
    """Where a value begins: `offset` bytes behind an argument, and how far it moves in the loops
    around, the outermost first: in iteration t by (t mod period) * stride bytes, as (stride,
    period, count)."""

    argument: int
    moves: tuple[tuple[int, int, int], ...] = ()
    offset: int = 0

    def text(self) -> str:
        terms = [f" + {self.offset}ll"] if self.offset else []
        terms += [
            f" + {f't{n}' if period >= count else f't{n} % {period}'} * {stride}ll"
            for n, (stride, period, count) in enumerate(self.moves)
            if stride and period > 1
        ]
        return f"Argument{{p{self.argument}{''.join(terms)}}}"


@dataclass(frozen=True)
class PartText:
    """A launch of `kernel`, or, without one, a copy of so many bytes from the first to the second
    of `places`. `plays` are the first iteration of the innermost loop in which it plays, and how
    many of them it does; () if it does in all. A part whose blocks own rows (`own`) begins at
    block 0 of the launch, as all of those do."""

    kernel: Kernel | None
    launch: int
    places: tuple[Place, ...]
    waits: bool
    nbytes: int = 0
    aligned: bool = True
    plays: tuple[int, ...] = ()
    own: bool = False

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks along x and y."""
        if self.kernel is None:
            return -(-self.nbytes // (THREADS * (COPIED_AT_ONCE if self.aligned else 1))), 1
        x, y, _ = self.kernel.joined[self.launch].grid
        return x, y

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True)
class RepeatText:
    """`parts`, `count` times, before which all blocks wait for each other if it `waits`. What the
    part `holds` would read again (`Kernel.held`) blocks read before; what is `near` they have in
    shared memory."""

    count: int
    parts: tuple[PartText | RepeatText, ...]
    waits: bool = False
    holds: PartText | None = None
    near: NearRows | None = None


AnyText = PartText | RepeatText


def joinable(kernel: Kernel) -> bool:
    """Whether the launches of a kernel can be parts of one."""
    return kernel.parts is not None and all(
        not x.shared_bytes and x.grid[2] == 1 and x.block[0] <= THREADS for x in kernel.joined
    )


def joined_kernel(name: str, parts: Sequence[AnyText], arguments: int) -> Kernel:
    """The kernel that plays `parts` and takes so many addresses. Its one launch has as many blocks
    as can have something to do at once; fewer do as well. Kernels of one text share functions."""
    played = {p.kernel.name: p.kernel for p in _flat(parts) if p.kernel}
    firsts: dict[str, Kernel] = {}
    shared = {name: firsts.setdefault(k.canonical_parts, k) for name, k in played.items()}
    kernels = {kernel.name: kernel for kernel in firsts.values()}
    headers = dict.fromkeys(h for k in kernels.values() if k.parts for h in k.parts.headers)
    if any(isinstance(part, RepeatText) and part.near for part in parts):
        headers["near"] = None
    symbol = f"{name}_joined"
    lines, most = _Lines(shared).written(parts, 0)
    holding = [p.holds for p in parts if isinstance(p, RepeatText) and p.holds]
    multiples = (p.kernel.joined[p.launch].multiple for p in holding if p.kernel)
    alone = any(p.kernel.fills for p in holding if p.kernel)
    bounds = f"__launch_bounds__({THREADS}, {1 if alone else RESIDENT})"
    spaces = [part_space(k, k.joined[-1]) for k in kernels.values()]
    parameters = [f"unsigned char* p{i}" for i in range(arguments)]
    function = entry(symbol, bounds, parameters, lines)
    body = "\n".join(["__device__ unsigned joined_word;", "", *function])
    text = [
        f"// {name}: {', '.join(kernels)}",
        f"{included(list(headers) or ['memory'])}\n\n{DYNAMIC}",
        *spaces,
        within("graphc", body),
    ]
    multiple = math.lcm(*multiples)
    launch = GridLaunch(symbol, (most, 1, 1), (THREADS, 1, 1), SHARED_BYTES, multiple=multiple)
    flops, nbytes = (sum(getattr(k, f) for k in played.values()) for f in ("flops", "bytes"))
    return Kernel(
        symbol, "joined", "\n\n".join(text) + "\n", (), 0, flops, nbytes, launches=(launch,)
    )


def _flat(parts: Sequence[AnyText]) -> list[PartText]:
    found: list[PartText] = []
    for part in parts:
        found += [part] if isinstance(part, PartText) else _flat(part.parts)
    return found


class _Lines:
    """Statements, and how many blocks have been given parts since all waited. In the place of a
    kernel, by its name, the functions of a `shared` one are called."""

    def __init__(self, shared: Mapping[str, Kernel]) -> None:
        self.shared = shared
        self.first = self.most = 0
        self.holds: PartText | None = None

    def written(self, parts: Sequence[AnyText], depth: int) -> tuple[list[str], int]:
        """The statements of parts within so many loops, and the most blocks between two waits."""
        lines: list[str] = []
        for part in parts:
            if isinstance(part, RepeatText):
                lines += self.wait() if part.waits else []
                loop = self.loop(part, depth) if part.near is None else self.near(part, part.near)
                if part.holds:
                    loop = ["{", *(f"  {x}" for x in (*self.hold(part.holds), *loop)), "}"]
                lines += loop
            else:
                lines += self.part(part, depth)
        return lines, self.most

    def loop(self, repeat: RepeatText, depth: int) -> list[str]:
        self.holds = repeat.holds
        inner, _ = self.written(repeat.parts, depth + 1)
        self.holds = None
        head = f"for (int t{depth} = 0; t{depth} < {repeat.count}; t{depth}++) {{"
        return ["#pragma unroll 1", head, *(f"  {x}" for x in inner), "}"]

    def near(self, repeat: RepeatText, near: NearRows) -> list[str]:
        """A loop of parts of one grid, which each block goes through by itself."""
        shared, calls = SHARED_BYTES - near.nbytes, []
        for part, places in zip(repeat.parts, near.places, strict=True):
            assert isinstance(part, PartText) and part.kernel, (
                "a part of a kernel, whose rows are near"
            )
            call = self.call(part.kernel, part, part is repeat.holds, places)
            settings = f"<{part.kernel.joined[part.launch].block[0]}, {shared}>"
            calls.append([call[0].replace("play(", f"near.play{settings}(", 1), *call[1:]])
        self.first = max(self.first, near.blocks)
        self.most = max(self.most, self.first)
        return loop_text(near, repeat.count, "t0", shared, calls)

    def part(self, part: PartText, depth: int) -> list[str]:
        lines = []
        if part.waits:
            lines += self.wait()
        elif self.first or part.own:
            lines.append("__syncthreads();")
        holds = part is self.holds
        call = _copy(part) if part.kernel is None else self.call(part.kernel, part, holds)
        if part.plays:
            t, (first, count) = f"t{depth - 1}", part.plays
            call[0] = f"if ({t} >= {first} && {t} < {first + count}) {call[0]}"
        threads = part.kernel.joined[part.launch].block[0] if part.kernel else THREADS
        x, y = part.grid
        settings = f"<{threads}, {SHARED_BYTES}, {x}, {y}>"
        alone = part.own or part.blocks == 1  # the block is the same for each such part
        call[0] = call[0].replace("play(", f"play{settings}({0 if alone else self.first}, ", 1)
        self.first = max(self.first, part.blocks) if part.own else self.first + part.blocks
        self.most = max(self.most, self.first)
        return [*lines, *call]

    def wait(self) -> list[str]:
        """All blocks wait for each other, so that the next part may begin at any."""
        self.first = 0
        return ["grid_barrier(&joined_word);"]

    def hold(self, part: PartText) -> list[str]:
        assert part.kernel is not None, "a copy holds nothing"
        kernel = self.shared[part.kernel.name]
        function = f"{kernel.name}_part::{kernel.joined[part.launch].symbol}_hold("
        # What it reads is the same in all iterations; of the others it gets the first one's.
        places = ["held", "blockIdx.x", *(replace(place, moves=()).text() for place in part.places)]
        return [f"{kernel.name}_part::Held held;", *wrapped(function, places, ");")]

    def call(
        self,
        kernel: Kernel,
        part: PartText,
        holds: bool = False,
        near: Sequence[NearPlace | None] = (),
    ) -> list[str]:
        kernel = self.shared[kernel.name]
        symbol = kernel.joined[part.launch].symbol
        block = "HoldingBlock(block, held)" if holds else "block"
        found = near or [None] * len(part.places)
        places = [
            place.text() if line is None else line.text("t0")
            for place, line in zip(part.places, found, strict=True)
        ]
        places = [f"NearBlock({block})" if near else block, *places]
        return [
            "play(dynamic_shared, [&](const auto& block) {",
            *(f"  {x}" for x in wrapped(f"{kernel.name}_part::{symbol}(", places, ");")),
            "});",
        ]


def _copy(part: PartText) -> list[str]:
    source, target = (place.text() for place in part.places)
    size = COPIED_AT_ONCE if part.aligned else 1
    return [
        "play(dynamic_shared, [&](const auto& block) {",
        f"  copy_part<{size}>(block, {source}, {target}, {part.nbytes});",
        "});",
    ]
