"""Build the tasks of a loop's body, whose values are stored in the loop's operands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from graphc.ir import Node, Value
from graphc.kernels.program.kernel import Kernel
from graphc.ops.loops.scan import Scan
from graphc.runtime.plan.plan import STILL, Move
from graphc.runtime.planner.assembly import Assembly, PlanBody
from graphc.runtime.planner.loop_body import (
    CarrySlot,
    LoopBody,
    paired_slot,
    slot_in_place,
    stacked_slot,
)
from graphc.runtime.planner.schedule import Arrangement
from graphc.runtime.planner.tasks import NEW, OLD, BufferAccess, PlannedBuffer, Tasks, aligned

ArrangeTasks = Callable[[Tasks], Arrangement]
"""Orders and packs the tasks of a body."""


def plan_body(
    kernels: Mapping[str, Kernel],
    arrange: ArrangeTasks,
    alignment: int,
    op: Scan,
    needed: Collection[int],
    overwritable: Collection[int],
    movable: Collection[int],
) -> LoopBody:
    """The planned body of `op`. Raises PlanError for a node without a kernel.

    Stacks begin on multiples of `alignment` bytes. `needed` are the numbers of the stacks that the
    loop must write, `overwritable` those of the scanned values that a stack may replace in memory,
    and `movable` those of the stacks that may do so.
    """
    within = partial(plan_body, kernels, arrange, alignment)
    made = _BodyAssembly(op, kernels, within, alignment, needed, overwritable, movable)
    tasks = made.in_order()
    places = made.slots, made.stacks, made.overlays
    return LoopBody(op, tasks, arrange(tasks), *places, made.guard)


class _BodyAssembly(Assembly):
    """Collects the tasks of a body; see `plan_body`."""

    def __init__(
        self,
        op: Scan,
        kernels: Mapping[str, Kernel],
        plan_body: PlanBody,
        alignment: int,
        needed: Collection[int],
        overwritable: Collection[int],
        movable: Collection[int],
    ) -> None:
        super().__init__(op.body, kernels, plan_body)
        self.op, self.alignment = op, alignment
        self.needed, self.overwritable, self.movable = needed, overwritable, movable
        self.slots: dict[int, CarrySlot] = {}
        self.stacks: dict[int, Value] = {}
        self.overlays: dict[int, int] = {}
        self.copies: list[tuple[Value, BufferAccess]] = []
        for i, v in enumerate(op.constants):
            self.place(v, f"constant {i}", v.type.nbytes)
        for j, v in enumerate(op.elements):
            self.place(v, f"scanned {j}", v.type.nbytes, *self.entries(v))
        for i in range(op.carries):
            self.place_carry(i)
        for k in needed:
            self.place_stack(k)
        self.claim_initial_values()
        self.guard: BufferAccess | None = None
        if op.guard is not None:
            self.guarded = self.droppable(op.guard)
        self.launch_all()
        if op.guard is not None and any(task.guarded for task in self.tasks):
            self.guard = self.home[self.roots[op.guard]]
        for root, target in self.copies:
            self.copy(self.home[root], replace(target, value=root.name))

    def droppable(self, guard: Value) -> set[int]:
        """The nodes whose results nothing reads, where the guard is false, but each other and
        kernels that drop them; by identity."""
        found: set[int] = set()
        needed = set(self.results)
        for node in reversed(self.nodes):
            if needed.isdisjoint(self.roots[v] for v in node.outputs):
                found.add(id(node))
                continue
            read = [self.roots[v] for v in node.inputs]
            choices = () if isinstance(node.op, Scan) else self.kernel(node).choices
            dropped = {n for condition, n in choices if read[condition] == self.roots[guard]}
            needed.update(v for n, v in enumerate(read) if n not in dropped)
        return found

    def keeps(
        self, node: Node, reads: Sequence[BufferAccess], writes: Sequence[BufferAccess]
    ) -> bool:
        guard = self.op.guard
        if guard is None:
            return False
        old = {self.roots[v]: self.roots[w] for v, w in zip(
            self.op.old_carries, self.op.new_carries, strict=True
        )}  # fmt: skip
        inputs = [self.roots[v] for v in node.inputs]
        kept = {
            output
            for condition, place, output in self.kernel(node).keeps
            if inputs[condition] == self.roots[guard]
            and old.get(inputs[place]) == node.outputs[output]
            and reads[place].byte_range == writes[output].byte_range
        }
        return len(kept) == len(writes)

    def entries(self, element: Value) -> tuple[int, Move]:
        """Start and movement of a stack's elements."""
        size, count = element.type.nbytes, self.op.length
        return (
            (size * (count - 1), Move(-size, count)) if self.op.reverse else (0, Move(size, count))
        )

    def place(
        self, value: Value, operand: str, nbytes: int, start: int = 0, move: Move = STILL
    ) -> None:
        """Store `value` in an operand."""
        buffer = self.add_buffer(PlannedBuffer(operand, nbytes, start, move))
        self.home[value] = BufferAccess(buffer, value.name, turn=OLD)

    def workspace(self, kernel: Kernel, name: str) -> BufferAccess:
        if not kernel.double_buffered:
            return super().workspace(kernel, name)
        size, step = kernel.workspace, aligned(kernel.workspace)
        both = self.add_buffer(PlannedBuffer("work", step + size, None, Move(step, 2)))
        return BufferAccess(both, name, (0, size))

    def place_carry(self, i: int) -> None:
        """Choose where the old and new values of carry `i` are stored."""
        op = self.op
        old, new = op.old_carries[i], self.roots[op.new_carries[i]]
        if new == old:
            return self.place(old, f"constant carry {i}", old.type.nbytes)
        fresh = new in self.producer and new not in self.home
        stacked = [self.roots[op.stacks[k]] for k in self.needed]
        if fresh and (new in stacked or old in stacked):
            # Of two stacks that are an entry apart only one may begin where it must.
            both = new not in stacked or old.type.nbytes % self.alignment == 0
            stacks = new in stacked, old in stacked and both
            slot = stacked_slot(old, new, op.length, op.reverse, *stacks)
        elif self.may_overwrite(old, new):
            self.overwriting.decide(old, new)
            slot = slot_in_place(old, new)
        else:
            slot = paired_slot(old, new, op.length)
        self.slots[i] = slot
        old_place, new_place = slot.moves(op.length, op.reverse)
        self.place(old, f"carry {i}", old.type.nbytes, *old_place)
        buffer = self.home[old].buffer
        if slot.needs_buffer:
            buffer = self.add_buffer(PlannedBuffer(f"carry {i}", old.type.nbytes, *new_place))
        target = BufferAccess(buffer, new.name)
        if fresh:
            self.home[new] = target
        else:
            self.copies.append((new, target))

    def place_stack(self, k: int) -> None:
        """Choose where stack `k` is stored, unless a carry holds it."""
        element = self.roots[self.op.stacks[k]]
        self.stacks[k] = element
        if any(slot.has_stack_of(element) for slot in self.slots.values()):
            return
        start, move = self.entries(element)
        target = BufferAccess(
            self.add_buffer(PlannedBuffer(f"stack {k}", element.type.nbytes, start, move)),
            element.name,
        )
        if element not in self.producer or element in self.home:
            self.copies.append((element, target))
            return
        self.home[element] = self.overlaid(k, element) or target

    def overlaid(self, k: int, element: Value) -> BufferAccess | None:
        """The scanned value that stack `k` can replace in memory, which it then does; None if there
        is none."""
        if k not in self.movable:
            return None
        for j in sorted(set(self.overwritable) - set(self.overlays.values())):
            x = self.op.elements[j]
            if x.type.nbytes == element.type.nbytes and self.may_overwrite(x, element):
                self.overwriting.decide(x, element)
                self.overlays[k] = j
                return replace(self.home[x], value=element.name, turn=NEW)
        return None
