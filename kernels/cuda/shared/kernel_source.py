"""Print what surrounds the body of a CUDA kernel: includes, namespace, signature."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

import numpy as np

from graphc.ir import Graph, Value, dtype_name
from graphc.kernels.program.body.literals import memory_literal
from graphc.kernels.program.body.names import identifier
from graphc.kernels.program.body.statement import RegisterProgram
from graphc.kernels.program.body.window import WINDOWS
from graphc.kernels.program.joined import RESIDENT as RESIDENT
from graphc.kernels.program.joined import THREADS as THREADS
from graphc.kernels.program.kernel import (
    DeviceFunctions,
    GridLaunch,
    Kernel,
    TensorMap,
    moved_bytes,
    origin_of,
)
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES

WARP = 32
"""Threads that exchange registers."""

FEW_THREADS = 128
"""Threads of a block whose threads or warps work independently, each on its own rows."""
SHARED_BYTES = 48 * 1024
"""The most bytes of static shared memory of a block, by CUDA's programming guide."""
BLOCKS = 264
"""Blocks that fill a large device: two per multiprocessor on 132. A constant, so that kernels, and
with them results, do not depend on the device."""


JOINABLE = (
    "contract/contract",
    "recurrent/persistent",
    "recurrent/persistent_exact",
    "pointwise/pointwise",
    "reduce/reduce",
    "recurrent/rows",
)
"""Headers whose templates take the block that they do the work of, so that their kernels can be
parts of a joined launch (joined_launch.py)."""
TENSOR_HEADERS = (
    "convolution/halo",
    "convolution/halo_gradient",
    "convolution/im2col_gradient",
    "convolution/single_channel",
    "contract/tiles/tensor",
    "contract/tiles/wgmma",
    "contract/tiles/wgmma_bulk",
)
"""Headers whose templates take the block too, but cannot be parts of a joined launch."""
GROUPABLE = (
    "convolution/halo",
    "convolution/halo_gradient",
    "convolution/im2col_gradient",
    "contract/tiles/tensor",
)
"""Those of them whose blocks can share a launch with other kernels' (grouped_gemm.py)."""
DYNAMIC = "extern __shared__ __align__(16) unsigned char dynamic_shared[];"
"""The declaration of dynamic shared memory."""
PANELS = DYNAMIC.replace("16", "1024")
"""The declaration for wgmma, whose panels begin at multiples of 1024 bytes."""
"""The shared memory whose size a launch gives."""


@dataclass(frozen=True)
class Signature:
    """The parameters of a kernel: the body's inputs, its outputs and, last, the workspace. Pointers
    in `inplace` pairs are not `__restrict__`."""

    pointers: Mapping[Value, str]
    """Parameter names by value."""
    body: Graph
    """The kernel's body."""
    inplace: tuple[tuple[int, int], ...] = ()
    workspace: bool = False
    """Whether it has a workspace."""

    def types(self, restrict: bool = True) -> tuple[str, ...]:
        """The C types. `restrict` promises that no other parameter and no other block writes what
        is read through a parameter, so that the compiler may use the read-only cache."""
        inputs, outputs = ({pair[side] for pair in self.inplace} for side in (0, 1))
        values = [("const ", v, i in inputs) for i, v in enumerate(self.body.inputs)]
        values += [("", v, o in outputs) for o, v in enumerate(self.body.outputs)]
        return tuple(
            f"{const}{C_TYPES[v.type.dtype]}*{'' if shared or not restrict else ' __restrict__'}"
            for const, v, shared in values
        ) + ((f"unsigned char*{' __restrict__' * restrict}",) if self.workspace else ())

    def names(self) -> tuple[str, ...]:
        """The parameters' names."""
        names = tuple(self.pointers[v] for v in (*self.body.inputs, *self.body.outputs))
        return names + (("workspace",) if self.workspace else ())

    def parameters(self, restrict: bool = True) -> tuple[str, ...]:
        """The declarations of the parameters."""
        return tuple(f"{t} {n}" for t, n in zip(self.types(restrict), self.names(), strict=True))


