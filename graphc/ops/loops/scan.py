"""A loop whose body is a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir import Graph, Layout, Node, Type, Value, verify
from graphc.ir.interpret import evaluate
from graphc.ir.vocabulary import Tensor, Tensors, Vocabulary
from graphc.ops.axes import Axes, repeated
from graphc.ops.base import Array, Flags, Op
from graphc.ops.loops.samples import guarded_samples

_T = TypeVar("_T")
Pairs = tuple[tuple[Value, Value], ...]
"""(a value of a loop's body, the value outside that it is of)."""


@dataclass(frozen=True)
class Scan(Op):
    """`body` for t = 0 .. length - 1, or downwards if `reverse`.

    The inputs are constants, then `carries` initial carries, then `xs` scanned values with a first
    axis of `length`; those of the body are the constants, the carries as the iteration before left
    them, and element t of each scanned value. The body's outputs are the new carries, then what is
    stacked: the node's outputs are the last carries, then the stacks, in which iteration t wrote
    element t. The body has no state, and the names of its values are unique in the whole program.

    The last output of a `guarded` body is one of its inputs, a bool []. An iteration that finds it
    false is skipped: it leaves the carries as they are and zeros in its elements of the stacks.
    What a skipped iteration would compute is never read.

    With `recompute`, what an iteration makes of its elements is made in it, and its gradient makes
    it again: nothing but carries and stacks is ever there for all iterations.

    A carry may be a value of any type; new and old have the same. Layouts: element t of a scanned
    value or stack has the stack's layout with its axis one lower, never along the first axis.
    """

    body: Graph
    length: int
    carries: int
    xs: int
    reverse: bool = False
    recompute: bool = False
    guarded: bool = False
    name: ClassVar[str] = "scan"
    widens: ClassVar[bool] = False
    is_planned: ClassVar[bool] = True
    is_loop: ClassVar[bool] = True

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        constants, carries, elements = self.split_inputs([v.type for v in self.body.inputs])
        expected = [*constants, *carries, *(stacked(t, self.length) for t in elements)]
        if list(inputs) != expected:
            raise GraphError(
                f"scan: its body expects {' and '.join(map(str, expected)) or 'nothing'}, "
                f"got {' and '.join(map(str, inputs)) or 'nothing'}"
            )
        verify(self.body)
        for before, after in zip(self.old_carries, self.new_carries, strict=True):
            if before.type != after.type:
                raise GraphError(
                    f"scan: the carry %{before.name} begins as {before.type}, "
                    f"an iteration makes it {after.type}"
                )
        if self.guard is not None:
            if self.guard.type != Type((), "bool"):
                raise GraphError(f"scan: its guard is a bool[], got {self.guard.type}")
            if self.guard not in self.body.inputs:
                raise GraphError(f"scan: its guard is an input of the body, got {self.guard}")
        ends, stacks = self.split_outputs([v.type for v in self.results])
        return (*ends, *(stacked(t, self.length) for t in stacks))

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        constants, carries, scanned = self.split_inputs(inputs)
        stacks: list[list[Array]] = [[] for _ in self.stacks]
        for t in reversed(range(self.length)) if self.reverse else range(self.length):
            results, _ = evaluate(self.body, (*constants, *carries, *(x[t] for x in scanned)))
            made: Sequence[Array]
            if self.guarded and not results[-1]:
                made = [np.zeros(v.type.shape, v.type.numpy_dtype) for v in self.stacks]
            else:
                carries, made = self.split_outputs(results[: len(self.results)])
            for stack, element in zip(stacks, made, strict=True):
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
        begin = [
            repeated(f, x, size) if flag and not own else x
            for x, flag, own in zip(inputs, flags, stacked, strict=True)
        ]
        constants, initial, scanned = self.split_inputs(begin)
        _, carried, moving = self.split_inputs(flags)
        xs = tuple(f.moved(x, 0, 1) if flag else x for x, flag in zip(scanned, moving, strict=True))
        if self.guard is not None and flags[self.body.inputs.index(self.guard)]:
            ends, ys = guarded_samples(f, self, [*constants, *initial, *xs], flags, size)
            return [*ends, *(f.moved(y, 1, 0) for y in ys)]
        stacks: list[bool] = []

        def step(carries: Tensors, elements: Tensors) -> tuple[Tensors, Tensors, Tensor | None]:
            results = f.samples(self.body, [*constants, *carries, *elements], flags, size)
            ends, made = self.split_outputs(results[: len(self.results)])
            new = [
                repeated(f, x, size) if flag and not own else x
                for (x, own), flag in zip(ends, carried, strict=True)
            ]
            stacks.extend(own for _, own in made)
            guard = results[-1][0] if self.guarded else None
            return tuple(new), tuple(x for x, _ in made), guard

        how = self.reverse, self.length, self.recompute
        ends, ys = f.guarded_scan(step, tuple(initial), xs, *how)
        wide = [x if flag else repeated(f, x, size) for x, flag in zip(ends, carried, strict=True)]
        pairs = zip(ys, stacks, strict=True)
        return [*wide, *(f.moved(y, 1, 0) if s else repeated(f, y, size) for y, s in pairs)]

    def _varying(self, stacked: Flags) -> list[bool]:
        """Return which of the body's inputs differ between samples.

        A carry does if an iteration makes it differ, and every carry if the guard does.
        """
        constants, carries, elements = self.split_inputs(list(stacked))
        while True:
            flags = [*constants, *carries, *elements]
            differ = varying(self.body, flags)
            every = self.guard is not None and self.guard in differ
            pairs = zip(carries, self.new_carries, strict=True)
            before, carries = carries, [flag or every or new in differ for flag, new in pairs]
            if carries == before:
                return flags

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

    def split_inputs(self, items: Sequence[_T]) -> tuple[Sequence[_T], Sequence[_T], Sequence[_T]]:
        """One item for each input: those of the constants, of the carries, of what is scanned."""
        last = len(items) - self.xs
        first = last - self.carries
        return items[:first], items[first:last], items[last:]

    def split_outputs(self, items: Sequence[_T]) -> tuple[Sequence[_T], Sequence[_T]]:
        """One item for each output: those of the carries, of the stacks."""
        return items[: self.carries], items[self.carries :]

    @property
    def results(self) -> tuple[Value, ...]:
        """The body's outputs without the guard."""
        return self.body.outputs[:-1] if self.guarded else self.body.outputs

    @property
    def guard(self) -> Value | None:
        """The value of the body that says whether an iteration runs."""
        return self.body.outputs[-1] if self.guarded else None

    @property
    def constants(self) -> Sequence[Value]:
        """The body's inputs that are the same in every iteration."""
        return self.split_inputs(self.body.inputs)[0]

    @property
    def old_carries(self) -> Sequence[Value]:
        """The body's inputs that the iteration before left."""
        return self.split_inputs(self.body.inputs)[1]

    @property
    def elements(self) -> Sequence[Value]:
        """The body's inputs that are elements of scanned values."""
        return self.split_inputs(self.body.inputs)[2]

    @property
    def new_carries(self) -> Sequence[Value]:
        """The body's outputs that the next iteration reads."""
        return self.split_outputs(self.results)[0]

    @property
    def stacks(self) -> Sequence[Value]:
        """The body's outputs that are stacked."""
        return self.split_outputs(self.results)[1]

    @staticmethod
    def bind(node: Node) -> BoundScan:
        """What a scan reads and makes, by name."""
        op = node.op
        assert isinstance(op, Scan), f"{op.name} is no scan"
        constants, old, elements = op.split_inputs(
            list(zip(op.body.inputs, node.inputs, strict=True))
        )
        new, stacks = op.split_outputs(list(zip(op.results, node.outputs, strict=True)))
        pairs = zip(old, new, strict=True)
        carries = tuple(Carry(b, a, first, last) for (b, first), (a, last) in pairs)
        return BoundScan(node, op, tuple(constants), carries, tuple(elements), tuple(stacks))


@dataclass(frozen=True)
class Carry:
    """A value that each iteration hands to the next.

    It has the body's values before and after an iteration, and outside of the loop the first and
    the last value.
    """

    old: Value
    new: Value
    initial: Value
    last: Value


@dataclass(frozen=True)
class BoundScan:
    """A scan's node with what it reads and makes by name; `rebuilt` makes a node of it again."""

    node: Node
    op: Scan
    constants: Pairs
    carries: tuple[Carry, ...]
    scanned: Pairs
    stacks: Pairs

    @property
    def guards(self) -> tuple[Value, ...]:
        """The guard, if there is one."""
        return () if self.op.guard is None else (self.op.guard,)

    def rebuilt(self, nodes: Iterable[Node] | None = None) -> Node:
        """Return the node with these constants, carries, scanned values and stacks.

        Its body has `nodes`, if given.
        """
        carries = self.carries
        inputs = (*self.constants, *((c.old, c.initial) for c in carries), *self.scanned)
        outputs = (*((c.new, c.last) for c in carries), *self.stacks)
        body = replace(
            self.op.body,
            inputs=tuple(inner for inner, _ in inputs),
            nodes=self.op.body.nodes if nodes is None else tuple(nodes),
            outputs=(*(inner for inner, _ in outputs), *self.guards),
        )
        return replace(
            self.node,
            op=replace(self.op, body=body, carries=len(carries), xs=len(self.scanned)),
            inputs=tuple(outer for _, outer in inputs),
            outputs=tuple(outer for _, outer in outputs),
        )


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
