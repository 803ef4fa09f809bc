"""Explain a graph: which nodes share a kernel and why, and which pass removed a node.

Fusion is a function of the graph before it, which a program keeps, so its reasons are found by
running it once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import cast

from graphc.base.cached import cached_property
from graphc.inspect.explanation import Reason
from graphc.inspect.subject import Subject
from graphc.ir import Graph, Node, Value
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import TakeGrad
from graphc.ops.loops.scan import Scan, bodies
from graphc.passes import pipeline
from graphc.passes.fuse.places import ELSEWHERE, NO_RULE, OF_RULE, RESHAPED, TAKEN, misfit
from graphc.passes.rewriting.naming import principal
from graphc.passes.rewriting.reasons import Reasons, reasons

PASSES = dict((*pipeline.BEFORE_GRADIENT, *pipeline.AFTER_GRADIENT))
TEMPLATES = {
    "pointwise": "each element by itself",
    "reduce": "reductions over rows, with what is computed of each element beside them",
    "contract": "sums of products, with an epilogue while they are in registers",
    "group": "the blocks of several contractions in one launch",
    "relayout": "the same elements in another order in memory",
}

_EXCHANGED = {
    "all_reduce": "adds what all ranks have, in the order of the ranks",
    "reduce_scatter": "adds this rank's slice of what all ranks have, in the order of the ranks",
    "all_to_all": "receives what each rank has for this one",
    "all_gather": "collects the slices of all ranks",
    "send": "sends an array to another rank",
    "receive": "receives an array from another rank",
    "share": "gives all ranks an array of one of them",
}
"""What nodes that communicate do."""
_ALL_ROWS = (
    "its update writes all {} rows, though a step reads {} at most: rows without a gradient change "
    "too by momentum, weight decay, ema= and means that decay. optim.SparseAdam, and SGD and "
    "Adagrad without these, write the rows that a step reads"
)


class GraphReader:
    """The graphs of a program: who makes and reads each value, before and after fusion."""

    def __init__(self, program: Subject) -> None:
        self.program = program
        self.graph = list(program.stages.values())[-1]
        self.nodes = [n for g in (self.graph, *bodies(self.graph)) for n in g.nodes]
        self.made: dict[str, Node] = {v.name: n for n in self.nodes for v in n.outputs}
        """The kernel, loop or reshape that makes a value of the last graph."""
        self.inner: dict[str, tuple[KernelNode, Node]] = {}
        """For values inside kernels: the kernel and the node that makes it."""
        for kernel in (n for n in self.nodes if isinstance(n, KernelNode)):
            for part in kernel.leaves:
                self.inner.update((v.name, (kernel, part)) for v in part.outputs)
        self.readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                self.readers.setdefault(value.name, []).append(node)

    @cached_property
    def makers(self) -> list[dict[str, Node | Value]]:
        """Who makes each value, in every stage."""
        return [_makers(graph) for graph in self.program.stages.values()]

    @cached_property
    def reasons(self) -> Reasons:
        """What the fusions of this program say."""
        with reasons() as found:
            for (_, before), (name, _) in pairwise(self.program.stages.items()):
                if name.startswith("fuse_"):
                    PASSES[name](before, self.program.target)
        return found

    def what(self, node: Node) -> Reason:
        """What a node of the last graph is."""
        if isinstance(node, KernelNode):
            ops = ", ".join(dict.fromkeys(n.op.name for n in node.leaves))
            does = TEMPLATES.get(node.op.template, "an op with a template of its own")
            return Reason("what", f"{node.op.template}, {does}: {ops}")
        if isinstance(node.op, Scan):
            text = f"a loop of {node.op.length} iterations over {len(node.op.body.nodes)} nodes"
            return Reason("what", text)
        if node.op.name == "relayout":
            (source,), readers = node.inputs, self.readers.get(node.output.name, ())
            names = " and ".join(map(called, readers)) or "the call's results"
            text = f"converts {source.type} to {node.output.type}, for {names}"
            return Reason("what", f'{text}; compile(disable="layout") keeps all row-major')
        if node.op.communicates:
            return Reason("what", _EXCHANGED[node.op.name])
        return Reason("what", "a reshape that moves nothing: another name for the same bytes")

    def fused(self, kernel: KernelNode) -> Iterator[Reason]:
        """What shares a kernel, and why."""
        nodes = kernel.leaves
        main = principal(nodes)
        for node in nodes:
            yield Reason("fused", self._why(node, main, len(nodes)), title(node))

    def _why(self, node: Node, main: Node, count: int) -> str:
        if why := self.reasons.joined.get(node.outputs[0].name):
            return why
        if node.is_free:
            return "it costs nothing where it is read, so each kernel that does has its own"
        if node is main:
            return "the kernel is built around it" if count > 1 else "it is the whole kernel"
        return "the others read what it makes at the same places, from registers"

    def separations(self, node: Node) -> Iterator[Reason]:
        """Return the rule that separates a node from each kernel beside it."""
        for value, inner in self._inputs(node):
            for source in self._sources(value):
                rule = self._rule(source, node, inner)
                yield Reason("apart", f"which makes %{inner.name}: {rule}", called(source))
        for value in node.outputs:
            for reader in self._reached(value):
                for outer, inner in self._inputs(reader):
                    if any(source is node for source in self._sources(outer)):
                        rule = self._rule(node, reader, inner)
                        yield Reason("apart", f"which reads %{inner.name}: {rule}", called(reader))

    def rows(self, name: str) -> Iterator[Reason]:
        """Why an update writes all rows of the state of this name, of which lookups read few."""
        for old, new in self.graph.updates:
            updated = self.made.get(new.name) if old.name == name else None
            for value in updated.inputs if updated else ():
                for source in self._sources(value):
                    lookups = [n for n in _leaves(source) if isinstance(n.op, TakeGrad)]
                    count = sum(n.inputs[0].type.size for n in lookups)
                    if lookups and value.type.shape == old.type.shape and count < old.type.shape[0]:
                        yield Reason("memory", _ALL_ROWS.format(old.type.shape[0], count))

    def _inputs(self, node: Node) -> Iterator[tuple[Value, Value]]:
        """What a node reads, and what its body calls it."""
        own = node.body.inputs if isinstance(node, KernelNode) else node.inputs
        yield from dict.fromkeys(zip(node.inputs, own, strict=True))

    def _sources(self, value: Value) -> Iterator[Node]:
        """The kernel or loop that makes a value, behind reshapes."""
        node = self.made.get(value.name)
        while node is not None and node.op.name == "reshape":
            node = self.made.get(node.inputs[0].name)
        if node is not None:
            yield node

    def _reached(self, value: Value) -> Iterator[Node]:
        """The kernels and loops that read a value, also behind reshapes."""
        for node in self.readers.get(value.name, ()):
            if node.op.name == "reshape":
                yield from self._reached(node.output)
            else:
                yield node

    def _rule(self, source: Node, reader: Node, value: Value) -> str:
        """The rule that keeps `reader` from the kernel `source`, of whom it reads `value`."""
        if isinstance(source.op, Scan) or isinstance(reader.op, Scan):
            return "a loop is a step of its own, which takes and gives what lies in memory"
        if "reshape" in (source.op.name, reader.op.name):
            return RESHAPED
        if source.op.communicates or reader.op.communicates:
            return "what ranks exchange lies in memory"
        if not isinstance(source, KernelNode) or not isinstance(reader, KernelNode):
            return "a conversion of layouts is a kernel of its own, chosen after fusion"
        parts = [n for n in reader.leaves if value in n.inputs]
        said = [
            r for n in parts for r in self.reasons.apart.get((value.name, n.outputs[0].name), ())
        ]
        if said:
            return "; ".join(dict.fromkeys(said))
        if source.where.of_update_rule != reader.where.of_update_rule:
            return OF_RULE
        if any(n.op.moves for n in parts):
            return ELSEWHERE
        shape = value.type.shape
        kinds = reader.op.template, source.op.template
        other = TAKEN if kinds == ("contract", "contract") else NO_RULE.format(*kinds)
        return next((rule for n in parts if (rule := misfit(n, shape))), other)

    def removed(self, name: str) -> tuple[Node | None, list[Reason]] | None:
        """Return the node that made a value, and the pass that removed it.

        It returns None if no stage has the value.
        """
        last, node = -1, cast("Node | None", None)
        stages = list(self.program.stages.items())
        for number, makers in enumerate(self.makers):
            found = makers.get(name)
            if found is not None:
                last, node = number, found if isinstance(found, Node) else node
        if last < 0:
            return None
        stage = stages[last + 1][0] if last + 1 < len(stages) else stages[last][0]
        function = PASSES.get(stage)
        does = (
            " ".join((function.__doc__ or "").split()).partition(": ")[0].rstrip(".")
            if function
            else ""
        )
        text = f"the pass {stage} left it out"
        text += f", which gives {does[0].lower()}{does[1:]}" if does else ""
        if stage in pipeline.OPTIONAL:
            text += f'; compile(disable="{stage}") keeps it'
        return node, [Reason("gone", text)]


def _makers(graph: Graph) -> dict[str, Node | Value]:
    """Return for each value's name the node that makes it, in `graph` or its bodies.

    For an input or state it is the value itself.
    """
    found: dict[str, Node | Value] = {}
    for inner in (graph, *bodies(graph)):
        for node in inner.nodes:
            parts = node.leaves if isinstance(node, KernelNode) else ()
            for maker in (node, *parts):
                for value in maker.outputs:
                    found.setdefault(value.name, maker)
        for value in (*inner.inputs, *inner.state):
            found.setdefault(value.name, value)
    return found


def called(node: Node) -> str:
    """The name of a node of the last graph: its kernel's, else that of what it makes."""
    return node.op.kernel if isinstance(node, KernelNode) else title(node)


def title(node: Node) -> str:
    """Such as `add %fc1.add (net.py:3)`."""
    lines = f" ({node.where.lines[0]})" if node.where.lines else ""
    return f"{node.op.name} %{node.outputs[0].name}{lines}"


def _leaves(node: Node) -> tuple[Node, ...]:
    return tuple(node.leaves) if isinstance(node, KernelNode) else ()
