"""A loop's body as tasks, and what the loop looks like from outside.

The body is planned once, whatever the count, as a program of its own whose inputs and outputs lie
in operands: memory that the plan around it gives the loop, in which a buffer of the body may move
with the iterations. What lives within an iteration is packed into one buffer of the outer plan.

Where the values lie that iterations hand on:
- A carry that is also stacked, before or after the iteration, lies in the stack alone, which has
  one entry more: the initial value at the end where the loop begins. The stack of old values and
  that of new ones are the same bytes, an entry apart, and so is the last carry. Nothing is copied.
- Else the new value overwrites the old one where the kernel allows that and all other readers of
  the old one can come before.
- Else two buffers take turns.
A new carry that is not made by a kernel of the body (two carries that are swapped, an element of a
scanned value) is copied, and so is a value that is stacked twice.

A stack may lie over a scanned value that nothing else reads, under the same condition as a carry
in place: the activated gates of an LSTM over the sums that they are made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphc.ir import Graph, Node, Value
from graphc.ops.loops.scan import Scan
from graphc.runtime.plan.plan import Move
from graphc.runtime.planner.concurrency import Demand
from graphc.runtime.planner.schedule import Arrangement
from graphc.runtime.planner.tasks import FIRST, NEW, BufferAccess, Tasks, aligned


@dataclass(frozen=True)
class CarrySlot:
    """Where a carry lies: `nbytes` of which the initial value, the last one and the stacks of new
    and of old values begin at these offsets; None for a stack that is not there.

    `period` is 1 for a carry in place, 2 for two buffers, else that of a stack. `old` and `new` are
    the names of its values in the body.
    """

    old: Value
    new: Value
    nbytes: int
    period: int
    initial: int
    last: int
    new_stack: int | None = None
    old_stack: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the carry itself."""
        return self.old.type.nbytes

    @property
    def needs_buffer(self) -> bool:
        """Whether it needs memory of its own: in place it may lie in any buffer of its size."""
        return self.period != 1 or self.stacked

    @property
    def stacked(self) -> bool:
        return self.new_stack is not None or self.old_stack is not None

    def has_stack_of(self, element: Value) -> bool:
        """Whether the stack of this value of the body lies in the slot."""
        new = self.new_stack is not None and element == self.new
        return new or (self.old_stack is not None and element == self.old)

    def first_access(self, buffer: int, name: str) -> BufferAccess:
        """The initial value, called `name`, in this buffer."""
        part = (self.initial, self.size) if self.needs_buffer else None
        return BufferAccess(buffer, name, part, FIRST)

    def last_access(self, buffer: int, name: str) -> BufferAccess:
        part = (self.last, self.size) if self.needs_buffer else None
        return BufferAccess(buffer, name, part, NEW)

    def moves(self, count: int, reverse: bool) -> tuple[tuple[int, Move], tuple[int, Move]]:
        """Start and movement of the old value, and of the new one."""
        if self.stacked:
            step = -self.size if reverse else self.size
            move = Move(step, count)
            return (self.initial, move), (self.initial + step, move)
        if self.period == 2:
            step = aligned(self.size)
            return (0, Move(step, 2)), (step, Move(-step, 2))
        return (0, Move(0, 1)), (0, Move(0, 1))


def stacked_slot(
    old: Value, new: Value, count: int, reverse: bool, has_new: bool, has_old: bool
) -> CarrySlot:
    """The slot of a carry that lies in its stack. The stack of new values, if there is one, else
    that of old ones begins on a multiple of the alignment."""
    size = old.type.nbytes
    lead = 0 if reverse else aligned(size) - size
    if not has_new:
        lead = aligned(size) - size if reverse else 0
    lower, upper = lead, lead + size
    whole = lead + (count + 1) * size
    new_stack, old_stack = (lower, upper) if reverse else (upper, lower)
    ends = (lead + count * size, lead) if reverse else (lead, lead + count * size)
    return CarrySlot(
        old,
        new,
        whole,
        count,
        *ends,
        new_stack if has_new else None,
        old_stack if has_old else None,
    )


def paired_slot(old: Value, new: Value, count: int) -> CarrySlot:
    """The slot of a carry whose old and new values take turns in two buffers."""
    size = old.type.nbytes
    step = aligned(size)
    return CarrySlot(old, new, step + size, 2, 0, count % 2 * step)


