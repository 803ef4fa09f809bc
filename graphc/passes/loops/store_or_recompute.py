"""Choose which values a forward scan stores for its gradient, and which are recomputed.

The gradient of a scan computes every forward value again (see scan_gradient.py). Here each such
value is matched with the one in the forward scan that it repeats, and a minimum cut decides which
of them the forward scan stacks: a stack costs the bytes that are written and read, a repeated node
its arithmetic; contractions, reductions and what else is not pointwise are never repeated. (The cut
is the one that PyTorch's functorch makes between forward and backward graphs, in
`min_cut_rematerialization_partition`, with the cost of repeating beside that of storing.)

Stored values that belong to equal slices of one value, such as the gates of an LSTM, become one
stack in the form of the value that was sliced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphc.base.messages import decide
from graphc.base.target import Target
from graphc.ir import Graph, Names, Node, Value
from graphc.ir.rewrite import drop_dead, substitute, topological
from graphc.ops.join import Concat
from graphc.ops.loops.bodies import unique_names, values_of
from graphc.ops.loops.scan import Scan, bodies, stacked
from graphc.ops.view import Slice
from graphc.passes.simplify.prune_scans import prune_scans


def store_or_recompute(graph: Graph, target: Target) -> Graph:
    """Stack values in forward scans that their gradients would else recompute at more cost.

    `messages.decide` gets the decisions.
    """
    graph = prune_scans(graph)
    pairs = _pairs(graph)
    names = Names(v.name for g in (graph, *bodies(graph)) for v in values_of(g))
    for forward, backward in pairs:
        producers = graph.producers
        ahead, behind = producers[forward], producers[backward]
        found = _Pair(ahead, behind, target, names).stored()
        if found is not None:
            nodes = {id(ahead): found[0], id(behind): found[1]}
            graph = replace(graph, nodes=tuple(nodes.get(id(n), n) for n in graph.nodes))
    return unique_names(drop_dead(prune_scans(graph)))


def _pairs(graph: Graph) -> list[tuple[Value, Value]]:
    """(an output of a scan, an output of a scan in the other direction that reads its stacks)."""
    producers = graph.producers
    found: dict[tuple[Value, Value], None] = {}
    for node in graph.nodes:
        if not isinstance(node.op, Scan) or node.op.recompute:
            continue
        for _, value in Scan.bind(node).scanned:
            source = producers.get(value)
            if source is not None and isinstance(source.op, Scan):
                same = source.op.length == node.op.length
                same = same and _guarded_alike(source, node)
                if same and source.op.reverse != node.op.reverse:
                    found[source.outputs[0], node.outputs[0]] = None
    return list(found)


def _guarded_alike(forward: Node, backward: Node) -> bool:
    """Whether two scans skip the same iterations, in which nothing is stored."""
    ahead, behind = Scan.bind(forward), Scan.bind(backward)
    if not ahead.guards or not behind.guards:
        return not ahead.guards and not behind.guards
    own = {outer for inner, outer in ahead.stacks if inner == ahead.guards[0]}
    return any(inner == behind.guards[0] and outer in own for inner, outer in behind.scanned)


class _Pair:
    """A forward scan and one that may be its gradient."""

    def __init__(self, forward: Node, backward: Node, target: Target, names: Names) -> None:
        self.forward, self.backward = Scan.bind(forward), Scan.bind(backward)
        self.ahead, self.behind = self.forward.op, self.backward.op
        self.rates = target.kind.rates
        self.names = names
        self.twin = self._match_inputs()
        """Value of the backward body -> the value of the forward body that it repeats."""
        self.repeated = self._match_nodes()

    def _match_inputs(self) -> dict[Value, Value]:
        constants = {outer: inner for inner, outer in self.forward.constants}
        moving = {o: v for v, o in (*self.forward.scanned, *self.forward.stacks)}
        twin = {v: constants[o] for v, o in self.backward.constants if o in constants}
        return twin | {v: moving[o] for v, o in self.backward.scanned if o in moving}

    def _match_nodes(self) -> list[Node]:
        """The nodes of the backward body that repeat one of the forward body; fills `twin`."""
        known = {(n.op, n.inputs): n for n in self.ahead.body.nodes}
        repeated = []
        for node in self.behind.body.nodes:
            if not all(v in self.twin for v in node.inputs):
                continue
            other = known.get((node.op, tuple(self.twin[v] for v in node.inputs)))
            if other is not None:
                repeated.append(node)
                self.twin.update(zip(node.outputs, other.outputs, strict=True))
        return repeated

    def stored(self) -> tuple[Node, Node] | None:
        """Both scans with the stacks that are worth storing; None if nothing is repeated."""
        needed = self._needed()
        if not needed:
            return None
        chosen = self._cut(needed)
        self._tell(chosen, self._still_repeated(needed, chosen))
        if not chosen:
            return None
        return self._rewrite(chosen)

    def _tell(self, chosen: Sequence[Value], again: Sequence[Value]) -> None:
        kept = (*self.ahead.elements, *self.ahead.stacks)
        added = [v for v in chosen if self.twin[v] not in kept]
        said = [f"stores {_words(added)}"] if added else []
        said += [f"recomputes {_words(again)}"] if again else []
        if said:
            name = self.forward.node.where.module or self.ahead.body.name
            decide(f"store_or_recompute: {name} {' and '.join(said)}")

    def _needed(self) -> list[Value]:
        """The repeated values that the gradient itself reads."""
        made = {v for n in self.repeated for v in n.outputs}
        inside = {id(n) for n in self.repeated}
        read = [v for n in self.behind.body.nodes if id(n) not in inside for v in n.inputs]
        return [v for v in dict.fromkeys((*read, *self.behind.body.outputs)) if v in made]

    def _cut(self, needed: Sequence[Value]) -> list[Value]:
        """Return the values to store, in the order of the backward body, by a minimum cut.

        A value is stored if its entry is on the side of the source and its exit on that of the
        sink, and recomputed if both are on the side of the sink.
        """
        import networkx as nx

        cut = nx.DiGraph()
        made = {v for n in self.repeated for v in n.outputs}
        for node in self.repeated:
            for value in node.outputs:
                cut.add_edge("source", (value, "in"), **self._repeating(node))
                cut.add_edge((value, "in"), (value, "out"), capacity=self._storing(value))
                cut.add_edges_from(((v, "out"), (value, "in")) for v in node.inputs if v in made)
        for value in needed:
            cut.add_edge((value, "out"), "sink")
        _, (ahead, _) = nx.minimum_cut(cut, "source", "sink")
        values = [v for n in self.repeated for v in n.outputs]
        return [v for v in values if (v, "in") in ahead and (v, "out") not in ahead]

    def _repeating(self, node: Node) -> dict[str, float]:
        """Return the microseconds to recompute a node; no capacity if it is not allowed."""
        if node.op.operations is None:
            return {}
        return {"capacity": node.op.operations * node.output.type.size / self.rates.flops}

    def _storing(self, value: Value) -> float:
        """The microseconds of writing and reading a value; none if it is stacked already."""
        if self.twin[value] in (*self.ahead.elements, *self.ahead.stacks):
            return 0.0
        return 2 * value.type.nbytes / self.rates.bytes

    def _still_repeated(self, needed: Sequence[Value], chosen: Sequence[Value]) -> list[Value]:
        """The pointwise values that are computed again."""
        producers = {v: n for n in self.repeated for v in n.outputs}
        found: dict[Value, None] = {}
        todo = [v for v in needed if v not in chosen]
        while todo:
            value = todo.pop()
            if value in producers and value not in found:
                found[value] = None
                todo += [v for v in producers[value].inputs if v not in chosen]
        return [v for v in found if producers[v].op.pointwise]

    def _rewrite(self, chosen: Sequence[Value]) -> tuple[Node, Node]:
        nodes = list(self.ahead.body.nodes)
        stacks, elements = dict(self.forward.stacks), dict(self.forward.scanned)
        new: dict[Value, Value] = {}
        reading: list[Node] = []
        added: list[tuple[Value, Value]] = []
        for group, axis in self._groups(chosen):
            twins = tuple(self.twin[v] for v in group)
            whole = twins[0]
            if len(twins) > 1:
                join = Concat(axis)
                (kind,) = join.infer(*(v.type for v in twins))
                whole = Value(self.names.fresh(f"{whole.name}.gates"), kind)
                where = next(n.where for n in nodes if twins[0] in n.outputs)
                nodes.append(Node(join, twins, (whole,), where))
            outer = stacks.get(whole) or elements.get(whole)
            if outer is None:
                outer = Value(
                    self.names.fresh(f"{whole.name}.stack"), stacked(whole.type, self.ahead.length)
                )
                stacks[whole] = outer
            element = Value(self.names.fresh(f"{whole.name}.saved"), whole.type)
            added.append((element, outer))
            reading += self._sections(group, element, axis, new)
        ahead = replace(self.forward, stacks=tuple(stacks.items())).rebuilt(nodes)
        body = substitute(self.behind.body, (*reading, *self.behind.body.nodes), new)
        body = drop_dead(replace(body, nodes=topological(body.nodes)))
        loop = Scan.bind(replace(self.backward.node, op=replace(self.behind, body=body)))
        return ahead, replace(loop, scanned=(*loop.scanned, *added)).rebuilt()

    def _sections(
        self, group: Sequence[Value], element: Value, axis: int, new: dict[Value, Value]
    ) -> list[Node]:
        """What reads the values of a group from `element`; fills `new`."""
        if len(group) == 1:
            new[group[0]] = element
            return []
        nodes = []
        for number, value in enumerate(group):
            extent, rank = value.type.shape[axis], value.type.rank
            starts = tuple(number * extent if d == axis else 0 for d in range(rank))
            stops = tuple(s + n for s, n in zip(starts, value.type.shape, strict=True))
            op = Slice(starts, stops, (1,) * rank)
            new[value] = Value(self.names.fresh(f"{value.name}.saved"), value.type)
            where = next(n.where for n in self.repeated if value in n.outputs)
            nodes.append(Node(op, (element,), (new[value],), where))
        return nodes

    def _groups(self, chosen: Sequence[Value]) -> list[tuple[tuple[Value, ...], int]]:
        """Return the chosen values in groups that fill the sections of one value, and its axis."""
        options = {v: self._sections_of(self.twin[v]) for v in chosen}
        sources = dict.fromkeys(s[:3] for found in options.values() for s in found)
        left = list(chosen)
        groups: list[tuple[tuple[Value, ...], int]] = []
        # First those that are elements: their place may be written over.
        for source, axis, count in sorted(sources, key=lambda s: s[0] not in self.ahead.elements):
            places: dict[int, Value] = {}
            fitting = [v for v in left if v.type.dtype == source.type.dtype]
            for value in sorted(fitting, key=lambda v: len(options[v])):
                for *whole, place in options[value]:
                    if whole == [source, axis, count] and place not in places:
                        places[place] = value
                        break
            if len(places) == count:
                groups.append((tuple(places[i] for i in range(count)), axis))
                left = [v for v in left if v not in places.values()]
        return groups + [((v,), 0) for v in left]

    def _sections_of(self, value: Value) -> list[tuple[Value, int, int, int]]:
        """Return (sliced value, axis, number of sections, section) of each slice in `value`."""
        producers = self.ahead.body.producers
        found: dict[tuple[Value, int, int, int], None] = {}
        seen, todo = {value}, [value]
        while todo:
            node = producers.get(todo.pop())
            if node is not None and node.op.moves:
                if read := node.op.section(node.inputs[0].type):
                    sections, place = read
                    found[node.inputs[0], sections.axis, sections.count, place] = None
            elif node is not None and node.op.pointwise:
                same = [v for v in node.inputs if v.type.shape == value.type.shape]
                todo += [v for v in same if v not in seen]
                seen.update(same)
        return list(found)


def _words(values: Sequence[Value]) -> str:
    return ", ".join(v.name for v in values)
