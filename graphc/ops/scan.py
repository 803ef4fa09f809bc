"""A loop whose body is a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from graphc.errors import GraphError
from graphc.interpret import evaluate
from graphc.ir import Graph, Layout, Type, Value, verify
from graphc.ir.vocabulary import Tensors, Vocabulary
from graphc.ops.axes import Axes, repeated
from graphc.ops.base import Array, Flags, Op


@dataclass(frozen=True)
class Scan(Op):
    """`body` for t = 0 .. length - 1, or downwards if `reverse`.

    The inputs are constants, then `carries` initial carries, then `xs` scanned values with a first
    axis of `length`; those of the body are the constants, the carries as the iteration before left
    them, and element t of each scanned value. The body's outputs are the new carries, then what is
    stacked: the node's outputs are the last carries, then the stacks, in which iteration t wrote
    element t. The body has no state, and the names of its values are unique in the whole program.

    A carry may be a value of any type; new and old have the same. Layouts: element t of a scanned
    value or stack has the stack's layout with its axis one lower, never along the first axis.
    """

    body: Graph
    length: int
    carries: int
    xs: int
    reverse: bool = False
    name: ClassVar[str] = "scan"
    widens: ClassVar[bool] = False

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        wanted = [v.type for v in self.body.inputs]
        first = len(wanted) - self.xs
        expected = [*wanted[:first], *(stacked(t, self.length) for t in wanted[first:])]
        if list(inputs) != expected:
            raise GraphError(
                f"scan: its body expects {' and '.join(map(str, expected)) or 'nothing'}, "
                f"got {' and '.join(map(str, inputs)) or 'nothing'}"
            )
        verify(self.body)
        outputs = [v.type for v in self.body.outputs]
        for before, after in zip(self.old_carries, self.new_carries, strict=True):
            if before.type != after.type:
                raise GraphError(
                    f"scan: the carry %{before.name} begins as {before.type}, "
                    f"an iteration makes it {after.type}"
                )
        stacks = (stacked(t, self.length) for t in outputs[self.carries :])
        return (*outputs[: self.carries], *stacks)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        first = self.constants
        constants, carries = inputs[:first], inputs[first : first + self.carries]
        scanned = inputs[first + self.carries :]
        stacks: list[list[Array]] = [[] for _ in self.stacks]
        for t in reversed(range(self.length)) if self.reverse else range(self.length):
            results, _ = evaluate(self.body, (*constants, *carries, *(x[t] for x in scanned)))
            carries = results[: self.carries]
            for stack, element in zip(stacks, results[self.carries :], strict=True):
                stack.append(element)
        ys = (np.stack(stack[::-1] if self.reverse else stack) for stack in stacks)
        if not self.length:
            ys = (np.zeros((0, *v.type.shape), v.type.numpy_dtype) for v in self.stacks)
        return (*carries, *ys)

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        """Nothing is known: what an iteration does to axes its body says."""
        return super().axis_map(*inputs)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        """The same loop over iterations of all samples."""
        flags = self._varying(stacked)
        first, last = self.constants, self.constants + self.carries
        begin = [
            repeated(f, x, size) if flag and not own else x
            for x, flag, own in zip(inputs, flags, stacked, strict=True)
        ]
        stacks: list[bool] = []

        def step(carries: Tensors, elements: Tensors) -> tuple[Tensors, Tensors]:
            read = [*begin[:first], *carries, *elements]
            results = f.samples(self.body, read, flags, size)
            new = [
                repeated(f, x, size) if flag and not own else x
                for (x, own), flag in zip(results, flags[first:last], strict=False)
            ]
            stacks.extend(own for _, own in results[self.carries :])
            return tuple(new), tuple(x for x, _ in results[self.carries :])

        scanned = tuple(
            f.moved(x, 0, 1) if flag else x
            for x, flag in zip(begin[last:], flags[last:], strict=True)
        )
        ends, ys = f.scan(step, tuple(begin[first:last]), scanned, self.reverse, self.length)
        wide = [
            x if flag else repeated(f, x, size)
            for x, flag in zip(ends, flags[first:last], strict=True)
        ]
        pairs = zip(ys, stacks, strict=True)
        return [*wide, *(f.moved(y, 1, 0) if s else repeated(f, y, size) for y, s in pairs)]

    def _varying(self, stacked: Flags) -> list[bool]:
        """Which of the body's inputs differ from sample to sample: a carry also where an iteration
        makes it differ."""
        flags, first = list(stacked), self.constants
        while True:
            differ = varying(self.body, flags)
            new = [v in differ for v in self.new_carries]
            before = flags[first : first + self.carries]
            if all(b or not n for b, n in zip(before, new, strict=True)):
                return flags
            flags[first : first + self.carries] = [b or n for b, n in zip(before, new, strict=True)]

    @property
    def draws(self) -> bool:
        return any(node.op.draws for node in self.body.nodes)

    def renamed(self, fresh: Callable[[str], str]) -> Scan:
        """The same loop, every value of its body under a new name that `fresh` makes of the old."""
        new: dict[Value, Value] = {}

        def rename(values: Sequence[Value]) -> tuple[Value, ...]:
            for value in values:
                if value not in new:
                    new[value] = replace(value, name=fresh(value.name))
            return tuple(new[v] for v in values)

        inputs = rename(self.body.inputs)
        nodes = tuple(
            replace(
                node,
                op=node.op.renamed(fresh) if isinstance(node.op, Scan) else node.op,
                inputs=rename(node.inputs),
                outputs=rename(node.outputs),
            )
            for node in self.body.nodes
        )
        body = replace(self.body, inputs=inputs, nodes=nodes, outputs=rename(self.body.outputs))
        return replace(self, body=body)

    @property
    def constants(self) -> int:
        """How many inputs every iteration reads whole."""
        return len(self.body.inputs) - self.carries - self.xs

    @property
    def old_carries(self) -> tuple[Value, ...]:
        """The body's inputs that the iteration before left."""
        return self.body.inputs[self.constants : self.constants + self.carries]

    @property
    def new_carries(self) -> tuple[Value, ...]:
        """The body's outputs that the next iteration reads."""
        return self.body.outputs[: self.carries]

    @property
    def elements(self) -> tuple[Value, ...]:
        """The body's inputs that are elements of scanned values."""
        return self.body.inputs[self.constants + self.carries :]

    @property
    def stacks(self) -> tuple[Value, ...]:
        """The body's outputs that are stacked."""
        return self.body.outputs[self.carries :]


def varying(graph: Graph, stacked: Flags) -> set[Value]:
    """The values that differ from sample to sample where these inputs do."""
    differ = {v for v, flag in zip(graph.inputs, stacked, strict=True) if flag}
    for node in graph.nodes:
        if node.op.draws or any(v in differ for v in node.inputs):
            differ.update(node.outputs)
    return differ


def stacked(element: Type, length: int) -> Type:
    """The type of `length` elements, one behind the other."""
    layout = element.layout
    if layout.axis is not None:
        layout = Layout(layout.axis + 1, layout.width)
    return Type((length, *element.shape), element.dtype, layout)


def bodies(graph: Graph) -> Iterator[Graph]:
    """The bodies of the graph's scans, outermost first."""
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            yield node.op.body
            yield from bodies(node.op.body)
