"""Random graphs with loops of opaque kernels, and what they mean."""

from __future__ import annotations

import random
from dataclasses import replace

from graphc.ir import Graph, Node, Type, Value
from graphc.kernels.program.kernel import Kernel
from graphc.ops.loops.scan import Scan, stacked
from graphc.ops.view import Reshape
from tests.runtime.random_graphs import kernel_node, opaque_kernel

SIZES = (0, 16, 16, 16, 5, 100)
Kernels = dict[str, Kernel]


class LoopWriter:
    """Makes random graphs whose values have unique names, loops within loops included."""

    def __init__(self, seed: int, lengths: tuple[int, ...] = (0, 1, 2, 3, 5)) -> None:
        self.dice = random.Random(seed)
        self.lengths = lengths
        self.kernels: Kernels = {}
        self.names = 0

    def fresh(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def value(self, kind: str, type: Type) -> Value:
        return Value(self.fresh(kind), type)

    def kernel(self, values: list[Value], sizes: list[int] | None = None) -> Node:
        """A kernel that reads some of `values`."""
        dice = self.dice
        recent = values[-7:] if dice.random() < 0.7 else values
        reads = [dice.choice(recent) for _ in range(dice.randint(0, 3) if recent else 0)]
        like = [v.type.size for v in reads if v.type.rank == 1] or list(SIZES)
        sizes = sizes or [dice.choice(like) for _ in range(dice.choice([1, 1, 1, 2]))]
        name = self.fresh("k")
        node = kernel_node(name, reads, sizes)
        pairs = tuple(
            (i, o)
            for i, v in enumerate(node.inputs)
            for o, w in enumerate(node.outputs)
            if v.type == w.type and dice.random() < 0.7
        )
        workspace = dice.choice([0, 0, 0, 200])
        flops = dice.randint(0, 10**7)
        self.kernels[name] = opaque_kernel(name, workspace=workspace, inplace=pairs, flops=flops)
        return node

    def nodes(self, values: list[Value], count: int, depth: int) -> list[Node]:
        """`count` nodes over `values`, which grows by their outputs."""
        nodes: list[Node] = []
        for _ in range(count):
            if depth and self.dice.random() < 0.25:
                made = self.loop(values, depth - 1)
            elif values and self.dice.random() < 0.15:
                source = self.dice.choice(values)
                alias = self.value("alias", Type((1, *source.type.shape)))
                made = [Node(Reshape(alias.type.shape), (source,), (alias,))]
            else:
                made = [self.kernel(values)]
            nodes += made
            values += [v for node in made for v in node.outputs]
        return nodes

    def loop(self, values: list[Value], depth: int) -> list[Node]:
        """A scan, after the kernels that make what it scans and begins with."""
        dice = self.dice
        length = dice.choice(self.lengths)
        constants = [dice.choice(values) for _ in range(dice.randint(0, 2) if values else 0)]
        carried = [Type((dice.choice(SIZES),)) for _ in range(dice.randint(0, 3))]
        scanned = [Type((dice.choice(SIZES),)) for _ in range(dice.randint(0, 3))]
        made: list[Node] = []

        def of_type(type: Type) -> Value:
            fitting = [v for v in (*values, *constants) if v.type == type]
            if fitting and dice.random() < 0.4:
                return dice.choice(fitting)
            if type.rank == 1:
                made.append(self.kernel(values, [type.size]))
                return made[-1].outputs[0]
            made.append(self.kernel(values, [type.size]))
            whole = self.value("whole", type)
            made.append(Node(Reshape(type.shape), made[-1].outputs, (whole,)))
            return whole

        initial = [of_type(type) for type in carried]
        xs = [of_type(stacked(type, length)) for type in scanned]
        inside = [self.value("const", v.type) for v in constants]
        old = [self.value("old", type) for type in carried]
        elements = [self.value("x", type) for type in scanned]
        known = [*inside, *old, *elements]
        body_values = list(known)
        body_nodes = (
            self.nodes(body_values, dice.randint(1, 5), depth)
            if known or dice.random() < 0.5
            else []
        )
        new = []
        for value in old:
            fitting = [v for v in body_values if v.type == value.type]
            if dice.random() < 0.3:
                node = self.kernel(body_values, [value.type.size])
                body_nodes.append(node)
                body_values += node.outputs
                fitting = [node.outputs[0]]
            new.append(dice.choice(fitting))
        count = dice.randint(0, 3) if body_values else 0
        ys = [dice.choice(body_values) for _ in range(count)]
        ys += [v for v in new if dice.random() < 0.3]
        ys += [v for v in old if dice.random() < 0.2]
        if not new and not ys:
            return made
        body = Graph(self.fresh("body"), tuple(known), (), tuple(body_nodes), (*new, *ys))
        op = Scan(body, length, len(old), len(elements), dice.random() < 0.5)
        outputs = [self.value("last", t) for t in carried]
        outputs += [self.value("stack", stacked(y.type, length)) for y in ys]
        made.append(Node(op, (*constants, *initial, *xs), tuple(outputs)))
        return made


def random_loops(
    seed: int, count: int = 8, lengths: tuple[int, ...] = (0, 1, 2, 3, 5), depth: int = 2
) -> tuple[Graph, Kernels]:
    """A graph with loops within loops; state that is read, carried and updated."""
    writer = LoopWriter(seed, lengths)
    dice = writer.dice
    inputs = tuple(writer.value("in", Type((dice.choice(SIZES),))) for _ in range(3))
    state = tuple(writer.value("state", Type((dice.choice([16, 100]),))) for _ in range(3))
    values: list[Value] = [*inputs, *state]
    nodes = writer.nodes(values, count, depth)
    outputs = tuple(dice.choice(values) for _ in range(3))
    ends = [v for n in nodes if isinstance(n.op, Scan) for v in n.outputs]
    if ends:
        outputs += (dice.choice(ends),)
    updates = []
    for old in state:
        fitting = [v for v in (*ends, *values) if v.type == old.type]
        updates.append((old, dice.choice(fitting)))
    graph = Graph(f"loops{seed}", inputs, state, tuple(nodes), outputs, tuple(updates))
    return graph, writer.kernels


def layered_loops(seed: int, layers: int = 3, length: int = 4) -> tuple[Graph, Kernels]:
    """Layers of recurrence, each of which scans the one before: what may become a wavefront. Some
    read other things in between."""
    writer = LoopWriter(seed)
    dice = writer.dice
    type = Type((16,))
    x = writer.value("x", stacked(type, length))
    shared, state = writer.value("in", type), writer.value("state", type)
    values: list[Value] = [shared, state]
    nodes: list[Node] = []
    scanned, reverse = x, dice.random() < 0.5
    outputs: list[Value] = []
    for _ in range(layers):
        constant, element = writer.value("const", type), writer.value("x", type)
        old = [writer.value("old", type) for _ in range(dice.randint(1, 2))]
        inside = [constant, *old, element]
        body = [writer.kernel(inside, [16]) for _ in range(dice.randint(1, 3))]
        for node in body:
            inside += node.outputs
        new = [writer.kernel([*inside, value, element], [16]) for value in old]
        body += new
        carries = [node.outputs[0] for node in new]
        ys = [carries[0], *(dice.choice([*inside, *carries]) for _ in range(dice.randint(0, 2)))]
        inputs = (constant, *old, element)
        graph = Graph(writer.fresh("body"), inputs, (), tuple(body), (*carries, *ys))
        if dice.random() < 0.2:
            reverse = not reverse
        op = Scan(graph, length, len(old), 1, reverse)
        results = [writer.value("last", type) for _ in old]
        results += [writer.value("stack", stacked(type, length)) for _ in ys]
        first = [dice.choice(values) for _ in (constant, *old)]
        nodes.append(Node(op, (*first, scanned), tuple(results)))
        scanned = results[len(old)]
        if dice.random() < 0.3:
            values.append(results[0])
        outputs += [r for r in results if dice.random() < 0.3]
    reader = writer.kernel([scanned, *values], [16])
    nodes.append(reader)
    outputs = [*dict.fromkeys(outputs), *reader.outputs]
    updates = ((state, reader.outputs[0]),)
    whole = Graph(f"layers{seed}", (x, shared), (state,), tuple(nodes), tuple(outputs), updates)
    return whole, {k: replace(v, flops=5 * 10**7) for k, v in writer.kernels.items()}
