"""Turn kernels between two loops into loops: a product over all time steps, computed step by step.

In a stack of recurrent layers, a layer reads what the one before it stacked through a product over
all steps. One large product is cheapest if everything is serial, but the second layer must wait
until the first has ended. As a loop without carries, each of whose iterations is the product of one
step, it can become a stage of a wavefront (`wavefront.py`): an iteration behind the layer that it
reads, one before the layer that reads it.

A kernel can be taken step by step if its first axis is time and rows and no row needs another. The
kernel of a step adds the same terms in the same order (`Kernel.summation_order`), so its rows have
the same bits, and the number of streams may decide which of the two a plan uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from graphc.base.cached import cached_property
from graphc.base.errors import GraphError
from graphc.base.target import Target
from graphc.ir import ROW_MAJOR, Graph, Names, Node, Op, Value
from graphc.kernels.lower import lower_step
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import Fused, KernelNode
from graphc.ops.loops.bodies import values_of
from graphc.ops.loops.scan import Scan, bodies
from graphc.ops.view import Reshape, Slice
from graphc.runtime.plan.plan import Launch, Loop, Plan
from graphc.runtime.planner.concurrency import DeviceModel
from graphc.runtime.planner.loop_body import body_roots

TEMPLATES = ("contract", "pointwise")
"""Templates of kernels that compute a row regardless of the number of rows."""

Kernels = Mapping[str, Kernel]
PlanOf = Callable[[Graph, Kernels, Mapping[str, float]], Plan]
"""The verified plan of a graph with its kernels, given measured times of some."""


@dataclass(frozen=True)
class KernelBetweenLoops:
    """A kernel between a loop that stacks what it reads and one that scans what it computes."""

    node: KernelNode
    """The fused node."""
    length: int
    """Iterations of both loops."""
    reverse: bool
    """The direction of both loops."""
    over_time: frozenset[Value]
    """The values of its body whose first axis is time."""


@dataclass(frozen=True)
class TimeStep:
    """A kernel taken step by step."""

    all_steps: KernelBetweenLoops
    """The kernel of all steps."""
    node: KernelNode
    """The node of one iteration."""
    kernel: Kernel
    """The kernel of one iteration."""


@dataclass(frozen=True)
class StepwisePlanner:
    """Plans `graph` with kernels between loops as loops."""

    graph: Graph
    """The graph."""
    kernels: Kernels
    """Its kernels by first output."""
    target: Target | None
    """The target; None if all kernels stay as they are."""

    @cached_property
    def steps(self) -> dict[Value, TimeStep]:
        """The kernels that can be taken step by step, by the output of the kernel of all steps."""
        found: dict[Value, TimeStep] = {}
        names = _names(self.graph)
        for between in between_loops(self.graph) if self.target else ():
            inside = _inside(between, names)
            if inside is not None and self.target is not None:
                kernel = lower_step(inside, self.kernels[between.node.output.name], self.target)
                if kernel is not None:
                    found[between.node.output] = TimeStep(between, inside, kernel)
        return found

    def best(self, plan_of: PlanOf, measured: Mapping[str, float] | None = None) -> Plan:
        """The plan of the graph. Kernels between two loops become loops where all of these become
        stages of a wavefront and that is estimated to take less time."""
        measured = measured or {}
        best, chosen = plan_of(self.graph, self.kernels, measured), dict[Value, TimeStep]()
        for chain in self._chains() if best.streams > 1 else ():
            steps = {**chosen, **chain}
            kernels = {n: k for n, k in self.kernels.items() if n not in {v.name for v in steps}}
            kernels |= {s.node.output.name: s.kernel for s in steps.values()}
            times = {**measured, **self._times(best.device, measured)}
            plan = plan_of(self.with_loops(steps), kernels, times)
            faster = plan.estimate.microseconds < best.estimate.microseconds
            if faster and _inner_stages(plan).issuperset(s.kernel.name for s in chain.values()):
                best, chosen = plan, steps
        return best

    def _chains(self) -> list[dict[Value, TimeStep]]:
        """The steps, grouped where they follow each other between the same loops."""
        roots = body_roots(self.graph)
        chains: list[dict[Value, TimeStep]] = []
        for output, step in self.steps.items():
            read = {roots[v] for v in step.all_steps.node.inputs}
            chain = next((c for c in chains if read & c.keys()), None)
            if chain is None:
                chains.append(chain := {})
            chain[output] = step
        return chains

    def graph_of(self, plan: Plan) -> Graph:
        """The graph of a `plan` that `best` returned."""
        steps = self.steps.items() if plan.streams > 1 else ()
        return self.with_loops({v: s for v, s in steps if s.kernel.name in plan.kernels})

    def with_loops(self, steps: Mapping[Value, TimeStep]) -> Graph:
        """The graph in which `steps` are loops."""
        if not steps:
            return self.graph
        names = _names(self.graph)
        nodes: list[Node] = []
        for node in self.graph.nodes:
            step = steps.get(node.outputs[0])
            nodes += [node] if step is None else _as_loop(step, names)
        return replace(self.graph, nodes=tuple(nodes))

    def _times(self, device: str, measured: Mapping[str, float]) -> dict[str, float]:
        """Times of steps whose kernels of all steps were measured, scaled by the ratio of the
        estimates."""
        machine = DeviceModel(device)

        def ratio(step: TimeStep, whole: Kernel) -> float:
            return machine.kernel(step.kernel).microseconds / machine.kernel(whole).microseconds

        pairs = ((s, self.kernels[v.name]) for v, s in self.steps.items())
        return {
            s.kernel.name: measured[k.name] * ratio(s, k) for s, k in pairs if k.name in measured
        }


def _inner_stages(plan: Plan) -> set[str]:
    """The kernels in inner stages of wavefronts."""
    return {
        step.kernel
        for loop in plan.steps
        if isinstance(loop, Loop)
        for step in loop.steps
        if isinstance(step, Launch) and 0 < step.stage < loop.stages - 1
    }


def between_loops(graph: Graph) -> list[KernelBetweenLoops]:
    """The kernels between two loops that can be taken step by step, in order."""
    roots = body_roots(graph)
    rhythms: dict[Value, tuple[int, bool]] = {}
    found: dict[Value, KernelBetweenLoops] = {}
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            if not node.op.length:
                continue
            own = node.op.length, node.op.reverse
            rhythms.update((y, own) for _, y in Scan.bind(node).stacks)
        elif isinstance(node, KernelNode) and node.op.template in TEMPLATES:
            pairs = zip(node.inputs, node.body.inputs, strict=True)
            read = {inner: rhythms[roots[v]] for v, inner in pairs if roots[v] in rhythms}
            if len(set(read.values())) == 1 and len(node.outputs) == 1:
                rhythm = next(iter(read.values()))
                over_time = _over_time(node.body, frozenset(read), rhythm[0])
                if over_time is not None:
                    found[node.output] = KernelBetweenLoops(node, *rhythm, over_time)
                    rhythms[node.output] = rhythm
    wanted: set[Value] = set()
    for node in reversed(graph.nodes):
        if isinstance(node.op, Scan):
            own = node.op.length, node.op.reverse
            wanted |= {r for x in node.inputs if rhythms.get(r := roots[x]) == own}
        elif node.outputs[0] in found and node.outputs[0] in wanted:
            wanted |= {roots[v] for v in node.inputs}
    return [between for v, between in found.items() if v in wanted]


def _over_time(body: Graph, begin: frozenset[Value], length: int) -> frozenset[Value] | None:
    """All values of a body whose first axis is time and rows if that of `begin` is; None if the
    output's is not, or if a row needs others."""
    over_time = set(begin)
    for node in body.nodes:
        if node.op.draws or len(node.outputs) != 1:
            return None
        if not over_time.intersection(node.inputs):
            continue
        (places,) = node.op.axis_map(*(v.type for v in node.inputs))
        rows = node.output.type.shape[:1]
        for value, axes in zip(node.inputs, places, strict=True):
            first = 0 in axes and value.type.shape[axes.index(0)] == rows[0]
            if value in over_time and axes[:1] != (0,):
                return None
            if first and value not in over_time:
                if value not in body.inputs or axes[0] != 0:
                    return None
                return _over_time(body, begin | {value}, length)
        over_time.add(node.output)
    cut = all(
        v.type.rank and v.type.shape[0] % length == 0 and v.type.layout == ROW_MAJOR
        for v in over_time
    )
    return frozenset(over_time) if cut and over_time.issuperset(body.outputs) else None


