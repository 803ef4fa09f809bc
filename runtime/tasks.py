"""From a graph to tasks: which launches and copies there are, which buffers they touch, and which
must come before which.

A buffer lies in one segment and holds one value after another: a work or io buffer one value, a
state buffer the old contents and then the new. An access names the buffer and the value, so the
order follows from the accesses alone: the writer of a value comes before its readers, and the
readers of old contents come before the writer of the new.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from graphc.errors import PlanError
from graphc.ir import Graph, Node, Value, Where
from graphc.kernels.kernel import Kernel

ALIGNMENT = 64
"""Bytes: every buffer starts on a multiple of it, in every segment."""


@dataclass(frozen=True)
class Access:
    """A task's use of `buffer` while it holds the value named `value`."""

    buffer: int
    value: str


@dataclass(frozen=True)
class Task:
    """A launch, or a copy of one buffer to another if `kernel` is None. `writes` ends with the
    kernel's workspace if it has one."""

    kernel: Kernel | None
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    where: Where = field(default_factory=Where)

    @property
    def name(self) -> str:
        return "copy" if self.kernel is None else self.kernel.name


@dataclass(frozen=True)
class Buffer:
    """`nbytes` of a segment; `start` is None in the work segment until memory is planned."""

    segment: str
    nbytes: int
    start: int | None = None

    @property
    def room(self) -> int:
        """Bytes with alignment."""
        return aligned(self.nbytes)


@dataclass(frozen=True)
class Tasks:
    """What is to be planned.

    `tasks` stand in an executable order; `predecessors[i]` has bit j set if task j must end before
    task i begins. `inputs`, `outputs` and `state` say in which buffer a graph's value lies, and
    under which name.
    """

    tasks: tuple[Task, ...]
    predecessors: tuple[int, ...]
    buffers: tuple[Buffer, ...]
    inputs: tuple[tuple[Value, Access], ...]
    outputs: tuple[tuple[Value, Access], ...]
    state: tuple[tuple[Value, Access], ...]

    def work_uses(self) -> dict[int, int]:
        """For each work buffer that is not empty, the tasks that touch it, as bits."""
        uses: dict[int, int] = {}
        for i, task in enumerate(self.tasks):
            for access in (*task.reads, *task.writes):
                buffer = self.buffers[access.buffer]
                if buffer.segment == "work" and buffer.nbytes:
                    uses[access.buffer] = uses.get(access.buffer, 0) | 1 << i
        return uses


