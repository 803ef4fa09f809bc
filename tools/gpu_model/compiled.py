"""Plans of workloads for a GPU, with the machine code of their kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.run import compiled as compiled_step
from benchmarks.workload import Workload
from graphc.base.cores import usable_cores
from graphc.kernels.program.kernel import GridLaunch
from graphc.kernels.program.kernel import Kernel as Printed
from graphc.runtime.cuda.compile import Usage, compile_cuda
from graphc.runtime.plan.plan import Copy, Plan, Range, Record, Wait
from graphc.runtime.plan.plan import JoinedLaunch as Joining
from graphc.runtime.plan.plan import Launch as Launching
from graphc.runtime.plan.unroll import unrolled
from tools.gpu_model.constants import code_digest, tables
from tools.gpu_model.sass import disassembled, find_nvdisasm
from tools.gpu_model.walk import Code

Sizes = tuple[int, int, int]


@dataclass(frozen=True)
class ByteRange:
    """Bytes `start` to `stop` of a segment of the plan."""

    segment: str
    start: int
    stop: int


@dataclass(frozen=True)
class CompiledLaunch:
    """One launch of a kernel."""

    symbol: str
    grid: Sizes
    block: Sizes
    registers: int
    """Registers per thread."""
    spilled: int
    """Spilled bytes per thread."""
    static: int
    """Bytes of static shared memory."""
    dynamic: int
    """Bytes of dynamic shared memory."""
    code: Code
    """The machine code."""
    edges: tuple[int, ...] = ()
    """Numbers of the blocks at which the work of the launch changes."""


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel with its compiled launches."""

    name: str
    template: str
    ops: str
    """The ops that it computes."""
    flops: int
    bytes: int
    workspace: int
    launches: tuple[CompiledLaunch, ...]
    same: str
    """The name of the first kernel of equal text."""
    code: str = ""
    """The digest of its machine code."""


@dataclass(frozen=True)
class CompiledStep:
    """A step of the plan on a stream, with loops unrolled."""

    kind: str
    """One of "launch", "copy", "record" and "wait"."""
    stream: int
    number: int
    """The number of the plan's step."""
    kernel: str = ""
    event: int = -1
    reads: tuple[ByteRange, ...] = ()
    writes: tuple[ByteRange, ...] = ()


@dataclass(frozen=True)
class CompiledJoinedLaunch:
    """The plan's steps from number `first` to before `stop` as one launch, whose blocks are a
    multiple of `multiple`."""

    first: int
    stop: int
    multiple: int
    kernel: CompiledKernel


@dataclass(frozen=True)
class CompiledPlan:
    """A workload's training step."""

    kernels: dict[str, CompiledKernel]
    steps: list[CompiledStep]
    streams: int
    host_bytes: int
    """Bytes of inputs and outputs."""
    arena: int
    """Bytes of work memory."""
    joined: tuple[CompiledJoinedLaunch, ...] = ()


@dataclass
class Images:
    """Kernels compiled for `arch` and disassembled, by their canonical texts."""

    arch: str
    nvdisasm: str = field(default_factory=find_nvdisasm)
    known: dict[str, _Image] = field(default_factory=dict)

    def add(self, kernels: Sequence[Printed]) -> None:
        """Compile unknown kernels. Raises CompileError and NoDisassemblerError."""
        firsts: dict[str, Printed] = {}
        for kernel in kernels:
            if kernel.launches and kernel.canonical not in self.known:
                firsts.setdefault(kernel.canonical, kernel)
        with ThreadPoolExecutor(usable_cores()) as pool:
            self.known |= zip(firsts, pool.map(self._read, firsts.values()), strict=True)

    def digest(self, kernel: Printed) -> str:
        """The digest of the machine code of a kernel that was added; "" for a library's call."""
        return self.known[kernel.canonical].digest if kernel.launches else ""

    def launches(self, kernel: Printed) -> tuple[CompiledLaunch, ...]:
        """The launches of a kernel that was added."""
        if not kernel.launches:
            return ()
        image = self.known[kernel.canonical]
        return tuple(
            image.launch(mine, theirs)
            for mine, theirs in zip(kernel.launches, image.first.launches, strict=True)
        )

    def _read(self, kernel: Printed) -> _Image:
        cubin = compile_cuda(kernel.source, kernel.name, self.arch)
        codes, known = disassembled(cubin.image, self.nvdisasm), tables(cubin.image)
        read = {symbol: Code(blocks, known) for symbol, blocks in codes.items()}
        return _Image(kernel, cubin.usage, read, code_digest(cubin.image))


