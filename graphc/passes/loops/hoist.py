"""Move out of scans what does not depend on their carries.

Before the loop: contractions and reductions of constants and elements alone, for all iterations at
once (x W of a recurrent layer), with the pointwise ops behind them; what depends on constants alone
is computed once. After the loop: what only leads to stacks, such as the gradients of the elements,
and sums that are carried from iteration to iteration and read nowhere else, such as the gradients
of the weights: their terms are stacked, and one contraction adds them up. (Appleyard, Kocisky and
Blunsom, Optimizing Performance of Recurrent Neural Networks on GPUs, 2016, sections 3.1 and 3.2,
do this by hand.)

Out of a scan that is to `recompute` goes only what depends on constants alone, and out of a guarded
one nothing, since its iterations may be skipped.

Each scan is rebuilt once, the innermost first, and what moves leaves its body: the number of nodes
in loops falls with every move.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from graphc.base.target import Target
from graphc.gradients.vocabulary import Known, Vocabulary
from graphc.ir import Graph, Names, Node, Value
from graphc.ir.rewrite import drop_dead, resolve, substitute, topological
from graphc.ops.loops.bodies import unique_names, values_of
from graphc.ops.loops.scan import BoundScan, Scan, bodies, stacked
from graphc.ops.reduction import Sum
from graphc.ops.view import BroadcastTo
from graphc.passes.loops.over_time import Totals, can_stack, summed_axes
from graphc.passes.loops.split_concats import split_concats
from graphc.passes.rewriting.measure import must_fall
from graphc.passes.simplify.prune_scans import prune_scans
from graphc.trace import Builder, Tensor


def hoist(graph: Graph, target: Target) -> Graph:
    """Move work out of scans, nested ones first."""
    if next(bodies(graph), None) is None:
        return graph
    names = Names(v.name for g in (graph, *bodies(graph)) for v in values_of(g))
    return unique_names(_hoist(graph, names))


def _hoist(graph: Graph, names: Names) -> Graph:
    graph = prune_scans(graph)
    builder = Builder(graph.name)
    builder.names = names
    substitution: dict[Value, Value] = {}
    origin = {v: n for n in graph.nodes for v in n.outputs}
    for node in graph.nodes:
        node = replace(node, inputs=tuple(resolve(v, substitution) for v in node.inputs))
        if isinstance(node.op, Scan) and node.op.length:
            op = replace(node.op, body=_hoist(node.op.body, names))
            node = replace(node, op=op)
            if op.guarded:
                builder.nodes.append(node)
                continue
            node = _with_views(node, origin, builder)
            node = split_concats(node, builder)
            with builder.building(), builder.at(node.where):
                _Loop(builder, node, substitution).rebuild()
        else:
            builder.nodes.append(node)
    hoisted = substitute(graph, topological(builder.nodes), substitution)
    return prune_scans(drop_dead(hoisted))


def _with_views(node: Node, origin: dict[Value, Node], builder: Builder) -> Node:
    """Move views and small constants inside the scan's body, where they cost nothing."""
    loop = Scan.bind(node)
    waiting, constants, inside = list(loop.constants), [], list[Node]()
    while waiting:
        inner, outer = waiting.pop(0)
        source = origin.get(outer)
        if source is None or not source.is_free or len(source.outputs) != 1:
            constants.append((inner, outer))
            continue
        read = tuple(
            Value(builder.fresh(f"{inner.name}.{i}"), v.type) for i, v in enumerate(source.inputs)
        )
        inside.insert(0, replace(source, inputs=read, outputs=(inner,)))
        waiting = [*zip(read, source.inputs, strict=True), *waiting]
    return replace(loop, constants=tuple(constants)).rebuilt((*inside, *loop.op.body.nodes))


