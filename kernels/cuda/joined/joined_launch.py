"""Print joined launches: cooperative launches that run the launches of several kernels as parts.

Each part is a device function of the kernel's (`Kernel.device_functions`): its loop nests, printed
here, or the call of a template. Parts of equal nests share a function. The blocks of the joined
launch run the part's blocks in turn, with as many threads as these have, and all blocks wait
for each other (`grid_barrier`) where a part reads what others wrote. No pointer is `__restrict__`:
the read-only cache would miss what other blocks write within the launch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphc.kernels.cuda.joined.shared_staging import loop_text, staged_text
from graphc.kernels.cuda.shared.kernel_source import (
    SHARED_BYTES,
    entry,
)
from graphc.kernels.cuda.shared.launches import part_function, parts_text, shared_parts
from graphc.kernels.program.joined import (
    COPIED_AT_ONCE,
    RESIDENT,
    THREADS,
    ArgumentAddress,
    JoinedLoop,
    JoinedPart,
    JoinedStep,
    StagedPlace,
    StagedRows,
)
from graphc.kernels.program.kernel import GridLaunch, Kernel


def place_text(place: ArgumentAddress) -> str:
    """The C++ expression of an address."""
    terms = [f" + {place.offset}ll"] if place.offset else []
    terms += [
        f" + {f't{n}' if period >= count else f't{n} % {period}'} * {stride}ll"
        for n, (stride, period, count) in enumerate(place.moves)
        if stride and period > 1
    ]
    return f"Argument{{p{place.argument}{''.join(terms)}}}"


def joined_kernel(name: str, parts: Sequence[JoinedStep], arguments: int) -> Kernel:
    """The kernel that runs `parts` and takes `arguments` addresses.

    Its one launch has as many blocks as can be busy at once; it also works with fewer. Kernels of
    equal device functions share them.
    """
    played = {p.kernel.name: p.kernel for p in _flat(parts) if p.kernel}
    shared = shared_parts(played.values())
    kernels = {kernel.name: kernel for kernel in shared.values()}
    staged = any(isinstance(part, JoinedLoop) and part.staged_rows for part in parts)
    symbol = f"{name}_joined"
    lines, most = _JoinedText(shared).statements(parts, 0)
    holding = [p.resident_part for p in parts if isinstance(p, JoinedLoop) and p.resident_part]
    multiples = (p.kernel.joined_launches[p.launch].multiple for p in holding if p.kernel)
    alone = any(p.kernel.fills_multiprocessor for p in holding if p.kernel)
    bounds = f"__launch_bounds__({THREADS}, {1 if alone else RESIDENT})"
    parameters = [f"unsigned char* p{i}" for i in range(arguments)]
    function = entry(symbol, bounds, parameters, lines)
    body = "\n".join(["__device__ unsigned joined_word;", "", *function])
    multiple = math.lcm(*multiples)
    launch = GridLaunch(symbol, (most, 1, 1), (THREADS, 1, 1), SHARED_BYTES, multiple=multiple)
    flops, nbytes = (sum(getattr(k, f) for k in played.values()) for f in ("flops", "bytes"))
    return Kernel(
        symbol,
        "joined",
        parts_text(kernels.values(), "graphc", body, ["joined/shared_staging"] * staged),
        phases=(),
        flops=flops,
        bytes=nbytes,
        launches=(launch,),
        origin=f"{name}: {', '.join(kernels)}",
    )


def _flat(parts: Sequence[JoinedStep]) -> list[JoinedPart]:
    """All parts, those of loops included."""
    found: list[JoinedPart] = []
    for part in parts:
        found += [part] if isinstance(part, JoinedPart) else _flat(part.parts)
    return found


class _JoinedText:
    """Prints the statements of parts.

    It counts the blocks that have got parts since the last barrier, to give each part blocks of its
    own. Kernels call the functions of their `shared` equivalent.
    """

    def __init__(self, shared: Mapping[str, Kernel]) -> None:
        self.shared = shared
        self.first = self.most = 0
        self.resident: JoinedPart | None = None

    def statements(self, parts: Sequence[JoinedStep], depth: int) -> tuple[list[str], int]:
        """The statements of `parts` within `depth` loops, and the most blocks busy between two
        barriers."""
        lines: list[str] = []
        for part in parts:
            if isinstance(part, JoinedLoop):
                lines += self.wait() if part.waits else []
                loop = (
                    self.loop(part, depth)
                    if part.staged_rows is None
                    else self.staged_loop(part, part.staged_rows)
                )
                if part.resident_part:
                    loop = [
                        "{",
                        *(f"  {x}" for x in (*self.load_resident(part.resident_part), *loop)),
                        "}",
                    ]
                lines += loop
            else:
                lines += self.part(part, depth)
        return lines, self.most

    def loop(self, repeat: JoinedLoop, depth: int) -> list[str]:
        """A loop over parts."""
        self.resident = repeat.resident_part
        inner, _ = self.statements(repeat.parts, depth + 1)
        self.resident = None
        head = f"for (int t{depth} = 0; t{depth} < {repeat.count}; t{depth}++) {{"
        return ["#pragma unroll 1", head, *(f"  {x}" for x in inner), "}"]

    def staged_loop(self, repeat: JoinedLoop, staged: StagedRows) -> list[str]:
        """A loop over parts of one grid, which each block runs independently with rows in shared
        memory."""
        shared, calls = SHARED_BYTES - staged.nbytes, []
        for part, places in zip(repeat.parts, staged.places, strict=True):
            assert isinstance(part, JoinedPart) and part.kernel, (
                "a part of a kernel, whose rows are near"
            )
            work = self.work(part.kernel, part, part is repeat.resident_part, places)
            threads = part.kernel.joined_launches[part.launch].block[0]
            calls.append(_play(f"near.play<{threads}, {shared}>(dynamic_shared", work))
        self.first = max(self.first, staged.blocks)
        self.most = max(self.most, self.first)
        return loop_text(staged, repeat.count, "t0", shared, calls)

    def part(self, part: JoinedPart, depth: int) -> list[str]:
        """A part, with the barrier before it."""
        lines = []
        if part.waits:
            lines += self.wait()
        elif self.first or part.owns_rows:
            lines.append("__syncthreads();")
        holds = part is self.resident
        work = _copy(part) if part.kernel is None else self.work(part.kernel, part, holds)
        threads = part.kernel.joined_launches[part.launch].block[0] if part.kernel else THREADS
        x, y = part.grid
        alone = part.owns_rows or part.blocks == 1  # the block is the same for each such part
        settings = f"<{threads}, {SHARED_BYTES}, {x}, {y}>({0 if alone else self.first}"
        when = ""
        if part.iterations:
            t, (first, count) = f"t{depth - 1}", part.iterations
            when = f"if ({t} >= {first} && {t} < {first + count}) "
        lines += _play(f"{when}play{settings}, dynamic_shared", work)
        self.first = max(self.first, part.blocks) if part.owns_rows else self.first + part.blocks
        self.most = max(self.most, self.first)
        return lines

    def wait(self) -> list[str]:
        """A barrier of all blocks, after which the next part may begin at any block."""
        self.first = 0
        return ["grid_barrier(&joined_word);"]

    def load_resident(self, part: JoinedPart) -> list[str]:
        """The statements that load a part's resident operand before its loop."""
        assert part.kernel is not None, "a copy holds nothing"
        kernel = self.shared[part.kernel.name]
        function = f"{kernel.name}_part::{kernel.joined_launches[part.launch].symbol}_hold("
        # What it reads is the same in all iterations; of the others it gets the first one's.
        places = [
            "held",
            "blockIdx.x",
            *(place_text(replace(place, moves=())) for place in part.addresses),
        ]
        return [f"{kernel.name}_part::Held held;", f"{function}{', '.join(places)});"]

    def work(
        self,
        kernel: Kernel,
        part: JoinedPart,
        resident: bool = False,
        staged: Sequence[StagedPlace | None] = (),
    ) -> str:
        """The call of a part's device function."""
        kernel = self.shared[kernel.name]
        symbol = part_function(kernel.joined_launches[part.launch].symbol)
        block = "HoldingBlock(block, held)" if resident else "block"
        found = staged or [None] * len(part.addresses)
        places = [
            place_text(place) if line is None else staged_text(line, "t0")
            for place, line in zip(part.addresses, found, strict=True)
        ]
        places = [f"NearBlock({block})" if staged else block, *places]
        return f"{kernel.name}_part::{symbol}({', '.join(places)});"


def _copy(part: JoinedPart) -> str:
    """The call that copies."""
    source, target = map(place_text, part.addresses)
    size = COPIED_AT_ONCE if part.aligned else 1
    return f"copy_part<{size}>(block, {source}, {target}, {part.nbytes});"


def _play(call: str, work: str) -> list[str]:
    """The statements of a part, from the call that runs its blocks and what each of them does."""
    return [f"{call}, [&](const auto& block) {{", f"  {work}", "});"]