def make_tasks(graph: Graph, kernels: Mapping[str, Kernel]) -> Tasks:
    """The tasks of `graph`; `kernels` maps the name of each node's first output to its kernel.

    Raises PlanError for a node without a kernel.
    """
    return _Assembly(graph, kernels).tasks_in_order()


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to a multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def bits(mask: int) -> Iterator[int]:
    """The places of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class _Assembly:
    """The tasks as they come together."""

    def __init__(self, graph: Graph, kernels: Mapping[str, Kernel]) -> None:
        self.graph, self.kernels = graph, kernels
        self.roots = _roots(graph)
        self.updates = {s: self.roots[new] for s, new in graph.updates if self.roots[new] != s}
        self.buffers: list[Buffer] = []
        self.tasks: list[Task] = []
        self.home: dict[Value, Access] = {}
        """Where each root lies: decided once, read by every task."""
        self.ends = {"state": 0, "io": 0}

        self.state = [(v, self.settle(v, "state")) for v in graph.state]
        self.inputs = [(v, self.settle(v, "io")) for v in graph.inputs]
        nodes = [n for n in graph.nodes if not is_alias(n)]
        in_place = self.choose_in_place(nodes)
        self.outputs = self.place_outputs()
        for node in nodes:
            self.launch(node)
        for value, access in self.outputs:
            source = self.home[self.roots[value]]
            if source != access:
                self.copy(source, access)
        for state in self.updates:
            if state not in in_place:
                self.copy_update(state)

    def buffer(self, segment: str, nbytes: int) -> int:
        start = self.ends.get(segment)
        if start is not None:
            self.ends[segment] = start + aligned(nbytes)
        self.buffers.append(Buffer(segment, nbytes, start))
        return len(self.buffers) - 1

    def settle(self, root: Value, segment: str) -> Access:
        """Give `root` a buffer of its own, or what it has already."""
        if root not in self.home:
            self.home[root] = Access(self.buffer(segment, root.type.nbytes), root.name)
        return self.home[root]

    def choose_in_place(self, nodes: list[Node]) -> set[Value]:
        """The state whose new contents their producer writes straight into the state's buffer.

        Safe if the producer reads the old contents only element by element as `Kernel.inplace`
        allows, or not at all, and every other reader of them can come before the producer.
        """
        readers: dict[Value, set[int]] = {}
        producer: dict[Value, int] = {}
        successors: list[set[int]] = [set() for _ in nodes]
        for i, node in enumerate(nodes):
            producer.update((v, i) for v in node.outputs)
            for root in {self.roots[v] for v in node.inputs}:
                readers.setdefault(root, set()).add(i)
                if root in producer:
                    successors[producer[root]].add(i)
        chosen: set[Value] = set()
        for state, new in self.updates.items():
            writer = producer.get(new)
            if writer is None or new in self.home:
                continue
            others = readers.get(state, set()) - {writer}
            if not self.may_overwrite(nodes[writer], state, new):
                continue
            if others & _reachable(writer, successors):
                continue
            for reader in others:
                successors[reader].add(writer)
            self.home[new] = Access(self.home[state].buffer, new.name)
            chosen.add(state)
        return chosen

    def may_overwrite(self, node: Node, state: Value, new: Value) -> bool:
        reads = {i for i, v in enumerate(node.inputs) if self.roots[v] == state}
        pairs = self.kernel(node).inplace
        return all((i, node.outputs.index(new)) in pairs for i in reads) and len(reads) < 2

    def place_outputs(self) -> list[tuple[Value, Access]]:
        """An output's own io buffer is the home of its root, if that has none yet."""
        outputs = []
        for value in self.graph.outputs:
            root = self.roots[value]
            access = Access(self.buffer("io", root.type.nbytes), root.name)
            self.home.setdefault(root, access)
            outputs.append((value, access))
        return outputs

    def kernel(self, node: Node) -> Kernel:
        name = node.outputs[0].name
        if name not in self.kernels:
            raise PlanError(f"plan {self.graph.name}: no kernel for {node.op.name} %{name}")
        return self.kernels[name]

    def launch(self, node: Node) -> None:
        kernel = self.kernel(node)
        reads = tuple(self.home[self.roots[v]] for v in node.inputs)
        writes = [self.settle(v, "work") for v in node.outputs]
        if kernel.workspace:
            scratch = self.buffer("work", kernel.workspace)
            writes.append(Access(scratch, f"{node.outputs[0].name}.workspace"))
        self.tasks.append(Task(kernel, reads, tuple(writes), node.where))

    def copy(self, source: Access, target: Access) -> None:
        if self.buffers[source.buffer].nbytes:
            self.tasks.append(Task(None, (source,), (target,)))

    def copy_update(self, state: Value) -> None:
        """Copy the new contents into the state's buffer; through the work arena if they are the
        old contents of other state that is itself updated."""
        source = self.home[self.updates[state]]
        if self.updates[state] in self.updates:
            snapshot = Access(self.buffer("work", state.type.nbytes), source.value)
            self.copy(source, snapshot)
            source = snapshot
        self.copy(source, Access(self.home[state].buffer, source.value))

    def tasks_in_order(self) -> Tasks:
        predecessors = self.order_by_accesses()
        order = _executable_order(predecessors)
        number = {old: new for new, old in enumerate(order)}
        return Tasks(
            tuple(self.tasks[i] for i in order),
            tuple(sum(1 << number[j] for j in bits(predecessors[i])) for i in order),
            tuple(self.buffers),
            tuple(self.inputs),
            tuple(self.outputs),
            tuple(self.state),
        )

    def order_by_accesses(self) -> list[int]:
        """For each task the tasks before it, as bits. An empty buffer orders nothing."""
        writer: dict[Access, int] = {}
        readers: dict[int, list[tuple[str, int]]] = {}
        for i, task in enumerate(self.tasks):
            writer.update((access, i) for access in task.writes)
            for access in task.reads:
                readers.setdefault(access.buffer, []).append((access.value, i))
        before = [0] * len(self.tasks)
        for i, task in enumerate(self.tasks):
            for access in task.reads:
                if access in writer and self.buffers[access.buffer].nbytes:
                    before[i] |= 1 << writer[access]
            for access in task.writes:
                if self.buffers[access.buffer].nbytes:
                    for value, reader in readers.get(access.buffer, ()):
                        if value != access.value and reader != i:
                            before[i] |= 1 << reader
        return before


def is_alias(node: Node) -> bool:
    """Whether the node's output is its input's bytes."""
    return node.op.name == "reshape"


def _roots(graph: Graph) -> dict[Value, Value]:
    """For each value the one whose bytes it is."""
    roots = {v: v for v in (*graph.inputs, *graph.state)}
    for node in graph.nodes:
        for value in node.outputs:
            roots[value] = roots[node.inputs[0]] if is_alias(node) else value
    return roots


def _reachable(start: int, successors: list[set[int]]) -> set[int]:
    seen: set[int] = set()
    stack = [start]
    while stack:
        for j in successors[stack.pop()] - seen:
            seen.add(j)
            stack.append(j)
    return seen


def _executable_order(predecessors: list[int]) -> list[int]:
    """The first executable order, by task number."""
    successors: list[list[int]] = [[] for _ in predecessors]
    missing = [mask.bit_count() for mask in predecessors]
    for i, mask in enumerate(predecessors):
        for j in bits(mask):
            successors[j].append(i)
    ready = [i for i, n in enumerate(missing) if not n]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for j in successors[i]:
            missing[j] -= 1
            if not missing[j]:
                heapq.heappush(ready, j)
    assert len(order) == len(predecessors), "the tasks wait for each other in a circle"
    return order