@dataclass(frozen=True)
class _Image:
    first: Printed
    usage: dict[str, Usage]
    codes: dict[str, Code]
    digest: str

    def launch(self, mine: GridLaunch, theirs: GridLaunch) -> CompiledLaunch:
        used, code = self.usage[theirs.symbol], self.codes[theirs.symbol]
        grid, block = _three(mine.grid), _three(mine.block)
        taken = used.registers, used.spilled, used.shared, mine.shared_bytes
        edges = edges_of(self.first.source, theirs) if grid[1:] == (1, 1) else ()
        return CompiledLaunch(mine.symbol, grid, block, *taken, code, edges)


def compiled(workload: Workload, streams: int, precision: str, images: Images) -> CompiledPlan:
    """The plan of a workload's training step for a GPU, with its kernels. Raises CompileError and
    NoDisassemblerError."""
    options: dict[str, Any] = {"device": "cuda", "streams": streams, "precision": precision}
    plan: Plan = compiled_step(workload, workload.data(), "train", options).plan
    images.add([*plan.kernels.values(), *(joined.kernel for joined in plan.joined)])
    steps = list(_steps(plan))
    places = [binding.place for binding in (*plan.inputs, *plan.outputs)]
    return CompiledPlan(
        {name: _kernel(kernel, images) for name, kernel in plan.kernels.items()},
        steps,
        plan.streams,
        sum(place.stop - place.start for place in places),
        plan.peak_bytes,
        tuple(_joined(plan, joined, steps, images) for joined in plan.joined),
    )


def edges_of(text: str, launch: GridLaunch) -> tuple[int, ...]:
    """The block numbers that the kernel's text compares a launch's block number with."""
    _, _, behind = text.partition(f"\n{launch.symbol}(")
    body = behind.partition('extern "C"')[0]
    found = {int(number) for number in re.findall(r"blockIdx\.x < (\d+)", body)}
    return tuple(sorted(number for number in found if 0 < number < launch.grid[0]))


def _kernel(kernel: Printed, images: Images) -> CompiledKernel:
    head = kernel.source.split("\n#include")[0].replace("\n//", "").removeprefix("//")
    same = images.known[kernel.canonical].first.name if kernel.launches else kernel.name
    return CompiledKernel(
        kernel.name,
        kernel.template,
        head.partition(":")[2].strip()[:160],
        kernel.flops,
        kernel.bytes,
        kernel.workspace,
        images.launches(kernel),
        same,
        images.digest(kernel),
    )


def _joined(
    plan: Plan, joined: Joining, steps: Sequence[CompiledStep], images: Images
) -> CompiledJoinedLaunch:
    """A joined launch, whose kernel has the FLOPs and bytes of all its steps."""
    inside = [step for step in steps if joined.first <= step.number < joined.stop and step.kernel]
    flops = sum(plan.kernels[step.kernel].flops for step in inside)
    nbytes = sum(plan.kernels[step.kernel].bytes for step in inside)
    kernel = replace(_kernel(joined.kernel, images), flops=flops, bytes=nbytes)
    return CompiledJoinedLaunch(
        joined.first, joined.stop, joined.kernel.launches[0].multiple, kernel
    )


def _steps(plan: Plan) -> Iterable[CompiledStep]:
    for step, number in ((each.step, each.number) for each in unrolled(plan)):
        if isinstance(step, Launching):
            reads, writes = _spans(step.reads), _spans(step.writes)
            yield CompiledStep(
                "launch", step.stream, number, step.kernel, reads=reads, writes=writes
            )
        elif isinstance(step, Copy):
            reads, writes = _spans((step.source,)), _spans((step.target,))
            yield CompiledStep("copy", step.stream, number, reads=reads, writes=writes)
        elif isinstance(step, Record):
            yield CompiledStep("record", step.stream, number, event=step.event)
        elif isinstance(step, Wait):
            yield CompiledStep("wait", step.stream, number, event=step.event)


def _spans(places: Sequence[Range]) -> tuple[ByteRange, ...]:
    return tuple(ByteRange(p.segment, p.start, p.stop) for p in places)


def _three(sizes: Sequence[int]) -> Sizes:
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z
