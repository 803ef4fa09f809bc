"""A loop's body as tasks, and the loop's interface to the plan around it.

The body is planned once, whatever the count, like a program whose inputs and outputs are operands:
memory of the surrounding plan, in which a buffer of the body may move with the iterations. Values
that live within an iteration are packed into one buffer of the outer plan.

Storage of the values that iterations hand on:

- A carry that is also stacked, before or after the iteration, is stored only in the stack, which
  has one more entry: the initial value, at the end where the loop begins. The stacks of old and new
  values are the same bytes, one entry apart, and the last carry is an entry. Nothing is copied.
- Otherwise the new value overwrites the old one, if the kernel allows that and all other readers of
  the old one can come before.
- Otherwise two buffers alternate.

A new carry that no kernel of the body computes (two swapped carries, an element of a scanned value)
is copied, and so is a value that is stacked twice.

A stack may replace a scanned value that nothing else reads, under the same condition as a carry in
place: an LSTM's activated gates replace the sums that they are computed from.
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
    """The storage of a carry."""

    old: Value
    """The carry's old value in the body."""
    new: Value
    """The carry's new value in the body."""
    nbytes: int
    """Bytes of the slot."""
    period: int
    """1 for a carry in place, 2 for two alternating buffers, else the loop's count: a stack."""
    initial: int
    """Byte offset of the initial value."""
    last: int
    """Byte offset of the last value."""
    new_stack: int | None = None
    """Byte offset of the stack of new values; None if there is none."""
    old_stack: int | None = None
    """Byte offset of the stack of old values; None if there is none."""

    @property
    def size(self) -> int:
        """Bytes of the carry itself."""
        return self.old.type.nbytes

    @property
    def needs_buffer(self) -> bool:
        """Whether it needs a buffer of its own; a carry in place may use any of its size."""
        return self.period != 1 or self.stacked

    @property
    def stacked(self) -> bool:
        """Whether the carry is stored in its stack."""
        return self.new_stack is not None or self.old_stack is not None

    def has_stack_of(self, element: Value) -> bool:
        """Whether the slot contains the stack of this value of the body."""
        new = self.new_stack is not None and element == self.new
        return new or (self.old_stack is not None and element == self.old)

    def first_access(self, buffer: int, name: str) -> BufferAccess:
        """The access to the initial value, called `name`, in this buffer."""
        part = (self.initial, self.size) if self.needs_buffer else None
        return BufferAccess(buffer, name, part, FIRST)

    def last_access(self, buffer: int, name: str) -> BufferAccess:
        """The access to the last value, called `name`, in this buffer."""
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
    """The slot of a carry that is stored in its stack. The stack of new values, else that of old
    ones, begins on a multiple of the alignment."""
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
    """The slot of a carry whose old and new values alternate between two buffers."""
    size = old.type.nbytes
    step = aligned(size)
    return CarrySlot(old, new, step + size, 2, 0, count % 2 * step)


def slot_in_place(old: Value, new: Value) -> CarrySlot:
    """The slot of a carry whose new value overwrites the old."""
    return CarrySlot(old, new, old.type.nbytes, 1, 0, 0)


@dataclass(frozen=True)
class LoopBody:
    """The planned body of a loop."""

    op: Scan
    """The scan."""
    tasks: Tasks
    """The tasks of an iteration."""
    arrangement: Arrangement
    """Their order, streams and memory."""
    slots: Mapping[int, CarrySlot]
    """The slot of each carry that changes, by number."""
    stacks: Mapping[int, Value]
    """The body's value that is written to each stack with memory of its own, by number."""
    overlays: Mapping[int, int]
    """The scanned value that such a stack replaces in memory, by number."""
    guard: BufferAccess | None = None
    """The guard, if iterations leave tasks out where it is false."""

    @property
    def used(self) -> set[str]:
        """Names of the operands that the body touches."""
        accesses = (a for t in self.tasks.tasks for a in (*t.reads, *t.writes))
        return {self.tasks.buffers[a.buffer].segment for a in accesses} - {"work"}

    @property
    def inplace(self) -> tuple[tuple[int, int], ...]:
        """(input, output) pairs of the loop that may share memory, as for a kernel."""
        _, numbers, _ = self.op.split_inputs(range(len(self.op.body.inputs)))
        return tuple((numbers[i], i) for i, slot in self.slots.items() if not slot.needs_buffer)


@dataclass(frozen=True)
class LoopStage:
    """A loop's body in the plan around it."""

    body: LoopBody
    """The planned body."""
    operands: Mapping[str, BufferAccess]
    """The memory of each of the body's operands."""
    carries: tuple[tuple[CarrySlot, BufferAccess, BufferAccess], ...]
    """(slot, initial value, last value) of each carry."""
    scanned: tuple[tuple[Value, BufferAccess], ...]
    """The body's elements, with the scanned values."""
    stacks: tuple[tuple[Value, BufferAccess], ...]
    """The body's stacked values, with the stacks."""


@dataclass(frozen=True)
class LoopTask:
    """A loop among the tasks of a plan: one body, or several as the stages of a wavefront."""

    name: str
    """The name of the loop's first output."""
    stages: tuple[LoopStage, ...]
    """The stages, the first loop's first."""
    tasks: Tasks
    """The tasks of all stages."""
    arrangement: Arrangement
    """The order, streams and memory of the tasks."""
    memory: BufferAccess | None
    """Memory for values within an iteration; None if there are none."""
    links: tuple[tuple[Value, Value], ...] = ()
    """For each stage but the first, its scanned element and the value of the stage before."""

    @property
    def length(self) -> int:
        """Iterations of a stage."""
        return self.stages[0].body.op.length

    @property
    def count(self) -> int:
        """Iterations of the whole loop."""
        return self.length + len(self.stages) - 1

    @property
    def reverse(self) -> bool:
        """Whether it runs from the last element to the first."""
        return self.stages[0].body.op.reverse

    @property
    def demand(self) -> Demand:
        """The demand of all iterations."""
        one = self.arrangement.demand
        return replace(one, microseconds=self.count * one.microseconds)


def operand_name(stage: int, name: str) -> str:
    """The name of an operand of one stage among those of all."""
    return f"{name} of stage {stage}" if stage else name


def duplicate_outputs(node: Node, roots: Mapping[Value, Value]) -> dict[Value, Value]:
    """Outputs of a scan that equal another value: an input, or an earlier output of the same
    contents.

    `roots` are those of the surrounding graph, for values before the node.
    """
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
    """For each value, the value whose bytes it is."""
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
