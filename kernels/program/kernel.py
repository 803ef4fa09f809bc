"""The result of lowering: a kernel and its launches."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from graphc.base.cached import cached_property
from graphc.ir import Node, Value
from graphc.kernels.program.calls import Call
from graphc.kernels.program.form import Form, canonical_text, filled, wrapped
from graphc.kernels.program.message import Message
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import Take, TakeAlongAxis
from graphc.ops.scatter import Scatter


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


def origin_of(node: Node) -> str:
    """`Kernel.origin` of a node: the kernel's name, its ops, and where in the user's program."""
    name, leaves = node.outputs[0].name, [node]
    if isinstance(node, KernelNode):
        name, leaves = node.op.kernel, node.leaves
    ops = "; ".join(dict.fromkeys(n.op.name for n in leaves))
    return f"{name}: {ops} {node.where}".rstrip()


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
    text: str
    """The C++ or CUDA text, with holes for names (form.py)."""
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
    writes_changes: bool = False
    """On CUDA: whether an output in place of an input is written only where it changes, as a
    scatter's."""
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
    names: tuple[str, ...] = ()
    """The names in the holes of its texts; () if they have none."""
    origin: str = ""
    """What it computes and where in the user's program, a comment ahead of its text."""
    summation_order: str = ""
    """On CUDA, for a contraction: the instructions and the order that sum its terms. Kernels of
    equal order give the same bits. Empty if nothing is promised."""
    message: Message | None = None
    """What it sends and receives; None for a kernel that computes."""

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
    def source(self) -> str:
        """The C++ or CUDA text with all names."""
        origin = filled(self.origin, self.names)
        comment = textwrap.fill(origin, 98, initial_indent="// ", subsequent_indent="// ")
        return f"{comment}\n{wrapped(filled(self.text, self.names))}" if origin else self.text

    @property
    def device_text(self) -> str:
        """The contents of the namespace of its device functions, with all names that it has."""
        assert self.device_functions is not None, f"{self.name} may be part of a launch"
        text = self.device_functions.text
        return filled(text, self.names) if self.names else text

    @property
    def canonical(self) -> str:
        """The text without names. Kernels of equal canonical text do the same."""
        return canonical_text(self.text) if self.call is None else repr((self.call, self.choice))

    @cached_property
    def part_form(self) -> Hashable:
        """All that a joined launch prints of it, by any names."""
        assert self.device_functions is not None, f"{self.name} may be part of a launch"
        unnamed = tuple(replace(launch, symbol="") for launch in self.joined_launches)
        return self.device_functions.form, unnamed, self.resident_bytes

    def named(self, form: Form, where: str) -> Kernel:
        """The kernel of a node, from that of the node's `form`; `where` is the node's place in the
        user's program."""

        def own(launches: tuple[GridLaunch, ...]) -> tuple[GridLaunch, ...]:
            return tuple(replace(x, symbol=filled(x.symbol, form.names)) for x in launches)

        name, choice, note = (filled(x, form.names) for x in (self.name, self.choice, self.note))
        parts = self.device_functions
        return replace(
            self,
            name=name,
            names=form.names,
            origin=f"{self.origin} {where}".rstrip(),
            launches=own(self.launches),
            device_functions=parts and replace(parts, launches=own(parts.launches)),
            choice=choice,
            note=note,
        )


class Section(Protocol):
    """Lines of a kernel's text as a value, which is printed in each text that has it."""

    @property
    def lines(self) -> Sequence[str]:
        """The lines, with holes for names."""

    @property
    def form(self) -> Hashable:
        """What it computes, by any names; None where only the lines say that."""


@dataclass(frozen=True)
class Text:
    """Lines that a template prints, whose loops are its own."""

    lines: tuple[str, ...]

    @property
    def form(self) -> None:
        """None: the lines say what they compute."""


@dataclass(frozen=True)
class DeviceFunctions:
    """A kernel's launches as device functions, to be called as parts of a joined launch.

    The function of a launch is named after its symbol. Its first parameter is the block whose work
    it does, then come the kernel's arguments. `Block`, the type of the blocks of the last launch
    and of all that reduce, is defined by the joined launch.
    """

    headers: tuple[str, ...]
    """Headers to include."""
    definitions: tuple[tuple[str, ...], ...] = field(compare=False, repr=False)
    """The lines of what the functions use; where all functions are loops, it follows from these."""
    functions: tuple[Section, ...] = field(compare=False, repr=False)
    """The functions of the launches, which the kernel's own text has too."""
    resident: tuple[int, ...] = ()
    """For each launch, the least number of blocks that a multiprocessor must hold; 0 for any."""
    launches: tuple[GridLaunch, ...] = ()
    """For a kernel that draws tickets: launches without tickets that give the same bits. Empty if
    the kernel's own launches are used."""

    @property
    def text(self) -> str:
        """The contents of the kernel's namespace, with holes for names."""
        sections = (*self.definitions, *(function.lines for function in self.functions))
        return "\n\n".join("\n".join(lines) for lines in sections if lines)

    @property
    def printed(self) -> DeviceFunctions:
        """The same with functions that are text, for files."""
        return replace(self, functions=tuple(Text(tuple(f.lines)) for f in self.functions))

    @property
    def form(self) -> Hashable:
        """What the functions compute, by any names."""
        forms = tuple(function.form for function in self.functions)
        return self.headers, forms if None not in forms else canonical_text(self.text)


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