def _inside(between: KernelBetweenLoops, names: Names) -> KernelNode | None:
    """The kernel of one step; None if one of its ops depends on the number of rows."""
    node, length, over_time = between.node, between.length, between.over_time
    body = node.body

    def step(value: Value) -> Value:
        if value not in over_time:
            return value
        rows, *others = value.type.shape
        return replace(value, type=replace(value.type, shape=(rows // length, *others)))

    nodes = []
    for inner in body.nodes:
        op = _of_rows(inner, length) if inner.output in over_time else inner.op
        if op is None:
            return None
        made = replace(
            inner,
            op=op,
            inputs=tuple(map(step, inner.inputs)),
            outputs=tuple(map(step, inner.outputs)),
        )
        try:
            if made.op.infer(*(v.type for v in made.inputs)) != (made.output.type,):
                return None
        except GraphError:
            return None
        nodes.append(made)
    inputs, outputs = (tuple(map(step, values)) for values in (body.inputs, body.outputs))
    short = replace(body, inputs=inputs, nodes=tuple(nodes), outputs=outputs)
    outside = tuple(
        Value(names.fresh(f"{v.name}.step"), inner.type)
        for v, inner in zip((*node.inputs, node.output), (*inputs, *outputs), strict=True)
    )
    note = f"the rows of one step of {length}: all at once would keep two loops one after the other"
    op = Fused(f"{node.op.kernel}_step", short, note)
    return replace(node, op=op, inputs=outside[:-1], outputs=outside[-1:])


def _of_rows(node: Node, length: int) -> Op | None:
    """The op of a node for the rows of one step; None if it drops rows."""
    op = node.op
    if not isinstance(op, Slice):
        return op
    (rows, *_), (stop, *stops) = node.inputs[0].type.shape, op.stops
    whole = (op.starts[0], stop, op.steps[0]) == (0, rows, 1)
    return replace(op, stops=(rows // length, *stops)) if whole else None


def _as_loop(step: TimeStep, names: Names) -> list[Node]:
    """A loop that computes what the kernel of all steps does, between views that separate time from
    rows."""
    node, inside, length = step.all_steps.node, step.node, step.all_steps.length

    def stack(of: Value, element: Value) -> Value:
        type = replace(of.type, shape=(length, *element.type.shape))
        return Value(names.fresh(f"{of.name}.steps"), type)

    def view(of: Value, to: Value) -> Node:
        return Node(Reshape(to.type.shape), (of,), (to,), node.where)

    constants, elements, before = [], [], []
    for inner, outer, element in zip(node.body.inputs, node.inputs, inside.inputs, strict=True):
        if inner in step.all_steps.over_time:
            elements.append((element, stack(outer, element)))
            before.append(view(outer, elements[-1][1]))
        else:
            constants.append((element, outer))
    inputs, outputs = zip(*constants, *elements, strict=True)
    name = names.fresh(f"{inside.op.kernel}.body")
    body = Graph(name, inputs, (), (inside,), inside.outputs)
    made = stack(node.output, inside.output)
    op = Scan(body, length, 0, len(elements), step.all_steps.reverse)
    return [*before, Node(op, outputs, (made,), node.where), view(made, node.output)]


def _names(graph: Graph) -> Names:
    """A generator of unused value names."""
    return Names(v.name for g in (graph, *bodies(graph)) for v in values_of(g))
