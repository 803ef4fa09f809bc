"""The tensor operations that gradient and batching rules use, and the walk that batches a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from graphc import functions, ops
from graphc.functions.array.looping import run_scan
from graphc.ir import Graph, Node, Type, Value
from graphc.ir.vocabulary import Body, Operation, Tensors
from graphc.ir.vocabulary import Tensor as Traced
from graphc.ops.axes import from_front, repeated, to_front
from graphc.ops.base import Op
from graphc.ops.loops.scan import Scan
from graphc.trace import Builder, Tensor, current_builder, emit


@dataclass(frozen=True)
class Known:
    """A value of a graph as a tensor: shared by all samples, or `stacked` on a first axis."""

    tensor: Tensor
    stacked: bool


class Vocabulary:
    """The operations that `Op.grad` and `Op.batched` use, as `graphc.ir.vocabulary` lists them.

    Everything is appended to the current builder.
    """

    any = staticmethod(functions.any)
    argmax = staticmethod(functions.argmax)
    astype = staticmethod(functions.astype)
    broadcast_to = staticmethod(functions.broadcast_to)
    cos = staticmethod(functions.cos)
    cosh = staticmethod(functions.cosh)
    exp = staticmethod(functions.exp)
    expand_dims = staticmethod(functions.expand_dims)
    log = staticmethod(functions.log)
    logical_and = staticmethod(functions.logical_and)
    matmul = staticmethod(functions.matmul)
    matrix_transpose = staticmethod(functions.matrix_transpose)
    permute_dims = staticmethod(functions.permute_dims)
    prod = staticmethod(functions.prod)
    repeat = staticmethod(functions.repeat)
    reshape = staticmethod(functions.reshape)
    rsqrt = staticmethod(functions.rsqrt)
    guarded_scan = staticmethod(run_scan)
    sign = staticmethod(functions.sign)
    signbit = staticmethod(functions.signbit)
    sin = staticmethod(functions.sin)
    sinh = staticmethod(functions.sinh)
    stop_gradient = staticmethod(functions.stop_gradient)
    sum = staticmethod(functions.sum)
    take = staticmethod(functions.take)
    tril = staticmethod(functions.tril)
    trunc = staticmethod(functions.trunc)
    where = staticmethod(functions.where)
    zeros = staticmethod(functions.zeros)
    zeros_like = staticmethod(functions.zeros_like)

    def __init__(self) -> None:
        self._moved: dict[tuple[Builder, Value, int, int], Tensor] = {}
        """What `moved` gives for a builder, a tensor's value, from where and to where."""

    def __getattr__(self, name: str) -> Any:
        """Return a function of graphc by its name, for gradients of users' own ops."""
        return getattr(functions, name)

    def emit(self, op: Operation, *inputs: Any) -> Tensor:
        """Append `op` and return its only output."""
        (output,) = self.emit_all(op, *inputs)
        return output

    def emit_all(self, op: Operation, *inputs: Any) -> tuple[Tensor, ...]:
        """Append `op` and return all outputs."""
        return current_builder().emit(cast(Op, op), *inputs)

    def sum_by_index(self, indices: Traced, x: Traced, axis: int, extent: int) -> Tensor:
        """Return y[..., j, ...] = sum of x[..., i, ...] over all i with indices[..., i, ...] = j.

        i and j are along `axis`; j is below `extent`.
        """
        shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
        nothing = functions.broadcast_to(functions.as_tensor(0, x.dtype), shape)
        return self.emit(ops.Scatter(axis, "sum"), nothing, indices, x)

    def moved(self, x: Traced, source: int, destination: int) -> Tensor:
        """Return x with axis `source` moved to `destination`, one of which is the first.

        The same move returns the same tensor, and moving back returns x, so that the loop of a
        gradient reads the very stacks and elements of its forward loop.
        """
        builder = current_builder()
        known = self._moved.get((builder, x.value, source, destination))
        if known is not None:
            return known
        moved = to_front(self, x, source) if destination == 0 else from_front(self, x, destination)
        y = cast(Tensor, moved)
        self._moved[builder, x.value, source, destination] = y
        self._moved[builder, y.value, destination, source] = cast(Tensor, x)
        return y

    def apply(self, node: Node, known: Mapping[Value, Known], size: int) -> tuple[Known, ...]:
        """Return the outputs of `node` for all samples."""
        inputs = [known[v] for v in node.inputs]
        tensors, stacked = [k.tensor for k in inputs], [k.stacked for k in inputs]
        if any(stacked) or node.op.draws:
            results = node.op.batched(self, tensors, stacked, size)
            return tuple(Known(cast(Tensor, t), True) for t in results)
        op = node.op
        if isinstance(op, Scan):
            op = op.renamed(current_builder().fresh)
        return tuple(Known(t, False) for t in self.emit_all(op, *tensors))

    def walk(self, nodes: Iterable[Node], known: dict[Value, Known], size: int) -> None:
        """Compute the nodes from `known`, and add their outputs to it."""
        builder = current_builder()
        for node in nodes:
            with builder.at(node.where):
                known.update(zip(node.outputs, self.apply(node, known, size), strict=True))

    def samples(
        self, body: Body, inputs: Tensors, stacked: Sequence[bool], size: int
    ) -> list[tuple[Traced, bool]]:
        """Return the outputs of a body without state, and whether they differ between samples."""
        tensors = (cast(Tensor, x) for x in inputs)
        known = dict(zip(body.inputs, map(Known, tensors, stacked), strict=True))
        self.walk(cast(Graph, body).nodes, known, size)
        return [(known[v].tensor, known[v].stacked) for v in body.outputs]

    def batched_body(
        self, body: Graph, stacked: Sequence[bool], wanted: Sequence[bool], size: int
    ) -> Graph:
        """Return the graph that computes a body without state for all samples.

        Args:
            body: A graph whose nodes read its inputs alone.
            stacked: Which inputs have a first axis for the samples.
            wanted: Which outputs have one; the others are sums over all samples.
            size: The number of samples.
        """
        builder = Builder(body.name)
        known: dict[Value, Known] = {}
        results = []
        with builder.building():
            for value, flag in zip(body.inputs, stacked, strict=True):
                shape = (size, *value.type.shape) if flag else value.type.shape
                own = builder.input(value.name, Type(shape, value.type.dtype))
                known[value] = Known(own, flag)
            self.walk(body.nodes, known, size)
            for value, keeps in zip(body.outputs, wanted, strict=True):
                found = known[value]
                y = found.tensor if found.stacked else repeated(self, found.tensor, size)
                results.append(cast(Tensor, y) if keeps else emit(ops.Sum((0,)), cast(Tensor, y)))
        return builder.graph(results)

    def one_by_one(
        self, op: Operation, inputs: Tensors, stacked: Sequence[bool], size: int
    ) -> tuple[Tensor, ...]:
        """Return the outputs of `op` for one sample after another, in a loop."""
        own = [x for x, s in zip(inputs, stacked, strict=True) if s]

        def step(_: Any, elements: Sequence[Tensor]) -> tuple[Any, ...]:
            mine = iter(elements)
            read = [next(mine) if s else x for x, s in zip(inputs, stacked, strict=True)]
            return (), self.emit_all(op, *read)

        results: tuple[Tensor, ...] = functions.scan(step, (), tuple(own), length=size)[1]
        return results
