"""Random graphs of opaque kernels with every feature that a plan must handle."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from graphc.ir import Graph, Node, Type, Value
from graphc.kernels.program.kernel import Kernel
from graphc.ops.base import Op
from graphc.ops.view import Reshape


@dataclass(frozen=True)
class Opaque(Op):
    """Outputs of given types; what it computes does not matter."""

    types: tuple[Type, ...]

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        return self.types


def kernel_node(
    name: str, inputs: list[Value], sizes: list[int], *, outputs: list[str] | None = None
) -> Node:
    """A node with f32 outputs of `sizes` elements, called `name`, `name.1`, ..."""
    types = tuple(Type((size,)) for size in sizes)
    names = outputs or [name if n == 0 else f"{name}.{n}" for n in range(len(sizes))]
    values = tuple(Value(v, t) for v, t in zip(names, types, strict=True))
    return Node(Opaque(types), tuple(inputs), values)


def opaque_kernel(name: str, *, workspace: int = 0, inplace: tuple[tuple[int, int], ...] = (),
                  flops: int = 0, nbytes: int = 0) -> Kernel:  # fmt: skip
    return Kernel(
        name, "pointwise", "", workspace=workspace, inplace=inplace, flops=flops, bytes=nbytes
    )


def random_graph(seed: int, count: int = 24) -> tuple[Graph, dict[str, Kernel]]:
    """`count` kernels and some reshapes: empty values, several outputs, workspaces, kernels that
    may run in place, state that is read, updated and swapped, outputs of every kind."""
    dice = random.Random(seed)
    sizes = [0, 1, 16, 16, 16, 100, 100, 1000, 5000]
    inputs = tuple(Value(f"in{n}", Type((dice.choice(sizes),))) for n in range(3))
    state = tuple(Value(f"state{n}", Type((dice.choice([16, 100, 1000]),))) for n in range(5))
    values: list[Value] = [*inputs, *state]
    nodes: list[Node] = []
    kernels: dict[str, Kernel] = {}
    for n in range(count):
        recent = values[-8:] if dice.random() < 0.7 else values
        reads = [dice.choice(recent) for _ in range(dice.randint(0, 3))]
        like = [v.type.size for v in reads] or sizes
        widths = [dice.choice(like if dice.random() < 0.6 else sizes) for _ in range(1 + n % 3 % 2)]
        node = kernel_node(f"k{n}", reads, widths)
        pairs = [
            (i, o)
            for i, v in enumerate(node.inputs)
            for o, w in enumerate(node.outputs)
            if v.type == w.type and dice.random() < 0.7
        ]
        half = dice.choice(["", "", f"_layer{n // 4}_dgrad", f"_layer{n // 4}_wgrad"])
        kernels[f"k{n}"] = opaque_kernel(
            f"k{n}" if not half else f"{half[1:]}_{n}",
            workspace=dice.choice([0, 0, 0, 200]),
            inplace=tuple(pairs),
            flops=dice.randint(0, 10**7),
        )
        nodes.append(node)
        values += node.outputs
        if dice.random() < 0.2:
            source = dice.choice(values)
            alias = Value(f"alias{n}", Type((1, source.type.size)))
            nodes.append(Node(Reshape(alias.type.shape), (source,), (alias,)))
            values.append(alias)
    outputs = tuple(dice.choice(values) for _ in range(4))
    updates = []
    for old in state[:4]:
        fitting = [v for v in values if v.type == old.type]
        updates.append((old, dice.choice(fitting)))
    graph = Graph(f"random{seed}", inputs, state, tuple(nodes), outputs, tuple(updates))
    return graph, kernels


def add_updates(graph: Graph, kernels: dict[str, Kernel]) -> tuple[Graph, dict[str, Kernel]]:
    """The graph with one kernel at its end that updates every state in place, as an optimizer."""
    gradients = [v for n in graph.nodes for v in n.outputs][-3:]
    names = [f"new_{v.name}" for v in graph.state]
    sizes = [v.type.size for v in graph.state]
    node = kernel_node("update", [*graph.state, *gradients], sizes, outputs=names)
    pairs = tuple((i, i) for i in range(len(graph.state)))
    updates = tuple(zip(graph.state, node.outputs, strict=True))
    whole = Graph(
        graph.name, graph.inputs, graph.state, (*graph.nodes, node), graph.outputs, updates
    )
    return whole, {**kernels, names[0]: opaque_kernel("update", inplace=pairs)}


def independent(chunks: int, flops: int = 10**8, wide: int = 0) -> tuple[Graph, dict[str, Kernel]]:
    """Two chains of three kernels, which a last one joins. All three read a value of `wide`
    elements, if any."""
    x = Value("x", Type((16,)))
    nodes, kernels, ends = [], {}, []
    begin: Value = x
    if wide:
        nodes.append(kernel_node("begin", [x], [wide]))
        begin, kernels["begin"] = nodes[-1].output, opaque_kernel("begin")
    for name in ("a", "b"):
        value = begin
        for n in range(3):
            nodes.append(kernel_node(f"{name}{n}", [value], [16]))
            value = nodes[-1].output
            kernel = opaque_kernel(value.name, flops=flops)
            kernels[value.name] = replace(kernel, phases=(chunks,))
        ends.append(value)
    ends += [begin] if wide else []
    nodes.append(kernel_node("last", ends, [16]))
    kernels["last"] = opaque_kernel("last")
    return Graph("independent", (x,), (), tuple(nodes), (nodes[-1].output,)), kernels


def training_graph(
    layers: int, batch: int = 1000, wide: int = 1, wgrad_flops: int = 10**7
) -> tuple[Graph, dict[str, Kernel]]:
    """A forward pass of `layers` layers that saves its activations, the loss, and a backward pass
    with activation-backward, dgrad and wgrad per layer, and one update of all weights in place.
    Activations have `batch` elements times `wide` in every other layer."""
    x = Value("x", Type((batch,)))
    weights = [Value(f"conv{n}.weight", Type((64,))) for n in range(layers)]
    nodes: list[Node] = []
    kernels: dict[str, Kernel] = {}

    def add(name: str, reads: list[Value], sizes: list[int], flops: int = 0,
            inplace: tuple[tuple[int, int], ...] = ()) -> tuple[Value, ...]:  # fmt: skip
        nodes.append(kernel_node(name, reads, sizes))
        nbytes = sum(v.type.nbytes for v in (*nodes[-1].inputs, *nodes[-1].outputs))
        kernels[name] = opaque_kernel(name, flops=flops, nbytes=nbytes, inplace=inplace)
        return nodes[-1].outputs

    activations = [x]
    for n, weight in enumerate(weights):
        size = batch * (wide if n % 2 == 0 else 1)
        activations += add(f"conv{n}_forward", [activations[-1], weight], [size], 10**7)
    loss, gradient = add("loss", [activations[-1]], [1, activations[-1].type.size])
    changes = []
    for n in reversed(range(layers)):
        (gradient,) = add(f"d_relu{n}", [gradient, activations[n + 1]], [gradient.type.size])
        changes += add(f"conv{n}_wgrad", [gradient, activations[n]], [64], wgrad_flops)
        if n:
            size = activations[n].type.size
            (gradient,) = add(f"conv{n}_dgrad", [gradient, weights[n]], [size], 10**7)
    pairs = tuple((n, n) for n in range(layers))
    new = add("update", [*weights, *changes], [64] * layers, inplace=pairs)
    updates = tuple(zip(weights, new, strict=True))
    return Graph("training", (x,), tuple(weights), tuple(nodes), (loss,), updates), kernels