def kernel_text(
    symbol: str,
    signature: Signature,
    threads: int,
    lines: Sequence[str],
    blocks: int = 0,
    maps: Sequence[str] = (),
    cluster: int = 1,
) -> list[str]:
    """The lines of an `extern "C"` kernel of `threads` per block with `lines` as its body.

    A multiprocessor must hold at least `blocks` blocks. Tensor maps named `maps` follow its
    arguments; `cluster` blocks form a cluster.
    """
    bounds = launch_bounds(threads, blocks)
    bounds += f" __cluster_dims__({cluster}, 1, 1)" * (cluster > 1)
    constants = [f"const __grid_constant__ TensorMap {name}" for name in maps]
    parameters = [*signature.parameters(), *constants]
    return entry(symbol, bounds, parameters, ["begin_launch();", *lines])


def launch_bounds(threads: int, blocks: int) -> str:
    """The `__launch_bounds__` of a kernel, of which a multiprocessor must hold at least `blocks`
    blocks (0: any). One block of `THREADS` or more is stated too, as ptxas otherwise reserves
    registers for two."""
    said = blocks > 1 or (blocks == 1 and threads >= THREADS)
    return f"__launch_bounds__({threads}{f', {blocks}' * said})"


def entry(symbol: str, bounds: str, parameters: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The lines of an `extern "C"` kernel with these bounds and `lines` as its body."""
    return [
        f'extern "C" __global__ void {bounds}',
        f"{symbol}({', '.join(parameters)}) {{",
        *(f"  {line}" for line in lines),
        "}",
    ]


def source(
    node: KernelNode,
    headers: Sequence[str],
    sections: Sequence[Sequence[str]],
    dynamic: bool = False,
) -> str:
    """The text of a kernel's file.

    It is in the namespace of the headers, whose functions hide the toolkit's of the same name, and
    in one of its own, so that files can be concatenated. `dynamic` shared memory is declared
    outside of both, under one name for all.
    """
    body = join_sections(sections)
    includes = include_lines(headers)
    panels = any(header.startswith("contract/tiles/wgmma") for header in headers)
    includes += f"\n\n{PANELS if panels else DYNAMIC}" if dynamic else ""
    space = f"graphc::{symbol_of(node, 'text')}"
    return f"{includes}\n\n{in_namespace(space, body)}\n"


def join_sections(sections: Sequence[Sequence[str]]) -> str:
    """Sections of lines, separated by empty lines."""
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def include_lines(headers: Sequence[str]) -> str:
    """The `#include` directives of these headers."""
    return "\n".join(f'#include "cuda/{h}.cuh"' for h in headers)


def in_namespace(space: str, body: str) -> str:
    """`body` in the namespace `space`."""
    return f"namespace {space} {{\n\n{body}\n\n}}  // namespace {space}"


def shared_parts(kernels: Iterable[Kernel]) -> dict[str, Kernel]:
    """The first of the kernels with the same device functions, by the name of each."""
    firsts: dict[str, Kernel] = {}
    return {k.name: firsts.setdefault(k.canonical_device_functions, k) for k in kernels}


def part_namespace(kernel: Kernel, last: GridLaunch) -> str:
    """The device functions of a kernel in a namespace of their own, where `Block` is the type of
    the `last` launch's blocks."""
    block = f"using Block = PartBlock<{last.block[0]}, {SHARED_BYTES}>;"
    return in_namespace(f"graphc::{kernel.name}_part", f"{block}\n\n{kernel.device_text}")


def constant_arrays(program: RegisterProgram) -> list[str]:
    """Definitions of a program's constants of more than one element."""
    lines = []
    for name, array in program.arrays.items():
        dtype = dtype_name(array.dtype)
        items = ", ".join(memory_literal(x, dtype) for x in np.ravel(array))
        lines.append(f"__device__ const {C_TYPES[dtype]} {name}[] = {{{items}}};")
    return lines


def delinearize(
    whole: str, names: Sequence[str], extents: Sequence[int], index: str, used: Collection[str]
) -> list[str]:
    """Definitions of the indices `names` with these extents from the linear index `whole`; only of
    those that are `used`."""
    size, step = math.prod(extents), math.prod(extents)
    definitions = []
    for name, extent in zip(names, extents, strict=True):
        first, step = step == size, step // max(extent, 1)
        text = f"{whole} / {step}" if step > 1 else whole
        if name in used:
            definitions.append(f"const {index} {name} = {text if first else f'{text} % {extent}'};")
    return definitions


def memory_order(values: Collection[Value]) -> tuple[int, ...]:
    """The axes of values of one shape from slowest to fastest, as most of their bytes are laid
    out."""
    bytes_of: dict[tuple[int, ...], int] = {}
    for value in values:
        order = value.type.layout.order(value.type.rank)
        bytes_of[order] = bytes_of.get(order, 0) + value.type.nbytes
    return max(bytes_of, key=lambda order: bytes_of[order])


def index_type(body: Graph) -> str:
    """The C++ type of element indices and offsets in a kernel of `body`. int leaves room for
    threads past the end, which may compute an index beyond the last."""
    values = (*body.inputs, *(v for n in body.nodes for v in n.outputs))
    return "int" if all(v.type.size < 2**30 for v in values) else "int64_t"


class LaunchMode(Enum):
    """Whether a launch serves the kernel alone, a joined launch, or either."""

    ALONE = auto()
    JOINED = auto()
    EITHER = auto()


class Launches:
    """Collects the launches of a kernel, each of a function with the same parameters."""

    def __init__(
        self,
        node: KernelNode,
        pointers: Mapping[Value, str],
        workspace: int = 0,
        inplace: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.node, self.workspace, self.inplace = node, workspace, inplace
        self._signature = Signature(pointers, node.body, inplace, workspace > 0)
        self._own: list[tuple[Any, ...]] = []
        self._parts: list[list[str]] = []
        self._grids: list[tuple[GridLaunch, int, LaunchMode]] = []
        self._counters: list[tuple[str, LaunchMode]] = []

    def add(
        self,
        lines: Sequence[str],
        blocks: int,
        part: str = "kernel",
        splits: int = 1,
        threads: int = THREADS,
        resident: int = 0,
        shared: int = 0,
        owned: tuple[int, ...] = (),
        maps: Mapping[str, TensorMap] = MappingProxyType({}),
        cluster: int = 1,
        mode: LaunchMode = LaunchMode.EITHER,
    ) -> None:
        """Add a launch of `lines` in `blocks` times `splits` blocks of `threads`.

        A multiprocessor must hold at least `resident` blocks; `shared` bytes are dynamic shared
        memory; `owned` is that of `GridLaunch`; `maps` are by parameter name; `cluster` blocks form
        a cluster. A launch of one `mode` has counterparts of the other mode that give the same
        bits.
        """
        symbol = symbol_of(self.node, part)
        own = (symbol, self._signature, threads, [*lines], resident, [*maps], cluster)
        self._own.append(own)
        if mode is not LaunchMode.ALONE:
            parameters = ("const Own& block", *self._signature.parameters(restrict=False))
            head = f"GRAPHC_INLINE void {part_function(symbol)}({', '.join(parameters)}) {{"
            self._parts.append(["template <class Own>", head, *(f"  {x}" for x in lines), "}"])
        grid, block = (blocks, splits, 1), (threads, 1, 1)
        launch = GridLaunch(symbol, grid, block, shared, owned, maps=(*maps.values(),))
        self._grids.append((launch, resident, mode))

    def counters(self, count: int, mode: LaunchMode = LaunchMode.EITHER) -> str:
        """The name of `count` new ticket counters (tickets.cuh) for one launch of this `mode`. They
        are variables of the kernel's file: launches of other files have their own, and launches of
        the same file must not overlap."""
        name = f"counters{len(self._counters) or ''}"
        self._counters.append((f"__device__ unsigned {name}[{count}];", mode))
        return name

    def set_patches(self, patches: tuple[int, int], multiple: int = 1) -> None:
        """Let the last launch's blocks cover `patches` and, in a joined launch, come in a
        `multiple`."""
        launch, resident, played = self._grids[-1]
        launch = replace(launch, patches=patches, multiple=multiple)
        self._grids[-1] = launch, resident, played

    def add_resident_loader(self, lines: Sequence[str], type: str) -> None:
        """Let `lines` load the operand that a block of the last launch can keep resident, into a
        `Held`."""
        symbol = f"{self._grids[-1][0].symbol}_hold"
        parameters = ("Held& held", "unsigned block", *self._signature.parameters(restrict=False))
        head = f"GRAPHC_INLINE void {symbol}({', '.join(parameters)}) {{"
        self._parts.append([f"using Held = {type};", head, *(f"  {x}" for x in lines), "}"])

    def kernel(
        self,
        headers: Sequence[str],
        sections: Sequence[Sequence[str]],
        flops: int = 0,
        choice: str = "",
        note: str = "",
        block: str = "WholeBlock",
    ) -> Kernel:
        """The kernel, with `sections` before its functions.

        `block` is the type of the blocks whose work the functions do. Kernels of whole blocks
        without tickets are made of device functions, which joined launches call too.
        """
        alone = [x for x, _, played in self._grids if played is not LaunchMode.JOINED]
        op, dynamic = self.node.op, any(launch.shared_bytes for launch in alone)
        pools = any(n.op.name in WINDOWS for n in self.node.body.nodes)
        headers = [*headers, "shared/window"] if pools and headers else headers
        parts, kind, given, shared = None, list[str](), list[str](), sections
        plain = block == "WholeBlock" and all(p is LaunchMode.ALONE for _, p in self._counters)
        if headers and headers[0] in (*JOINABLE, *GROUPABLE) and plain:
            shared = [*sections, *self._parts]
            grids = [(x, resident) for x, resident, p in self._grids if p is not LaunchMode.ALONE]
            others = tuple(x for x, _ in grids) if self._counters else ()
            resident = tuple(r for _, r in grids)
            parts = DeviceFunctions(tuple(headers), join_sections(shared), resident, others)
        if headers and headers[0] in (*JOINABLE, *TENSOR_HEADERS):
            kind, given = [f"using Block = {block};"], ["const Block block;"]
        functions = []
        for (symbol, signature, threads, lines, *rest), (_, _, played) in zip(
            self._own, self._grids, strict=True
        ):
            if played is LaunchMode.JOINED:
                continue
            if parts is not None and played is LaunchMode.EITHER:
                arguments = ", ".join(("Block()", *signature.names()))
                lines = [f"{part_function(symbol)}({arguments});"]
            else:
                lines = [*given, *lines]
            functions.append(kernel_text(symbol, signature, threads, lines, *rest))
        whole = [kind, [line for line, _ in self._counters], *shared, *functions]
        return Kernel(
            op.kernel,
            op.template,
            source(self.node, headers, whole, dynamic),
            phases=(),
            workspace=self.workspace,
            flops=flops,
            bytes=moved_bytes(self.node),
            inplace=self.inplace,
            launches=tuple(alone),
            device_functions=parts,
            choice=choice,
            note=note,
            draws_tickets=bool(self._counters),
            origin=origin_of(self.node),
        )


def part_function(symbol: str) -> str:
    """The device function of a launch, which does the work of a block."""
    return f"{symbol}_part"


def symbol_of(node: KernelNode, part: str = "kernel") -> str:
    """The symbol of a kernel of the node. It always names the part, so that a kernel called `exp`
    is not taken for the function."""
    return f"{identifier(node.op.kernel)}_{part}"
