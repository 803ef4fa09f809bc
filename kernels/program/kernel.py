"""The result of lowering: a kernel and its launches."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from graphc.ir import Node, Value
from graphc.kernels.program.calls import Call
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import Take, TakeAlongAxis
from graphc.ops.scatter import Scatter

_COMMENT = re.compile(r"//[^\n]*\n?")
_OWN = re.compile(r"\b[A-Za-z]\w*_(?:data)?\b")
"""What the printers call registers (`relu_1_`) and pointers (`relu_1_data`): no name that a kernel
has from elsewhere looks like that."""


def moved_bytes(node: Node) -> int:
    """Bytes of the inputs and outputs, once each; of a table, of what is taken from it, or put into
    it in place."""
    if not isinstance(node, KernelNode):
        return sum(v.type.nbytes for v in (*node.inputs, *node.outputs))
    body, tables = node.body, dict[Value, int]()
    for inner in body.nodes:
        for place, value in enumerate(inner.inputs):
            moved = value.type.nbytes
            if place == 0 and isinstance(inner.op, Take | TakeAlongAxis):
                moved = inner.output.type.nbytes
            elif place == 0 and isinstance(inner.op, Scatter):
                moved = tables[inner.output] = inner.inputs[2].type.nbytes
            tables[value] = tables.get(value, 0) + moved
    values = (*body.inputs, *body.outputs)
    return sum(min(v.type.nbytes, tables.get(v, v.type.nbytes)) for v in values)


@dataclass(frozen=True)
class Kernel:
    """One generated kernel for one target.

    The arguments are the storage of the node's inputs, then of its outputs, then the workspace if
    `workspace` > 0, in order. On the CPU the symbol is
    `extern "C" void NAME(void* const* arguments, int phase, int chunk)`; phase p is cut into
    `phases[p]` chunks that may run in any order and at once; phase p + 1 begins when p has ended.
    The number of chunks is fixed by the node, never by the number of threads.

    On CUDA `launches` names the symbols, `extern "C" __global__ void SYMBOL(arguments...)`, in
    the order in which they run, one after another; each takes all arguments.
    """

    name: str
    template: str
    source: str
    phases: tuple[int, ...] = (1,)
    workspace: int = 0
    """Bytes of scratch, written and read by this kernel alone."""
    flops: int = 0
    bytes: int = 0
    """Bytes read and written, by `moved_bytes`."""
    inplace: tuple[tuple[int, int], ...] = ()
    """(input, output) pairs that may be the same memory: each element of the output is written
    by the chunk that read that element of the input, after reading it, and no other chunk or
    element reads it."""
    offsets: tuple[int, ...] = ()
    """The first byte of each input that the functions are given; () is that of all."""
    launches: tuple[GridLaunch, ...] = ()
    parts: DeviceFunctions | None = None
    """On CUDA: what a launch that has this kernel's as parts prints of it, if there can be one."""
    gaps: tuple[tuple[int, ...], ...] = ()
    """On CUDA, for each output: (period, live) if of every `period` bytes it writes the first
    `live` alone, as the others are padding; () if it writes all. Empty if it does so for all."""
    note: str = ""
    """What the plan's notes say of how it computes."""
    choice: str = ""
    """The tile that was chosen, and why."""
    call: Call | None = None
    """On CUDA: what a library is asked for, in place of launches."""
    rank: int = 0
    """The place of the library's algorithm in what its heuristic proposes."""
    held: int = 0
    """On CUDA: bytes of an input that the blocks of a launch of which this is a part may read once,
    before a loop, and hold on to: by the function of its launch's symbol and `_hold`."""
    double_buffered: bool = False
    """On CUDA: in a loop its workspace lies in two places that take turns, so that blocks that are
    an iteration ahead of others do not write what those still read."""
    draws: bool = False
    """On CUDA: whether blocks draw tickets, by counters of the file. So no two launches of it may
    be at once, and kernels of one text share no loaded file."""
    order: str = ""
    """On CUDA, of a contraction: by what and in which order it adds the terms of a sum. Kernels of
    one order make the same bits of the same terms. Empty where nothing is promised."""

    @property
    def joined(self) -> tuple[GridLaunch, ...]:
        """On CUDA: the launches that are parts of a joined launch, if this kernel's can be."""
        return (self.parts and self.parts.launches) or self.launches

    @property
    def fills(self) -> bool:
        """On CUDA: whether blocks that hold what they read fill a multiprocessor each."""
        return self.held > 0 and any(launch.patches for launch in self.launches)

    def at_offsets(self, offsets: tuple[int, ...]) -> Kernel:
        """The kernel whose inputs begin so many bytes behind those of its node."""
        pairs = tuple((i, o) for i, o in self.inplace if not any(offsets[i : i + 1]))
        moved = {i for i, offset in enumerate(offsets) if offset}
        launches = tuple(x.without(moved) for x in self.launches)
        parts = self.parts and replace(
            self.parts, launches=tuple(x.without(moved) for x in self.parts.launches)
        )
        return replace(self, offsets=offsets, inplace=pairs, launches=launches, parts=parts)

    def offset(self, argument: int) -> int:
        """The first byte of an argument that the function is given."""
        return self.offsets[argument] if argument < len(self.offsets) else 0

    @functools.cached_property
    def canonical(self) -> str:
        """The text without comments and with numbers for its own names: those of the kernel, its
        registers and its pointers. Kernels of one canonical text do the same."""
        if self.call is not None:
            return repr((self.call, self.choice))
        text = re.sub(rf"\bvoid {self.name}\(", "void kernel(", _COMMENT.sub("", self.source))
        text = re.sub(r"\bnamespace (graphc::)?\w+_(space|text) \{", r"namespace \1kernel {", text)
        return _canonical(text, self.launches)

    @functools.cached_property
    def canonical_parts(self) -> str:
        """The same of its parts, with all else that a joined launch prints of them."""
        assert self.parts is not None, f"{self.name} may be part of a launch"
        text = _canonical(_COMMENT.sub("", self.parts.text), self.joined)
        unnamed = [replace(launch, symbol="") for launch in self.joined]
        return repr((text, self.parts.headers, unnamed, self.held))


