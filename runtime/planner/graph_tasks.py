"""Build the tasks of a whole graph: inputs, outputs, state, and in-place updates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from graphc.base.target import kind_of
from graphc.ir import Graph, Value
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.planner.assembly import Assembly, PlanBody
from graphc.runtime.planner.body import plan_body
from graphc.runtime.planner.concurrency import DeviceModel
from graphc.runtime.planner.schedule import arrange
from graphc.runtime.planner.tasks import OLD, BufferAccess, Tasks


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
