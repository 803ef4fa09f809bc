"""The result of lowering: a kernel and its launches."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from graphc.ir import Node, Value
from graphc.kernels.program.calls import Call
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import Take, TakeAlongAxis
from graphc.ops.scatter import Scatter

_COMMENT = re.compile(r"//[^\n]*\n?")
_FUNCTION = re.compile(r"\bvoid (\w+)\(")
_OWN = re.compile(r"\b[A-Za-z]\w*_(?:data)?\b")
"""Names that printers give registers (`relu_1_`) and pointers (`relu_1_data`); no other name in a
kernel looks like that."""


def moved_bytes(node: Node) -> int:
    """Bytes of the node's inputs and outputs, each counted once. Of a table only the rows that are
    gathered or scattered in place count."""
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

    Its arguments are the storage of the node's inputs, then of its outputs, then the workspace if
    `workspace` > 0.

    On the CPU the symbol is `extern "C" void NAME(void* const* arguments, int phase, int chunk)`.
    Phase p is cut into `phases[p]` chunks that may run in any order and concurrently; phase p + 1
    begins when phase p has ended. The number of chunks depends on the node, never on the number of
    threads.

    On CUDA `launches` run one after another. Their symbols are `extern "C" __global__ void
    SYMBOL(arguments...)`, and each takes all arguments.
    """

    name: str
    """The name in plans, profiles and messages."""
    template: str
    """The template that it instantiates, such as `contract`."""
    source: str
    """The C++ or CUDA text."""
    phases: tuple[int, ...] = (1,)
    """On the CPU: the number of chunks of each phase."""
    workspace: int = 0
    """Bytes of scratch memory that only this kernel uses; 0 for none."""
    flops: int = 0
    """Floating-point operations of one run."""
    bytes: int = 0
    """Bytes read and written, by `moved_bytes`."""
    inplace: tuple[tuple[int, int], ...] = ()
    """(input, output) pairs that may share memory: each element of the output is written by the
    chunk that read the same element of the input, after reading it, and nothing else reads that
    element."""
    offsets: tuple[int, ...] = ()
    """Byte offset into each input that the functions expect in their arguments; () means 0 for
    all."""
    launches: tuple[GridLaunch, ...] = ()
    """The CUDA launches, in order."""
    device_functions: DeviceFunctions | None = None
    """On CUDA: the launches as device functions for a joined launch; None if it cannot be part of
    one."""
    gaps: tuple[tuple[int, ...], ...] = ()
    """On CUDA, for each output: (period, live) if it writes only the first `live` of every `period`
    bytes, as the rest is padding; () if it writes all. Empty if no output has padding."""
    choices: tuple[tuple[int, int], ...] = ()
    """(condition, input): where the condition, an input bool [], is false, no output depends on
    the other input."""
    keeps: tuple[tuple[int, int, int], ...] = ()
    """(condition, input, output): where the condition is false, the output is the input."""
    sums: Literal["none", "stated", "own"] = "none"
    """The order in which it adds floats: `stated` if the node or its op states it, so that every
    CPU and every batch gives the same bits; `own` if it is the kernel's, and holds on this device;
    `none` if it adds none."""
    note: str = ""
    """How it computes, for the plan's notes."""
    choice: str = ""
    """The chosen tile and the reason."""
    call: Call | None = None
    """On CUDA: the library call that replaces the launches; None for a generated kernel."""
    rank: int = 0
    """The algorithm's rank in what the library's heuristic proposes."""
    resident_bytes: int = 0
    """On CUDA: bytes of an operand that a block can load once before a loop and keep in registers
    over its iterations; 0 if it reloads the operand. The function SYMBOL_hold loads them."""
    double_buffered: bool = False
    """On CUDA: whether the workspace alternates between two buffers from one iteration of a loop to
    the next. Blocks may run an iteration ahead of others, which still read the previous partial
    sums."""
    draws_tickets: bool = False
    """On CUDA: whether blocks draw tickets from counters in the kernel's module. Two launches of
    the kernel must not overlap, and kernels of equal text do not share a module."""
    summation_order: str = ""
    """On CUDA, for a contraction: the instructions and the order that sum its terms. Kernels of
    equal order give the same bits. Empty if nothing is promised."""

    @property
    def joined_launches(self) -> tuple[GridLaunch, ...]:
        """On CUDA: the launches that serve as parts of a joined launch."""
        return (self.device_functions and self.device_functions.launches) or self.launches

    @property
    def fills_multiprocessor(self) -> bool:
        """On CUDA: whether one block with a resident operand fills a multiprocessor."""
        return self.resident_bytes > 0 and any(launch.patches for launch in self.launches)

    def at_offsets(self, offsets: tuple[int, ...]) -> Kernel:
        """The kernel with inputs that begin `offsets` bytes after those of its node."""
        pairs = tuple((i, o) for i, o in self.inplace if not any(offsets[i : i + 1]))
        moved = {i for i, offset in enumerate(offsets) if offset}
        launches = tuple(x.without(moved) for x in self.launches)
        parts = self.device_functions and replace(
            self.device_functions,
            launches=tuple(x.without(moved) for x in self.device_functions.launches),
        )
        return replace(
            self, offsets=offsets, inplace=pairs, launches=launches, device_functions=parts
        )

    def offset(self, argument: int) -> int:
        """The byte offset into an argument that the functions expect."""
        return self.offsets[argument] if argument < len(self.offsets) else 0

    @cached_property
    def canonical(self) -> str:
        """The text without comments, with its own names (kernel, registers, pointers) replaced by
        numbers. Kernels of equal canonical text do the same."""
        if self.call is not None:
            return repr((self.call, self.choice))

        def unnamed(function: re.Match[str]) -> str:
            return "void kernel(" if function[1] == self.name else function[0]

        text = _FUNCTION.sub(unnamed, _COMMENT.sub("", self.source))
        text = re.sub(r"\bnamespace (graphc::)?\w+_(space|text) \{", r"namespace \1kernel {", text)
        return _canonical(text, self.launches)

    @cached_property
    def canonical_device_functions(self) -> str:
        """The canonical text of its device functions, with all else that a joined launch prints of
        them."""
        assert self.device_functions is not None, f"{self.name} may be part of a launch"
        text = _canonical(_COMMENT.sub("", self.device_functions.text), self.joined_launches)
        unnamed = [replace(launch, symbol="") for launch in self.joined_launches]
        return repr((text, self.device_functions.headers, unnamed, self.resident_bytes))