def slot_in_place(old: Value, new: Value) -> CarrySlot:
    """The slot of a carry whose new value overwrites the old."""
    return CarrySlot(old, new, old.type.nbytes, 1, 0, 0)


@dataclass(frozen=True)
class LoopBody:
    """The planned body of a loop.

    `slots` holds the slot of each carry that changes, `stacks` the body's value that is written
    into each stack with memory of its own, `overlays` the scanned value that such a stack lies
    over, all by number. `used` names the operands that the body touches.
    """

    op: Scan
    tasks: Tasks
    arrangement: Arrangement
    slots: Mapping[int, CarrySlot]
    stacks: Mapping[int, Value]
    overlays: Mapping[int, int]

    @property
    def used(self) -> set[str]:
        accesses = (a for t in self.tasks.tasks for a in (*t.reads, *t.writes))
        return {self.tasks.buffers[a.buffer].segment for a in accesses} - {"work"}

    @property
    def inplace(self) -> tuple[tuple[int, int], ...]:
        """(input, output) pairs of the loop that may be the same memory, as of a kernel."""
        _, numbers, _ = self.op.split_inputs(range(len(self.op.body.inputs)))
        return tuple((numbers[i], i) for i, slot in self.slots.items() if not slot.needs_buffer)


@dataclass(frozen=True)
class LoopStage:
    """A loop's body in a plan around it: the memory of each of the body's operands, and which
    accesses of it the loop begins with and leaves."""

    body: LoopBody
    operands: Mapping[str, BufferAccess]
    carries: tuple[tuple[CarrySlot, BufferAccess, BufferAccess], ...]
    """(slot, initial value, last value)."""
    scanned: tuple[tuple[Value, BufferAccess], ...]
    stacks: tuple[tuple[Value, BufferAccess], ...]


@dataclass(frozen=True)
class LoopTask:
    """A loop among the tasks of a plan: one body, or several as the stages of a wavefront, and
    their tasks together. `memory` is that of an iteration; `links` pairs (element, value) of names
    say what each stage but the first scans of the one before."""

    name: str
    stages: tuple[LoopStage, ...]
    tasks: Tasks
    arrangement: Arrangement
    memory: BufferAccess | None
    links: tuple[tuple[Value, Value], ...] = ()

    @property
    def length(self) -> int:
        """The iterations of a stage."""
        return self.stages[0].body.op.length

    @property
    def count(self) -> int:
        """The iterations of the whole."""
        return self.length + len(self.stages) - 1

    @property
    def reverse(self) -> bool:
        return self.stages[0].body.op.reverse

    @property
    def demand(self) -> Demand:
        """Of all iterations."""
        one = self.arrangement.demand
        return replace(one, microseconds=self.count * one.microseconds)


def operand_name(stage: int, name: str) -> str:
    """The name of an operand of one stage among those of all."""
    return f"{name} of stage {stage}" if stage else name


def duplicate_outputs(node: Node, roots: Mapping[Value, Value]) -> dict[Value, Value]:
    """Outputs of a scan that are another value: an input, or an output of the same contents that
    comes before. `roots` are those of the graph around it, for what comes before the node."""
    loop = Scan.bind(node)
    inner = body_roots(loop.op.body)
    found: dict[Value, Value] = {}
    for carry in loop.carries:
        if inner[carry.new] == carry.old or not loop.op.length:
            found[carry.last] = roots[carry.initial]
    first = {v: roots[x] for v, x in loop.scanned}
    for element, output in loop.stacks:
        twin = first.setdefault(inner[element], output)
        if twin != output:
            found[output] = twin
    return found


def body_roots(graph: Graph) -> dict[Value, Value]:
    """For each value the one whose bytes it is."""
    roots = {v: v for v in (*graph.inputs, *graph.state)}
    for node in graph.nodes:
        same = duplicate_outputs(node, roots) if isinstance(node.op, Scan) else {}
        for value in node.outputs:
            alias = roots[node.inputs[0]] if is_alias(node) else same.get(value, value)
            roots[value] = alias
    return roots


def is_alias(node: Node) -> bool:
    """Whether the node's output is its input's bytes."""
    return node.op.name == "reshape"
