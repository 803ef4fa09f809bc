"""Build the tasks of a graph: where each value is stored, and which launches, copies and loops
there are.

This is common to whole graphs (`graph_tasks.py`) and to bodies of loops (`body.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from graphc.base.bits import bits
from graphc.base.errors import PlanError
from graphc.ir import Graph, Node, Value
from graphc.kernels.program.kernel import Kernel
from graphc.ops.loops.scan import BoundScan, Scan
from graphc.runtime.planner.loop_body import (
    CarrySlot,
    LoopBody,
    LoopStage,
    LoopTask,
    body_roots,
    is_alias,
)
from graphc.runtime.planner.overwriting import Overwriting
from graphc.runtime.planner.tasks import (
    NEW,
    BufferAccess,
    PlannedBuffer,
    Task,
    Tasks,
    aligned,
    executable_order,
)

PlanBody = Callable[[Scan, Collection[int], Collection[int], Collection[int]], LoopBody]
"""Plans the body of a loop; see `body.plan_body`."""


class Assembly:
    """Collects the tasks of `graph`; `plan_body` plans the bodies of its loops."""

    def __init__(self, graph: Graph, kernels: Mapping[str, Kernel], plan_body: PlanBody) -> None:
        self.graph, self.kernels, self.plan_body = graph, kernels, plan_body
        self.roots = body_roots(graph)
        self.nodes = [n for n in graph.nodes if not is_alias(n) and not _is_empty(n)]
        self.uses = Counter(self.roots[v] for n in self.nodes for v in n.inputs)
        self.uses.update(self.roots[v] for v in graph.results)
        self.results = {self.roots[v] for v in graph.results}
        self.producer = {v: i for i, n in enumerate(self.nodes) for v in n.outputs}
        self.overwriting = Overwriting(self.nodes, self.roots, self.producer)
        self.buffers: list[PlannedBuffer] = []
        self.tasks: list[Task] = []
        self.home: dict[Value, BufferAccess] = {}
        """The access to each root, decided once and read by every task."""
        self.shared: dict[int, int] = {}
        """Buffers that several tasks write parts of: the first of these, as a bit, which the others
        follow."""
        self.ends = {"state": 0, "io": 0}
        self.guarded: set[int] = set()
        """The nodes that a skipped iteration leaves out, by identity."""
        self.bodies: dict[Value, LoopBody] = {}
        """The bodies of loops by the first output of their nodes."""
        for node in self.nodes:
            if isinstance(node.op, Scan):
                self.make_body(Scan.bind(node))

    def buffer(self, segment: str, nbytes: int, least: int | None = None) -> int:
        """Add a buffer of a segment; returns its number."""
        start = self.ends.get(segment)
        if start is not None:
            self.ends[segment] = start + aligned(nbytes)
        return self.add_buffer(PlannedBuffer(segment, nbytes, start, least=least))

    def add_buffer(self, buffer: PlannedBuffer) -> int:
        """Add a buffer; returns its number."""
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def assign_buffer(self, root: Value, segment: str, turn: int = NEW) -> BufferAccess:
        """The access to `root`, with a new buffer in `segment` if it has none yet."""
        if root not in self.home:
            buffer = self.buffer(segment, root.type.nbytes)
            self.home[root] = BufferAccess(buffer, root.name, turn=turn)
        return self.home[root]

    def make_body(self, loop: BoundScan) -> None:
        """Plan a loop's body and allocate buffers for its carries that need them."""
        outputs = [y for _, y in loop.stacks]
        wanted = [k for k, y in enumerate(outputs) if self.roots[y] == y and self.uses[y]]
        xs = [self.roots[x] for _, x in loop.scanned]
        dying = [j for j, x in enumerate(xs) if self.uses[x] == 1 and self.gets_own_buffer(x)]
        free = [k for k in wanted if outputs[k] not in self.results]
        body = self.plan_body(loop.op, wanted, dying, free)
        self.bodies[loop.node.outputs[0]] = body
        for i, slot in body.slots.items():
            if not slot.needs_buffer:
                continue
            buffer, end = self.buffer("work", slot.nbytes), loop.carries[i].last
            self.home[end] = slot.last_access(buffer, end.name)
            for start, element in ((slot.new_stack, slot.new), (slot.old_stack, slot.old)):
                if start is not None:
                    y = outputs[_stack_of(loop.op, element, wanted)]
                    self.home[y] = BufferAccess(buffer, y.name, (start, y.type.nbytes))

    def gets_own_buffer(self, root: Value) -> bool:
        """Whether `root` is computed here and gets a buffer of its own, outside any carry's."""
        return root in self.producer and root not in self.home

    def claim_initial_values(self) -> None:
        """Let the producers of initial carries write them where their loop expects them, if nothing
        else reads them. Runs after all results have buffers."""
        for node in reversed(self.nodes):
            if not isinstance(node.op, Scan):
                continue
            carries = Scan.bind(node).carries
            for i, slot in self.bodies[node.outputs[0]].slots.items():
                last = self.assign_buffer(carries[i].last, "work")
                initial = self.roots[carries[i].initial]
                free = initial in self.producer and initial not in self.home
                if free and self.uses[initial] == 1 and self.buffers[last.buffer].start is None:
                    self.home[initial] = _first_access(slot, last, initial)

    def launch_all(self) -> None:
        """Add the tasks of all nodes."""
        for node in self.graph.nodes:
            if _is_empty(node):
                for value in node.outputs:
                    if self.roots[value] == value:
                        self.assign_buffer(value, "work")
        for node in self.nodes:
            if isinstance(node.op, Scan):
                self.loop(Scan.bind(node))
            else:
                self.launch(node)

    def kernel(self, node: Node) -> Kernel:
        """The kernel of a node. Raises PlanError if there is none."""
        name = node.outputs[0].name
        if name not in self.kernels:
            raise PlanError(f"plan {self.graph.name}: no kernel for {node.op.name} %{name}")
        return self.kernels[name]

    def inplace(self, root: Value) -> tuple[tuple[int, int], ...]:
        """The (input, output) pairs of the producer of `root` that may share memory."""
        node = self.nodes[self.producer[root]]
        if isinstance(node.op, Scan):
            return self.bodies[node.outputs[0]].inplace
        return self.kernel(node).inplace

    def may_overwrite(self, old: Value, new: Value) -> bool:
        """Whether the producer of `new`, which has no buffer yet, may write it over `old`."""
        if new not in self.producer or new in self.home:
            return False
        return self.overwriting.allows(old, new, self.inplace(new))

    def launch(self, node: Node) -> None:
        """Add the task of a kernel."""
        kernel = self.kernel(node)
        reads = tuple(self.home[self.roots[v]] for v in node.inputs)
        writes = [self.assign_buffer(v, "work") for v in node.outputs]
        if kernel.workspace:
            writes.append(self.workspace(kernel, f"{node.outputs[0].name}.workspace"))
        guarded = id(node) in self.guarded or self.keeps(node, reads, tuple(writes))
        self.tasks.append(Task(kernel, reads, tuple(writes), node.where, guarded=guarded))

    def keeps(
        self, node: Node, reads: Sequence[BufferAccess], writes: Sequence[BufferAccess]
    ) -> bool:
        """Whether a kernel leaves memory as it is where an iteration is skipped."""
        return False

    def workspace(self, kernel: Kernel, name: str) -> BufferAccess:
        """A buffer for a kernel's workspace."""
        return BufferAccess(self.buffer("work", kernel.workspace), name)

    def loop(self, loop: BoundScan) -> None:
        """Add the task of a loop, after copies of initial values that are not where the loop
        expects them."""
        node, body = loop.node, self.bodies[loop.node.outputs[0]]
        inputs = [self.home[self.roots[v]] for v in node.inputs]
        constants, begin, xs = loop.op.split_inputs(inputs)
        operands = {f"constant {i}": a for i, a in enumerate(constants)}
        operands.update((f"constant carry {i}", a) for i, a in enumerate(begin))
        carries = []
        for i, slot in body.slots.items():
            last, initial = self.home[loop.carries[i].last], begin[i]
            first = _first_access(slot, last, self.roots[loop.carries[i].initial])
            if initial.byte_range != first.byte_range:
                self.copy(initial, first, id(node) in self.guarded)
                initial = first
            carries.append((slot, initial, last))
            part = None if slot.needs_buffer else last.part
            operands[f"carry {i}"] = BufferAccess(last.buffer, f"{slot.old.name}.slots", part)
        operands.update((f"scanned {j}", x) for j, x in enumerate(xs))
        stacks = []
        for k, (_, y) in enumerate(loop.stacks):
            if k in body.overlays:
                x = xs[body.overlays[k]]
                self.home[y] = replace(x, value=y.name, turn=x.turn + 1)
            if self.roots[y] == y and self.uses[y]:
                stacks.append((body.stacks[k], self.assign_buffer(y, "work")))
                operands[f"stack {k}"] = self.home[y]
        used = body.used
        scanned = [
            (v, x) for j, (v, x) in enumerate(zip(loop.op.elements, xs, strict=True))
            if f"scanned {j}" in used
        ]  # fmt: skip
        name, memory = node.outputs[0].name, None
        if body.arrangement.packing.peak_bytes:
            sizes = body.arrangement.packing.peak_bytes, body.arrangement.bound
            memory = BufferAccess(self.buffer("work", *sizes), f"{name}.iteration")
        reads = [a for n, a in operands.items() if n.startswith("constant") and n in used]
        reads += [initial for _, initial, _ in carries] + [x for _, x in scanned]
        writes = [operands[f"carry {i}"] for i, slot in body.slots.items() if slot.needs_buffer]
        writes += [last for _, _, last in carries] + [y for _, y in stacks]
        needed = {n: a for n, a in operands.items() if n in used}
        whole = LoopStage(body, needed, tuple(carries), tuple(scanned), tuple(stacks))
        task = LoopTask(name, (whole,), body.tasks, body.arrangement, memory)
        self.tasks.append(
            Task(
                None,
                tuple(dict.fromkeys(reads)),
                (*writes, *([memory] if memory else [])),
                node.where,
                task,
                id(node) in self.guarded,
            )
        )

    def copy(self, source: BufferAccess, target: BufferAccess, guarded: bool = False) -> None:
        """Add a copy, unless it is empty."""
        if self.buffers[source.buffer].nbytes:
            self.tasks.append(Task(None, (source,), (target,), guarded=guarded))

    def in_order(self, **bindings: Sequence[tuple[Value, BufferAccess]]) -> Tasks:
        """The tasks in an executable order, with their dependencies and the graph's bindings."""
        predecessors = self.order_by_accesses()
        order = executable_order(predecessors)
        number = {old: new for new, old in enumerate(order)}
        return Tasks(
            tuple(self.tasks[i] for i in order),
            tuple(sum(1 << number[j] for j in bits(predecessors[i])) for i in order),
            tuple(self.buffers),
            *(tuple(bindings.get(kind, ())) for kind in ("inputs", "outputs", "state")),
        )

    def order_by_accesses(self) -> list[int]:
        """For each task, a bit set of the tasks that must precede it.

        Empty buffers order nothing; launches of one kernel that draws tickets are ordered.
        """
        writer: dict[BufferAccess, int] = {}
        readers: dict[int, list[tuple[int, int]]] = {}
        for i, task in enumerate(self.tasks):
            writer.update((access, i) for access in task.writes)
            for access in task.reads:
                readers.setdefault(access.buffer, []).append((access.turn, i))
        before = [0] * len(self.tasks)
        drawn: dict[str, int] = {}
        for i, task in enumerate(self.tasks):
            if task.kernel is not None and task.kernel.draws_tickets:
                before[i] |= drawn.get(task.name, 0)
                drawn[task.name] = 1 << i
            for access in task.reads:
                if access in writer and self.buffers[access.buffer].nbytes:
                    before[i] |= 1 << writer[access]
            for access in task.writes:
                if self.buffers[access.buffer].nbytes:
                    if access.buffer in self.shared:
                        before[i] |= self.shared[access.buffer] & ~(1 << i)
                        self.shared[access.buffer] = self.shared[access.buffer] or 1 << i
                    for turn, reader in readers.get(access.buffer, ()):
                        if turn < access.turn and reader != i:
                            before[i] |= 1 << reader
        return before


def _first_access(slot: CarrySlot, last: BufferAccess, initial: Value) -> BufferAccess:
    """Where a loop expects a carry's initial value, given where it leaves the last one."""
    first = slot.first_access(last.buffer, initial.name)
    return first if slot.needs_buffer else replace(first, part=last.part)


def _stack_of(op: Scan, element: Value, needed: Collection[int]) -> int:
    """The number of the needed stack of `element`, a root of the body."""
    roots = body_roots(op.body)
    return next(k for k in needed if roots[op.stacks[k]] == element)


def _is_empty(node: Node) -> bool:
    """Whether it is a loop without iterations, whose results are its initial carries."""
    return isinstance(node.op, Scan) and not node.op.length
