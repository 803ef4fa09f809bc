"""Slow, plain answers that the planner and the verifier are compared with."""

from __future__ import annotations

import random
from collections.abc import Sequence

from graphc.ir import Graph, Value
from graphc.kernels.kernel import Kernel
from graphc.runtime.plan import Copy, Launch, Plan, Range, Record, Step, Wait


def happens_before(steps: Sequence[Step], streams: int) -> list[set[int]]:
    """For each step all steps that have ended before it begins: reachability over the explicit
    edges from a step to the next on its stream and from a record to its waits."""
    edges: list[list[int]] = [[] for _ in steps]
    for i, step in enumerate(steps):
        following = (j for j in range(i + 1, len(steps)) if steps[j].stream == step.stream)
        edges[i] += list(following)[:1]
        if isinstance(step, Record):
            edges[i] += [
                j for j, s in enumerate(steps) if isinstance(s, Wait) and s.event == step.event
            ]
    before: list[set[int]] = [set() for _ in steps]
    for i in range(len(steps)):
        reached, stack = set[int](), [i]
        while stack:
            for j in edges[stack.pop()]:
                if j not in reached:
                    reached.add(j)
                    stack.append(j)
        for j in reached:
            before[j].add(i)
    return before


def is_ordered(plan: Plan) -> bool:
    """Whether every event is recorded once before its waits, every step lies between the first and
    the last moment of stream 0, and every two that touch a byte, one writing, are ordered."""
    recorded: set[int] = set()
    for step in plan.steps:
        if isinstance(step, Wait) and step.event not in recorded:
            return False
        if isinstance(step, Record):
            if step.event in recorded:
                return False
            recorded.add(step.event)
    nothing = Launch(0, "nothing", (), (), ())
    steps = [nothing, *plan.steps, nothing]
    before = happens_before(steps, plan.streams)
    last = len(steps) - 1
    work = [i for i in range(1, last) if isinstance(steps[i], Launch | Copy)]
    if any(0 not in before[i] or i not in before[last] for i in work):
        return False
    return all(
        i in before[j] or j in before[i]
        for n, j in enumerate(work)
        for i in work[:n]
        if conflict(steps[i], steps[j])
    )


def conflict(a: Step, b: Step) -> bool:
    """Whether the steps touch a byte in common that one of them writes."""
    return any(
        x.overlaps(y) and x.start < x.stop and y.start < y.stop
        for one, other in ((a, b), (b, a))
        for x in writes_of(one)
        for y in (*reads_of(other), *writes_of(other))
    )


def reads_of(step: Step) -> tuple[Range, ...]:
    return step.reads if isinstance(step, Launch) else (getattr(step, "source", None),)  # type: ignore[return-value]


def writes_of(step: Step) -> tuple[Range, ...]:
    return step.writes if isinstance(step, Launch) else (getattr(step, "target", None),)  # type: ignore[return-value]


def graph_meaning(
    graph: Graph, kernels: dict[str, Kernel]
) -> tuple[list[object], dict[str, object]]:
    """What each output and each state is in terms of inputs and kernels, node by node."""
    known: dict[Value, object] = {v: v.name for v in (*graph.inputs, *graph.state)}
    for node in graph.nodes:
        if node.op.name == "reshape":
            known[node.outputs[0]] = known[node.inputs[0]]
            continue
        inputs = tuple(known[v] if v.type.nbytes else None for v in node.inputs)
        for n, value in enumerate(node.outputs):
            known[value] = hash((kernels[node.outputs[0].name].name, inputs, n))
    state = {v.name: known[v] for v in graph.state}
    state |= {old.name: known[new] for old, new in graph.updates}
    return [known[v] if v.type.nbytes else None for v in graph.outputs], state


def plan_meaning(plan: Plan, dice: random.Random) -> tuple[list[object], dict[str, object]]:
    """The same from playing the steps over memory, in any order that streams and events allow."""
    memory: dict[tuple[str, int], object] = {}

    def write(place: Range, value: object) -> None:
        memory.update({(place.segment, b): value for b in range(place.start, place.stop, 4)})

    def read(place: Range) -> object:
        found = {memory[place.segment, b] for b in range(place.start, place.stop, 4)}
        assert len(found) <= 1, f"{place} holds a mixture"
        return found.pop() if found else None

    for binding in (*plan.state, *plan.inputs):
        write(binding.place, binding.value.name)
    for step in any_order(plan, dice):
        if isinstance(step, Copy):
            write(step.target, read(step.source))
        elif isinstance(step, Launch):
            inputs = tuple(read(r) for r in step.reads)
            for n, place in enumerate(step.writes):
                write(place, hash((step.kernel, inputs, n)))
    outputs = [read(b.place) for b in plan.outputs]
    return outputs, {b.value.name: read(b.place) for b in plan.state}


def any_order(plan: Plan, dice: random.Random) -> list[Step]:
    """The steps in a random order that streams and events allow, the fork and the join included."""
    queues = [[s for s in plan.steps if s.stream == n] for n in range(plan.streams)]
    recorded: set[int] = set()
    order: list[Step] = []
    while any(queues):
        heads = [
            q for q in queues if q and not (isinstance(q[0], Wait) and q[0].event not in recorded)
        ]
        step = dice.choice(heads).pop(0)
        if isinstance(step, Record):
            recorded.add(step.event)
        order.append(step)
    return order