def _canonical(text: str, launches: Sequence[GridLaunch]) -> str:
    """`text` on one line with numbers for the symbols of launches, registers and pointers. Line
    breaks depend on the lengths of names, so they are dropped."""
    for number, launch in enumerate(launches):
        text = re.sub(rf"\b{launch.symbol}(_hold)?\(", rf"kernel{number}\1(", text)
    text = " ".join(text.split()).replace("( ", "(")
    numbers: dict[str, int] = {}
    return _OWN.sub(lambda own: f"_{numbers.setdefault(own[0], len(numbers))}", text)


@dataclass(frozen=True)
class DeviceFunctions:
    """A kernel's launches as device functions, to be called as parts of a joined launch.

    The function of a launch is named after its symbol. Its first parameter is the block whose work
    it does, then come the kernel's arguments. `Block`, the type of the blocks of the last launch
    and of all that reduce, is defined by the joined launch.
    """

    headers: tuple[str, ...]
    """Headers to include."""
    text: str
    """The contents of the kernel's namespace."""
    resident: tuple[int, ...] = ()
    """For each launch, the least number of blocks that a multiprocessor must hold; 0 for any."""
    launches: tuple[GridLaunch, ...] = ()
    """For a kernel that draws tickets: launches without tickets that give the same bits. Empty if
    the kernel's own launches are used."""


@dataclass(frozen=True)
class TensorMap:
    """A matrix in a kernel argument, as TMA copies panels of it."""

    argument: int
    """The argument's number."""
    dtype: str
    """The dtype of an element, of two bytes."""
    offset: int
    """Bytes before the first element."""
    length: int
    """Elements of a line."""
    lines: int
    """Number of lines."""
    pitch: int
    """Bytes from one line to the next."""


@dataclass(frozen=True)
class GridLaunch:
    """A CUDA launch of a kernel's symbol."""

    symbol: str
    """The kernel's symbol."""
    grid: tuple[int, int, int]
    """Blocks along each axis."""
    block: tuple[int, int, int]
    """Threads along each axis."""
    shared_bytes: int = 0
    """Bytes of dynamic shared memory."""
    owned: tuple[int, ...] = ()
    """Numbers of the arguments that are partitioned among blocks: block i touches only the i-th of
    as many equal parts as there are blocks, or the i-th patch if there are `patches`."""
    patches: tuple[int, ...] = ()
    """(rows, columns) that blocks cover in patches of 16 x 16, in each section of an argument's
    columns; () if blocks own whole rows."""
    multiple: int = 1
    """A cooperative launch must have a multiple of this number of blocks."""
    maps: tuple[TensorMap, ...] = ()
    """Tensor maps that follow the kernel's arguments."""

    def without(self, arguments: Collection[int]) -> GridLaunch:
        """The launch with `arguments` no longer owned."""
        return replace(self, owned=tuple(i for i in self.owned if i not in arguments))
