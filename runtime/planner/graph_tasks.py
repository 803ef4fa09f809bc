"""Build the tasks of a whole graph: inputs, outputs, state, and in-place updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

from graphc.base.target import kind_of
from graphc.ir import Graph, Node, Value
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.planner.assembly import Assembly, PlanBody
from graphc.runtime.planner.body import plan_body
from graphc.runtime.planner.concurrency import DeviceModel
from graphc.runtime.planner.schedule import arrange
from graphc.runtime.planner.tasks import NEW, OLD, SUMMED, BufferAccess, Task, Tasks, aligned


def make_tasks(
    graph: Graph,
    kernels: Mapping[str, Kernel],
    streams: int = 1,
    machine: DeviceModel = DeviceModel("cpu"),  # noqa: B008
) -> Tasks:
    """The tasks of `graph`. Raises PlanError for a node without a kernel.

    `kernels` maps the name of each node's first output to its kernel, those of loop bodies
    included. Bodies are planned for `streams` and `machine`.
    """
    arrange_body = partial(arrange, streams=streams, machine=machine, in_loop=True)
    plan = partial(plan_body, kernels, arrange_body, kind_of(machine.device).copied_bytes)
    return _GraphAssembly(graph, kernels, plan).tasks_in_order()


class _GraphAssembly(Assembly):
    """Collects the tasks of a whole graph."""

    def __init__(self, graph: Graph, kernels: Mapping[str, Kernel], plan_body: PlanBody) -> None:
        super().__init__(graph, kernels, plan_body)
        self.updates = {s: self.roots[new] for s, new in graph.updates if self.roots[new] != s}
        self.state = [(v, self.assign_buffer(v, "state", OLD)) for v in graph.state]
        self.inputs = [(v, self.assign_buffer(v, "io", OLD)) for v in graph.inputs]
        self.staged: dict[Value, tuple[BufferAccess, ...]] = {}
        """Where the operands of a message lie side by side, by its first output."""
        for node in self.nodes:
            if node.op.communicates and not node.op.in_turn:
                self.place_message(node)
        in_place = self.choose_in_place()
        self.outputs = self.place_outputs()
        self.claim_initial_values()
        self.launch_all()
        for value, access in self.outputs:
            source = self.home[self.roots[value]]
            if source != access:
                self.copy(source, access)
        for state in self.updates:
            if state not in in_place:
                self.copy_update(state)

    def tasks_in_order(self) -> Tasks:
        return self.in_order(inputs=self.inputs, outputs=self.outputs, state=self.state)

    def place_message(self, node: Node) -> None:
        """Let the terms of a message lie side by side, and its sums.

        Each is written where it belongs by its kernel, if nothing but the message reads it.
        """
        message = self.kernel(node).message
        assert message is not None, "what communicates has a message"
        terms = self._side_by_side(node.inputs, NEW)
        if message.in_place:
            sums = [
                replace(term, value=v.name, turn=SUMMED)
                for v, term in zip(node.outputs, terms, strict=True)
            ]
        else:
            sums = self._side_by_side(node.outputs, NEW)
        self.staged[node.outputs[0]] = tuple(terms)
        self.home.update(zip(node.outputs, sums, strict=True))
        for value, term in zip(node.inputs, terms, strict=True):
            root = self.roots[value]
            if self.gets_own_buffer(root) and self.uses[root] == 1:
                self.home[root] = replace(term, value=root.name)
        self.overwriting.follow_first([self.roots[v] for v in node.inputs])

    def _side_by_side(self, values: Sequence[Value], turn: int) -> list[BufferAccess]:
        """Accesses to consecutive parts of one new buffer."""
        starts = [0, *accumulate(aligned(v.type.nbytes) for v in values)]
        buffer = self.buffer("work", starts[-1])
        self.shared[buffer] = 0
        parts = zip(values, starts, strict=False)
        return [BufferAccess(buffer, v.name, (at, v.type.nbytes), turn) for v, at in parts]

    def launch(self, node: Node) -> None:
        """Add the task of a kernel; before a message, copies of terms that lie elsewhere."""
        terms = self.staged.get(node.outputs[0])
        if terms is None:
            return super().launch(node)
        reads = []
        for value, term in zip(node.inputs, terms, strict=True):
            home = self.home[self.roots[value]]
            if home.byte_range != term.byte_range:
                source, home = home, replace(term, value=home.value)
                self.copy(source, home)
            reads.append(home)
        writes = tuple(self.home[v] for v in node.outputs)
        self.tasks.append(Task(self.kernel(node), tuple(reads), writes, node.where))

    def choose_in_place(self) -> set[Value]:
        """The state whose producer writes the new contents directly to the state's buffer."""
        chosen: set[Value] = set()
        for state, new in self.updates.items():
            if self.may_overwrite(state, new):
                self.overwriting.decide(state, new)
                self.home[new] = BufferAccess(self.home[state].buffer, new.name)
                chosen.add(state)
        return chosen

    def place_outputs(self) -> list[tuple[Value, BufferAccess]]:
        """Store each output's root in the output's io buffer if the root has no buffer yet; returns
        the outputs."""
        outputs = []
        for value in self.graph.outputs:
            root = self.roots[value]
            access = BufferAccess(self.buffer("io", root.type.nbytes), root.name)
            self.home.setdefault(root, access)
            outputs.append((value, access))
        return outputs

    def copy_update(self, state: Value) -> None:
        """Copy new contents to the state's buffer. They go through the work arena if they are the
        old contents of other state that is itself updated."""
        source = self.home[self.updates[state]]
        if self.updates[state] in self.updates:
            snapshot = BufferAccess(self.buffer("work", state.type.nbytes), source.value)
            self.copy(source, snapshot)
            source = snapshot
        self.copy(source, BufferAccess(self.home[state].buffer, source.value))