def _canonical(text: str, launches: Sequence[GridLaunch]) -> str:
    """`text` with numbers for the symbols of launches, registers and pointers, on one line: where
    lines are wrapped depends on names."""
    for number, launch in enumerate(launches):
        text = re.sub(rf"\b{launch.symbol}(_hold)?\(", rf"kernel{number}\1(", text)
    text = " ".join(text.split()).replace("( ", "(")
    numbers: dict[str, int] = {}
    return _OWN.sub(lambda own: f"_{numbers.setdefault(own[0], len(numbers))}", text)


@dataclass(frozen=True)
class DeviceFunctions:
    """The text of a kernel as parts of a launch: headers, and what lies in the kernel's namespace.
    There each launch is a device function of its symbol, whose first parameter is the block that it
    does the work of; then come the kernel's arguments. The type of the last launch's blocks, and of
    those of all that reduce, is `Block`, which is not defined there. Of each launch a
    multiprocessor shall hold so many blocks at least (`resident`; 0: any number). Where the kernel
    draws tickets, `launches` that draw none and leave the same bits are in the place of its own."""

    headers: tuple[str, ...]
    text: str
    resident: tuple[int, ...] = ()
    launches: tuple[GridLaunch, ...] = ()


@dataclass(frozen=True)
class TensorMap:
    """A matrix in a kernel's argument of this number, as TMA copies panels of it: `lines` of
    `length` elements of `dtype`, of two bytes, that lie side by side from byte `offset` on, each
    `pitch` bytes behind the one before."""

    argument: int
    dtype: str
    offset: int
    length: int
    lines: int
    pitch: int


@dataclass(frozen=True)
class GridLaunch:
    """A CUDA launch: the symbol, blocks and threads per axis, dynamic shared memory in bytes. Of
    the arguments that are `owned`, by number, block i touches the i-th of equal parts alone, as
    many as there are blocks; or, if there are `patches`, of as many rows and columns as these
    say, the i-th 16 x 16 of them, in each section of an argument's columns. A cooperative launch
    has a `multiple` of so many blocks. Behind the kernel's arguments it takes `maps`."""

    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    owned: tuple[int, ...] = ()
    patches: tuple[int, ...] = ()
    multiple: int = 1
    maps: tuple[TensorMap, ...] = ()

    def without(self, arguments: Collection[int]) -> GridLaunch:
        """The launch that owns nothing of these arguments."""
        return replace(self, owned=tuple(i for i in self.owned if i not in arguments))
