"""The launches of a CUDA kernel: functions of blocks, which the kernel and joined launches call."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Protocol

from graphc.base.cached import cached_property
from graphc.ir import Graph, Value
from graphc.kernels.cuda.shared.kernel_source import (
    DYNAMIC,
    GROUPABLE,
    JOINABLE,
    SHARED_BYTES,
    TENSOR_HEADERS,
    THREADS,
    entry,
    in_namespace,
    include_lines,
    launch_bounds,
    source,
    symbol_of,
)
from graphc.kernels.loops.language import Nest
from graphc.kernels.loops.text import form_with_arguments
from graphc.kernels.program.body.window import WINDOWS
from graphc.kernels.program.kernel import (
    DeviceFunctions,
    GridLaunch,
    Kernel,
    Section,
    TensorMap,
    Text,
    moved_bytes,
    origin_of,
)
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES


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


class Loops(Protocol):
    """The loops of a launch as values, and their printer."""

    @property
    def nests(self) -> tuple[Nest, ...]:
        """The loops of all its blocks."""

    @property
    def settings(self) -> Hashable:
        """All else that is printed, but for names."""

    @property
    def lines(self) -> list[str]:
        """The statements of a block, with holes for names."""


@dataclass(frozen=True)
class BlockFunction:
    """The device function of a launch, which does the work of a block."""

    symbol: str
    """The launch's symbol."""
    signature: Signature
    """The parameters behind the block."""
    body: Loops | Sequence[str]
    """Its loops, or statements that call a template."""

    @cached_property
    def lines(self) -> list[str]:
        """The definition."""
        body = self.body if isinstance(self.body, Sequence) else self.body.lines
        parameters = ("const Own& block", *self.signature.parameters(restrict=False))
        head = f"GRAPHC_INLINE void {part_function(self.symbol)}({', '.join(parameters)}) {{"
        return ["template <class Own>", head, *(f"  {x}" for x in body), "}"]

    @property
    def form(self) -> Hashable:
        """Its loops on its arguments; None for statements."""
        if isinstance(self.body, Sequence):
            return None
        names, types = self.signature.names(), self.signature.types(restrict=False)
        loops = tuple(form_with_arguments(nest, names) for nest in self.body.nests)
        return types, loops, self.body.settings


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
        self._parts: list[Section] = []
        self._grids: list[tuple[GridLaunch, int, LaunchMode]] = []
        self._counters: list[tuple[str, LaunchMode]] = []

    def add(
        self,
        body: Loops | Sequence[str],
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
        """Add a launch of loops, or of lines, in `blocks` times `splits` blocks of `threads`.

        A multiprocessor must hold at least `resident` blocks; `shared` bytes are dynamic shared
        memory; `owned` is that of `GridLaunch`; `maps` are by parameter name; `cluster` blocks form
        a cluster. A launch of one `mode` has counterparts of the other mode that give the same
        bits.
        """
        symbol = symbol_of(self.node, part)
        self._own.append((symbol, self._signature, threads, body, resident, [*maps], cluster))
        if mode is not LaunchMode.ALONE:
            self._parts.append(BlockFunction(symbol, self._signature, body))
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
        held = f"using Held = {type};", head, *(f"  {x}" for x in lines), "}"
        self._parts.append(Text(held))

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
        parts, kind, given, shared = None, list[str](), list[str](), [*sections]
        plain = block == "WholeBlock" and all(p is LaunchMode.ALONE for _, p in self._counters)
        if headers and headers[0] in (*JOINABLE, *GROUPABLE) and plain:
            shared += [part.lines for part in self._parts]
            grids = [(x, resident) for x, resident, p in self._grids if p is not LaunchMode.ALONE]
            others = tuple(x for x, _ in grids) if self._counters else ()
            resident, definitions = tuple(r for _, r in grids), tuple(map(tuple, sections))
            functions = tuple(self._parts)
            parts = DeviceFunctions(tuple(headers), definitions, functions, resident, others)
        if headers and headers[0] in (*JOINABLE, *TENSOR_HEADERS):
            kind, given = [f"using Block = {block};"], ["const Block block;"]
        kernels = list[list[str]]()
        for (symbol, signature, threads, body, *rest), (_, _, played) in zip(
            self._own, self._grids, strict=True
        ):
            if played is LaunchMode.JOINED:
                continue
            if parts is not None and played is LaunchMode.EITHER:
                arguments = ", ".join(("Block()", *signature.names()))
                lines = [f"{part_function(symbol)}({arguments});"]
            else:
                lines = [*given, *(body if isinstance(body, Sequence) else body.lines)]
            kernels.append(kernel_text(symbol, signature, threads, lines, *rest))
        whole = [kind, [line for line, _ in self._counters], *shared, *kernels]
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


def shared_parts(kernels: Iterable[Kernel]) -> dict[str, Kernel]:
    """The first of the kernels with the same device functions, by the name of each."""
    firsts: dict[Hashable, Kernel] = {}
    return {k.name: firsts.setdefault(k.part_form, k) for k in kernels}


def parts_text(
    kernels: Iterable[Kernel], space: str, body: str, headers: Sequence[str] = ()
) -> str:
    """The text of a launch that plays parts: the device functions of distinct kernels, each in a
    namespace of its own, and `body` in another. `headers` are included last."""
    included, spaces = dict[str, None](), list[str]()
    for kernel in kernels:
        assert kernel.device_functions is not None, f"{kernel.name} may be part of a launch"
        included |= dict.fromkeys(kernel.device_functions.headers)
        block = f"using Block = PartBlock<{kernel.joined_launches[-1].block[0]}, {SHARED_BYTES}>;"
        functions = f"{block}\n\n{kernel.device_text}"
        spaces.append(in_namespace(f"graphc::{kernel.name}_part", functions))
    included |= dict.fromkeys(headers)
    head = f"{include_lines(list(included) or ['shared/memory'])}\n\n{DYNAMIC}"
    return "\n\n".join([head, *spaces, in_namespace(space, body)]) + "\n"


def part_function(symbol: str) -> str:
    """The device function of a launch, which does the work of a block."""
    return f"{symbol}_part"
