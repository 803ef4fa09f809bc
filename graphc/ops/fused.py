"""The ops of fused nodes, whose bodies are the graphs that they replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphc.ir import Graph, Node, Type
from graphc.ops.base import Array, Op


@dataclass(frozen=True)
class Fused(Op):
    """One kernel; its body is the graph that it replaced.

    `body.inputs` stand for the node's inputs and `body.outputs` for its outputs, in order. The body
    has no state. Layouts matter only on its inputs and outputs. In the body of each template:

        contract   one Contraction of body inputs, then pointwise ops over its output's index
                   space; other operands are body inputs too, all through affine views. Slices
                   into equal sections of the output may be read by pointwise ops of the shape of
                   one. Reductions of that index space along all axes except the channels, or along
                   the last, may follow, and pointwise ops (`fuse_columns`, `fuse_rows`).
        reduce     Reductions of one input shape over one set of axes, with pointwise ops before
                   and after: softmax, normalization, activation backward with its bias gradient.
        pointwise  no reduction. Outputs of several shapes make several parts of one launch.
        own        one op with a template of its own, which reads the body's inputs and constants
                   through views; prefix ops and sorts also read results of pointwise ops.
        group      kernels with contractions that do not read from each other (`fuse_products`).

    Outputs of contract and pointwise bodies may be concats of values of one shape. In reduce and
    pointwise bodies Window, Index and affine View ops may read the body's inputs.
    """

    kernel: str
    body: Graph
    note: str = ""
    """Why it does not hold more than it does, where that may surprise."""
    name: ClassVar[str] = "kernel"
    widens: ClassVar[bool] = False
    is_planned: ClassVar[bool] = True

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        return tuple(v.type for v in self.body.outputs)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        values = dict(zip(self.body.inputs, inputs, strict=True))
        for node in self.body.nodes:
            results = node.op.evaluate(*(values[v] for v in node.inputs))
            values.update(zip(node.outputs, results, strict=True))
        return tuple(values[v] for v in self.body.outputs)

    @property
    def template(self) -> str:
        """The template of the body: an op's own, group, contract, reduce or pointwise."""
        if any(isinstance(n, KernelNode) for n in self.body.nodes):
            return "group"
        if own := next((n.op.own_template for n in self.body.nodes if n.op.own_template), ""):
            return own
        if any(n.op.contracts for n in self.body.nodes):
            return "contract"
        if any(n.op.reduced_axes is not None for n in self.body.nodes):
            return "reduce"
        return "pointwise"


@dataclass(frozen=True)
class KernelNode(Node):
    """A node that is one kernel: what fusion makes of others, and every `Fused` stands in."""

    op: Fused

    @property
    def body(self) -> Graph:
        """What the kernel computes."""
        return self.op.body

    @property
    def leaves(self) -> list[Node]:
        """The nodes of the body, those of the kernels of a group in place of these."""
        found: list[Node] = []
        for node in self.body.nodes:
            found += node.leaves if isinstance(node, KernelNode) else [node]
        return found


def kernels_in(graph: Graph) -> list[KernelNode]:
    """The nodes of a graph that are kernels."""
    return [node for node in graph.nodes if isinstance(node, KernelNode)]
