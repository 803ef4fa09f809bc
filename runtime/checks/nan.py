"""Find the NaN that GRAPHC_CHECK=nan stops at, and the op that produced it.

A kernel computes many nodes. If it writes a NaN, the reference computes its body again, node by
node, from what it read. Then the search goes back from the written NaN along values that hold one
to the first: its node is one op of one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graphc.base.dtypes import Array, shown
from graphc.base.errors import RunError
from graphc.ir import Graph, Node, Type, Value, Where
from graphc.ir.interpret import evaluate
from graphc.ir.state import elements
from graphc.ops.fused import KernelNode
from graphc.ops.loops.scan import Scan
from graphc.runtime.plan.plan import Launch


@dataclass(frozen=True)
class Nan:
    """A value that holds a NaN."""

    value: Value
    kernel: str = ""
    """The kernel that computes it; "" for an argument of the call or state."""
    where: Where = field(default_factory=Where)
    """Where in the user's program it is computed."""
    iterations: tuple[int, ...] = ()
    """The iterations of the enclosing loops, the outermost first."""

    @property
    def message(self) -> str:
        text = f"NaN in {self.value} : {self.value.type}, "
        if not self.kernel:
            return f"{text}before the first kernel; the state is unchanged"
        times = ", ".join(map(str, self.iterations))
        loop = f" (iteration {times})" if times else ""
        where = f", {self.where}" if str(self.where) else ""
        return f"{text}written by {self.kernel}{loop}{where}; the state is unchanged"


def first_nan(
    graph: Graph, inputs: Sequence[Array], state: Mapping[str, Array], flush: bool = False
) -> Nan | None:
    """The first value that holds a NaN; None if no value does. `flush` is that of `evaluate`."""
    arrays = [*inputs, *(state[value.name] for value in graph.state)]
    for value, array in zip((*graph.inputs, *graph.state), arrays, strict=True):
        if has_nan(array):
            return Nan(value)

    def compute(node: Node, arguments: Sequence[Array]) -> tuple[Array, ...]:
        results = node.op.evaluate(*arguments)
        for value, result in zip(node.outputs, results, strict=True):
            if has_nan(result):
                found = Nan(value, kernel_name(node), node.where)
                raise _Found(origin(node, value, arguments) or found)
        return results

    try:
        evaluate(graph, inputs, state, compute=compute, flush=flush)
    except _Found as found:
        return found.nan
    return None


def origin(node: Node, value: Value, inputs: Sequence[Array]) -> Nan | None:
    """The origin of the NaN in `value`, which `node` computes from `inputs`; None if the node has
    no body, or if the reference finds none there."""
    if isinstance(node.op, Scan):
        return _in_loop(node.op, inputs)
    if not isinstance(node, KernelNode):
        return None
    body = node.body
    values = dict(zip(body.inputs, inputs, strict=True))
    for inner in body.nodes:
        with np.errstate(all="ignore"):
            results = inner.op.evaluate(*(values[v] for v in inner.inputs))
        values.update(zip(inner.outputs, results, strict=True))
    output, producers = body.outputs[node.outputs.index(value)], body.producers
    place = output
    if place not in values or not has_nan(values[place]):
        return None
    while place in producers:
        before = [v for v in producers[place].inputs if has_nan(values[v])]
        if not before:
            where = producers[place].where
            named = value if place == output else place
            return Nan(named, node.op.kernel, where if str(where) else node.where)
        place = before[0]
    return None


def _in_loop(op: Scan, inputs: Sequence[Array]) -> Nan | None:
    constants, carries, scanned = op.split_inputs(inputs)
    for t in reversed(range(op.length)) if op.reverse else range(op.length):
        arguments = [*constants, *carries, *(x[t] for x in scanned)]
        found = first_nan(op.body, arguments, {})
        if found is not None:
            return replace(found, iterations=(t, *found.iterations))
        carries, _ = op.split_outputs(evaluate(op.body, arguments)[0])
    return None


def written_nan(
    step: Launch, name: str, type: Type, iterations: Sequence[int], reads: Reads | None
) -> RunError:
    """The error for the NaN in value `name`, which `step` wrote; `reads` is what it read."""
    outer = Nan(Value(name, type), step.kernel, step.where, tuple(iterations))
    if reads is not None:
        named = (v for v in reads.node.outputs if v.name == name)
        found = next((origin(reads.node, v, reads.arrays) for v in named), None)
        if found is not None:
            return RunError(replace(found, iterations=outer.iterations).message)
    return RunError(outer.message)


@dataclass(frozen=True)
class Reads:
    """What the kernel of `node` is about to read: an array per input."""

    node: Node
    arrays: Sequence[Array]


def reads_of(step: Launch, nodes: Mapping[str, Node], stored: Sequence[Array]) -> Reads | None:
    """The arrays that a step reads, from copies of its bytes; None for a kernel without a body."""
    node = nodes.get(step.kernel)
    if node is None or [v.type.nbytes for v in node.inputs] != [x.nbytes for x in stored]:
        return None
    pairs = zip(stored, node.inputs, strict=True)
    return Reads(node, [elements(x.view(v.type.numpy_dtype), v.type) for x, v in pairs])


def kernels_of(graph: Graph | None) -> dict[str, Node]:
    """The fused node of each kernel by the kernel's name, in bodies of loops too."""
    found: dict[str, Node] = {}
    for node in graph.nodes if graph else ():
        if isinstance(node, KernelNode):
            found.setdefault(node.op.kernel, node)  # one that runs again comes later
        if isinstance(node.op, Scan):
            found.update(kernels_of(node.op.body))
    return found


def has_nan(array: Array) -> bool:
    """Whether any element is NaN; False for dtypes without NaN."""
    array = shown(array)
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def value_types(graph: Graph | None) -> dict[str, Type]:
    """The type of each computed value by its name, in bodies of loops too."""
    types: dict[str, Type] = {}
    for node in graph.nodes if graph else ():
        types.update({v.name: v.type for v in node.outputs})
        if isinstance(node.op, Scan):
            types.update(value_types(node.op.body))
    return types


def kernel_name(node: Node) -> str:
    """The name of a node's kernel in profiles and messages."""
    return str(getattr(node.op, "kernel", node.op.name))


class _Found(Exception):
    """Ends the search with the NaN that was found."""

    def __init__(self, nan: Nan) -> None:
        super().__init__()
        self.nan = nan