class _Loop:
    """A scan that is being taken apart: what goes before it, into it and behind it."""

    def __init__(self, builder: Builder, node: Node, substitution: dict[Value, Value]) -> None:
        self.builder, self.node, self.loop = builder, node, Scan.bind(node)
        self.op, self.body = self.loop.op, self.loop.op.body
        self.f = Vocabulary()
        self.substitution = substitution
        self.producers = self.body.producers
        self.consumers = self.body.consumers
        self.constants, self.elements = dict(self.loop.constants), dict(self.loop.scanned)

    def rebuild(self) -> None:
        """Append the nodes before the scan, the scan, and the nodes behind it."""
        before = self.leading()
        known = self.compute_leading(before)
        sums = self.sums()
        after = self.trailing(before, sums)
        stacks = dict(self.loop.stacks)
        added = self.frontier(after, sums, known)
        inner = self.emit_scan(before, after, sums, stacks, added, known)
        self.compute_trailing(after, sums, stacks, {**known, **inner})

    def leading(self) -> set[int]:
        """The nodes that move before the loop, by identity."""
        known = {*self.constants, *self.elements}
        changing = set(self.elements)
        moved: set[int] = set()
        for node in self.body.nodes:
            if not known.issuperset(node.inputs) or not can_stack(node):
                if not node.inputs:
                    known.update(node.outputs)
                continue
            varies = any(v in changing for v in node.inputs)
            if varies and self.op.recompute:
                continue
            known.update(node.outputs)
            if varies:
                changing.update(node.outputs)
            if node.is_free:
                continue
            behind = node.op.pointwise and any(
                id(self.producers.get(v)) in moved
                and v in changing
                and v.type.size >= node.output.type.size
                for v in node.inputs
            )
            if not varies or behind or not node.op.pointwise:
                self._move(node, moved)
        return moved

    def _move(self, node: Node, moved: set[int]) -> None:
        """Add a node and all that it is computed from to `moved`.

        `moved` already holds the operands of its nodes.
        """
        waiting = [node]
        while waiting:
            node = waiting.pop()
            if id(node) not in moved:
                moved.add(id(node))
                waiting += [self.producers[v] for v in node.inputs if v in self.producers]

    def compute_leading(self, before: set[int]) -> dict[Value, Known]:
        """What is known outside of the body's values: constants, stacks, and the moved nodes'."""
        known = {v: Known(self.tensor(o), False) for v, o in self.constants.items()}
        known |= {v: Known(self.tensor(o), True) for v, o in self.elements.items()}
        self.compute([n for n in self.body.nodes if id(n) in before], known)
        return known

    def compute(self, nodes: Iterable[Node], known: dict[Value, Known]) -> None:
        for node in nodes:
            where = node.where if node.where.lines else self.node.where
            with self.builder.at(where):
                found = self.f.apply(node, known, self.op.length)
            known.update(zip(node.outputs, found, strict=True))

    def sums(self) -> dict[Value, Value]:
        """Carries that only add up: old carry -> the term of one iteration."""
        found: dict[Value, Value] = {}
        for carry in () if self.op.recompute else self.loop.carries:
            old, new = carry.old, carry.new
            node = self.producers.get(new)
            if node is None or not node.op.adds or old not in node.inputs:
                continue
            uses = self.body.outputs.count(old) + len(self.consumers.get(old, ()))
            alone = self.body.outputs.count(new) == 1 and not self.consumers.get(new)
            term = node.inputs[1 - node.inputs.index(old)]
            if uses == 1 and alone and term != old and term.type == old.type:
                if self.adds_up_outside(term):
                    found[old] = term
        return found

    def adds_up_outside(self, term: Value) -> bool:
        """Return whether summing `term` over time outside of the loop needs no stack of its own.

        It needs none if the term is a product or a sum over more than time, if something else reads
        the terms too, or if it is made of such terms.
        """
        waiting, seen = [term], {term}
        while waiting:
            value = waiting.pop()
            node = self.producers.get(value)
            if node is None or isinstance(node.op, Sum):
                continue
            added = node.op.adds and all(v.type == value.type for v in node.inputs)
            if added or node.op.moves_sums:
                waiting += [v for v in node.inputs if v not in seen]
                seen.update(node.inputs)
            elif node.op.contracts:
                wide = node.output.type.rank > 2 and any(v in self.constants for v in node.inputs)
                if wide or summed_axes(node) is None:
                    return False
            elif len(self.consumers[value]) <= 1:
                return False
        return True

    def trailing(self, before: set[int], sums: dict[Value, Value]) -> list[Node]:
        """The nodes that move behind the loop, in order."""
        if self.op.recompute:
            return []
        stays = {c.new for c in self.loop.carries if c.old not in sums}
        for node in reversed(self.body.nodes):
            if not can_stack(node) or any(v in stays for v in node.outputs):
                stays.update(node.inputs)
        adding = {self.producers[new] for new in self._totals(sums)}
        moved: dict[int, Node] = {}
        values: set[Value] = set()
        for node in self.body.nodes:
            free = not stays.intersection(node.outputs) and id(node) not in before
            if not free or node in adding or not can_stack(node):
                continue
            heavy = node.op.contracts or node.op.reduced_axes is not None
            if heavy or any(v in values for v in node.inputs):
                moved[id(node)] = node
                values.update(node.outputs)
        for node in reversed(self.body.nodes):  # views are read where their readers are
            readers = self.consumers.get(node.outputs[0], [])
            if node.is_free and readers and all(id(n) in moved for n in readers):
                if node.outputs[0] not in self.body.outputs:
                    moved[id(node)] = node
        for term in sums.values():
            self._views_of(term, moved, adding, stays)
        return [n for n in self.body.nodes if id(n) in moved]

    def _views_of(
        self, value: Value, moved: dict[int, Node], adding: set[Node], stays: set[Value]
    ) -> None:
        """Move the views that lead to `value`, a term of a sum, if nothing else reads them."""
        node = self.producers.get(value)
        if node is None or not node.op.moves or not can_stack(node) or value in stays:
            return
        if all(id(n) in moved or n in adding for n in self.consumers[value]):
            moved[id(node)] = node
            self._views_of(node.inputs[0], moved, adding, stays)

    def _totals(self, sums: dict[Value, Value]) -> list[Value]:
        return [c.new for c in self.loop.carries if c.old in sums]

    def frontier(
        self, after: list[Node], sums: dict[Value, Value], known: dict[Value, Known]
    ) -> list[Value]:
        """The values of the loop that what follows it reads and nobody knows outside."""
        inside = {v for n in after for v in n.outputs}
        read = dict.fromkeys(v for n in after for v in n.inputs)
        read.update(dict.fromkeys(sums.values()))
        return [v for v in read if v not in inside and v not in known]

    def emit_scan(
        self,
        before: set[int],
        after: list[Node],
        sums: dict[Value, Value],
        stacks: dict[Value, Value],
        added: list[Value],
        known: dict[Value, Known],
    ) -> dict[Value, Known]:
        """Append what is left of the scan; the stacks that it gives, by the body's value."""
        gone = {id(n) for n in after} | before
        gone |= {id(self.producers[v]) for v in self._totals(sums)}
        nodes = [n for n in self.body.nodes if id(n) not in gone]
        if gone:
            must_fall("hoist", "a move", len(self.body.nodes), len(nodes), self.node)
        read = {v for n in nodes for v in n.inputs}
        made = {v for n in nodes for v in n.outputs}
        carries = tuple(c for c in self.loop.carries if c.old not in sums)
        outputs = {v: o for v, o in stacks.items() if v in made or v in self.body.inputs}
        for value in added:
            if value not in outputs:
                name = self.builder.fresh(f"{value.name}.stack")
                outputs[value] = Value(name, stacked(value.type, self.op.length))
        read |= {c.new for c in carries} | set(outputs)
        moved = [v for n in self.body.nodes if id(n) in before for v in n.outputs if v in read]
        constants, scanned = [*self.loop.constants], [*self.loop.scanned]
        for value in moved:
            outer = known[value].tensor.value
            (scanned if known[value].stacked else constants).append((value, outer))
        pairs = (tuple(constants), carries, tuple(scanned), tuple(outputs.items()))
        self.builder.nodes.append(BoundScan(self.node, self.op, *pairs).rebuilt(nodes))
        return {v: Known(self.tensor(o), True) for v, o in outputs.items()}

    def compute_trailing(
        self,
        after: list[Node],
        sums: dict[Value, Value],
        stacks: dict[Value, Value],
        known: dict[Value, Known],
    ) -> None:
        self.compute(after, known)
        for value, output in stacks.items():
            if value in known and known[value].tensor.value != output:
                whole = known[value]
                tensor = whole.tensor
                if not whole.stacked:
                    shape = (self.op.length, *tensor.shape)
                    (tensor,) = self.builder.emit(BroadcastTo(shape), tensor)
                self.substitution[output] = tensor.value
        made = {v: n for n in after for v in n.outputs}
        totals = Totals(made, known, self.op.length)
        for carry in self.loop.carries:
            if carry.old in sums:
                term = sums[carry.old]
                where = self.producers[term].where if term in self.producers else None
                with self.builder.at(where or self.node.where):
                    total = totals.total(term)
                    if not self._is_zero(carry.initial):
                        total = self.tensor(carry.initial) + total
                self.substitution[carry.last] = total.value

    def _is_zero(self, value: Value) -> bool:
        producers = {v: n for n in self.builder.nodes for v in n.outputs}
        node = producers.get(value)
        while node is not None and node.op.moves:
            node = producers.get(node.inputs[0])
        array = node.op.array if node is not None else None
        return array is not None and not array.any()

    def tensor(self, value: Value) -> Tensor:
        return Tensor(value, self.builder)
