"""Slow, plain answers that the planner and the verifier are compared with. Loops are written out
here, iteration by iteration, by other means than the runtime's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc.ir import Graph, Node, Value
from graphc.kernels.program.kernel import Kernel
from graphc.ops.loops.scan import Scan
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Range, Record, Step, Wait

Words = np.ndarray[Any, np.dtype[np.int64]]
"""What a value is, four bytes by four."""


def happens_before(steps: Sequence[Step], streams: int) -> list[set[int]]:
    """For each of steps without loops all that have ended before it begins: reachability over the
    explicit edges from a step to the next on its stream and from a record to its waits."""
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


@dataclass
class Flat:
    """The launches and copies of steps in an executable order, each with those that are known to
    have ended before it; the beginning and the end of the whole are nothings."""

    steps: list[Launch | Copy] = field(default_factory=list)
    before: list[set[int]] = field(default_factory=list)

    def add(self, step: Launch | Copy, after: set[int]) -> set[int]:
        """The numbers of the step and of all before it."""
        self.steps.append(step)
        self.before.append(set(after))
        return after | {len(self.steps) - 1}

    def play(self, steps: Sequence[Step], begin: list[set[int]], at: tuple[int, ...] = ()) -> None:
        """Add `steps` in the iterations `at` of the loops around them. `begin` says what has ended
        before the next step of each stream, and afterwards what has then."""
        events: dict[int, set[int]] = {}
        for step in steps:
            now = begin[step.stream]
            if isinstance(step, Record):
                events[step.event] = set(now)
            elif isinstance(step, Wait):
                begin[step.stream] = now | events[step.event]
            elif isinstance(step, Loop):
                for t in range(step.count):
                    inner = [now] * (1 + max((s.stream for s in step.steps), default=0))
                    length = step.count - step.stages + 1
                    works = [s for s in step.steps if 0 <= t - getattr(s, "stage", t) < length]
                    self.play(works, inner, (*at, t))
                    now = set().union(*inner)
                begin[step.stream] = now
            else:
                begin[step.stream] = self.add(concrete(step, at), now)


NOTHING = Launch(0, "nothing", (), (), ())


def flat(plan: Plan) -> Flat:
    """The plan between two nothings on stream 0."""
    result = Flat()
    begin: list[set[int]] = [set() for _ in range(plan.streams)]
    begin[0] = result.add(NOTHING, set())
    result.play(plan.steps, begin)
    result.add(NOTHING, begin[0])
    return result


def concrete(step: Launch | Copy, at: tuple[int, ...]) -> Launch | Copy:
    """The step in one iteration of each loop around it."""

    def place(r: Range) -> Range:
        offset = sum((t % m.period) * m.stride for m, t in zip(r.moves, at, strict=False))
        return Range(r.segment, r.start + offset, r.stop + offset, r.value)

    if isinstance(step, Copy):
        return Copy(step.stream, place(step.source), place(step.target))
    reads, writes = tuple(map(place, step.reads)), tuple(map(place, step.writes))
    return Launch(step.stream, step.kernel, reads + writes, reads, writes, step.where)


def is_ordered(plan: Plan) -> bool:
    """Whether every event is recorded once before its waits, every step lies between the first and
    the last moment of stream 0, and every two that touch a byte, one writing, are ordered."""
    if not events_are_sound(plan.steps):
        return False
    whole = flat(plan)
    steps, before = whole.steps, whole.before
    last = len(steps) - 1
    work = range(1, last)
    if any(0 not in before[i] or i not in before[last] for i in work):
        return False
    return all(
        i in before[j] or j in before[i]
        for j in work
        for i in range(1, j)
        if conflict(steps[i], steps[j])
    )


def events_are_sound(steps: Sequence[Step]) -> bool:
    recorded: set[int] = set()
    for step in steps:
        if isinstance(step, Wait) and step.event not in recorded:
            return False
        if isinstance(step, Record):
            if step.event in recorded:
                return False
            recorded.add(step.event)
        if isinstance(step, Loop) and not events_are_sound(step.steps):
            return False
    return True


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


def given(name: str, nbytes: int) -> Words:
    """What an input or a state holds at first."""
    return words((name,), nbytes)


def words(key: tuple[object, ...], nbytes: int) -> Words:
    """Numbers of their own for each key, that differ from word to word."""
    start = np.int64(hash(key) >> 8)
    return start + np.arange(nbytes // 4, dtype=np.int64) * 1_000_003


def computed(kernel: str, inputs: Sequence[Words], output: int, nbytes: int) -> Words:
    """What a kernel writes as its output number `output`."""
    return words((kernel, *(x.tobytes() for x in inputs), output), nbytes)


Meaning = tuple[list[bytes], dict[str, bytes]]


def graph_meaning(graph: Graph, kernels: dict[str, Kernel]) -> Meaning:
    """What each output and each state is in terms of inputs and kernels, node by node; a loop
    iteration by iteration."""
    known = {v: given(v.name, v.type.nbytes) for v in (*graph.inputs, *graph.state)}
    outputs = _evaluated(graph, kernels, known)
    state = {v.name: known[v].tobytes() for v in graph.state}
    state |= {old.name: known[new].tobytes() for old, new in graph.updates}
    return [x.tobytes() for x in outputs], state


def _evaluated(graph: Graph, kernels: dict[str, Kernel], known: dict[Value, Words]) -> list[Words]:
    for node in graph.nodes:
        inputs = [known[v] for v in node.inputs]
        if node.op.name == "reshape":
            known[node.outputs[0]] = inputs[0]
        elif isinstance(node.op, Scan):
            known.update(zip(node.outputs, _looped(node, node.op, kernels, inputs), strict=True))
        else:
            name = kernels[node.outputs[0].name].name
            for n, value in enumerate(node.outputs):
                known[value] = computed(name, inputs, n, value.type.nbytes)
    return [known[v] for v in graph.outputs]


def _looped(node: Node, op: Scan, kernels: dict[str, Kernel], values: list[Words]) -> list[Words]:
    constants, carries, xs = op.split_inputs(values)
    stacks = [given("", v.type.nbytes) for v in op.split_outputs(node.outputs)[1]]
    for t in reversed(range(op.length)) if op.reverse else range(op.length):
        elements = [x.reshape(op.length, -1)[t] for x in xs]
        inputs = zip(op.body.inputs, (*constants, *carries, *elements), strict=True)
        results = _evaluated(op.body, kernels, dict(inputs))
        carries, made = op.split_outputs(results)
        for stack, element in zip(stacks, made, strict=True):
            stack.reshape(op.length, -1)[t] = element
    return [*carries, *stacks]


def plan_meaning(plan: Plan, dice: random.Random) -> Meaning:
    """The same from playing the steps over memory, in any order that streams and events allow."""
    ends = {"work": plan.peak_bytes}
    for binding in (*plan.state, *plan.inputs, *plan.outputs):
        ends[binding.place.segment] = max(ends.get(binding.place.segment, 0), binding.place.stop)
    memory = {segment: np.zeros(end // 4, np.int64) for segment, end in ends.items()}

    def at(place: Range) -> Words:
        if place.start == place.stop:
            return np.zeros(0, np.int64)
        assert 0 <= place.start <= place.stop <= ends[place.segment], f"{place} is nowhere"
        return memory[place.segment][place.start // 4 : place.stop // 4]

    for binding in (*plan.state, *plan.inputs):
        at(binding.place)[:] = given(binding.value.name, binding.value.type.nbytes)
    for step in any_order(plan, dice):
        if isinstance(step, Copy):
            at(step.target)[:] = at(step.source)
        else:
            inputs = [at(r).copy() for r in step.reads]
            for n, place in enumerate(step.writes):
                at(place)[:] = computed(step.kernel, inputs, n, place.stop - place.start)
    outputs = [at(b.place).tobytes() for b in plan.outputs]
    return outputs, {b.value.name: at(b.place).tobytes() for b in plan.state}


def any_order(plan: Plan, dice: random.Random) -> list[Launch | Copy]:
    """The launches and copies in a random order that streams and events allow."""
    whole = flat(plan)
    after: list[list[int]] = [[] for _ in whole.steps]
    missing = [len(before) for before in whole.before]
    for i, before in enumerate(whole.before):
        for j in before:
            after[j].append(i)
    ready = [i for i, n in enumerate(missing) if not n]
    order = []
    while ready:
        i = ready.pop(dice.randrange(len(ready)))
        order.append(whole.steps[i])
        for j in after[i]:
            missing[j] -= 1
            if not missing[j]:
                ready.append(j)
    return [step for step in order if step is not NOTHING]
