"""The mark of a function with a gradient of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from graphc.base.errors import GraphError
from graphc.ir import Graph, Node, Type, Value
from graphc.ir.rewrite import drop_dead, substitute
from graphc.ir.vocabulary import Tensors, Vocabulary
from graphc.ops.axes import repeated
from graphc.ops.base import Array, Flags, Op
from graphc.ops.loops.scan import Scan

_T = TypeVar("_T")


@dataclass(frozen=True)
class CustomGradient(Op):
    """The last `results` inputs; `body` says what the gradients of some other inputs are.

    The inputs are residuals, then `outside`, then the arguments that have a gradient, then the
    results. The body's inputs are the residuals and the gradients of the results, its outputs the
    gradients of the arguments. `outside` are values that the results were computed from and that
    are no arguments: their gradient is asked for in vain.

    Differentiation alone uses the mark; `without_marks` removes it afterwards.
    """

    body: Graph
    outside: int
    results: int
    name: ClassVar[str] = "custom_gradient"
    widens: ClassVar[bool] = False

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        residuals, _, arguments, results = self.split(inputs)
        expected = [*residuals, *results]
        got = [v.type for v in self.body.inputs]
        if got != expected:
            raise GraphError(
                f"custom_gradient: its body takes {' and '.join(map(str, got)) or 'nothing'}, "
                f"expected {' and '.join(map(str, expected)) or 'nothing'}"
            )
        made = [v.type for v in self.body.outputs]
        if made != list(arguments):
            raise GraphError(
                f"custom_gradient: its body returns {' and '.join(map(str, made)) or 'nothing'}, "
                f"expected {' and '.join(map(str, arguments)) or 'nothing'}"
            )
        return tuple(results)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return tuple(self.split(inputs)[3])

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        """The mark of all samples, whose body is that of one for each of them.

        An argument that the samples share gets the sum of their gradients.
        """
        residuals, _, arguments, _ = self.split(stacked)
        results = [True] * self.results
        body = f.batched_body(self.body, [*residuals, *results], arguments, size)
        first = len(inputs) - self.results
        wide = [x if s else repeated(f, x, size) for x, s in zip(inputs, stacked, strict=True)]
        return f.emit_all(replace(self, body=body), *inputs[:first], *wide[first:])

    def split(
        self, items: Sequence[_T]
    ) -> tuple[Sequence[_T], Sequence[_T], Sequence[_T], Sequence[_T]]:
        """One item for each input: those of the residuals, outside, the arguments, the results."""
        results = len(items) - self.results
        arguments = results - len(self.body.outputs)
        outside = arguments - self.outside
        return items[:outside], items[outside:arguments], items[arguments:results], items[results:]


def without_marks(graph: Graph) -> Graph:
    """Return a graph, and the bodies of its scans, without the marks of custom gradients.

    What the marks alone read goes with them.
    """
    substitution: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node.op, CustomGradient):
            results = node.op.split(node.inputs)[3]
            substitution.update(zip(node.outputs, results, strict=True))
        elif isinstance(node.op, Scan):
            body = without_marks(node.op.body)
            same = body is node.op.body
            nodes.append(node if same else replace(node, op=replace(node.op, body=body)))
        else:
            nodes.append(node)
    if tuple(nodes) == graph.nodes:
        return graph
    return drop_dead(substitute(graph, nodes, substitution))
