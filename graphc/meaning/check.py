"""Check that the graph after all passes means what the trace meant.

What differentiation gives is taken for granted: its rules are held against differences of the ops
in NumPy. So the trace is compared with the graph that is differentiated, that graph's outputs with
those of the step, and the step with the graph after the last pass, in two parts where a pass rounds
what is multiplied (`precision=`); pass by pass only where a result
is not proved at once, to tell which pass it was. A result that is not proved is tried (`trial.py`).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphc.base.errors import GraphError
from graphc.ir import Array, Graph, Node, Value
from graphc.meaning.table import Term, TooLargeError
from graphc.meaning.terms import Terms
from graphc.meaning.trial import difference
from graphc.meaning.walk import Walker
from graphc.ops.custom_gradient import without_marks
from graphc.ops.loops.guards import without_guards

REDEFINES = ("narrow_products", "narrow_hoisted", "round_products")
"""Passes that round what is multiplied, as the user asked: what is meant is the graph behind it."""
FRAMES = 100_000
"""Calls within calls that a long chain of nodes may need."""

HOW = "tried at full extents on random, large and positive numbers and ramps"

Results = dict[str, Value]


@dataclass(frozen=True)
class Tried:
    """A result of a pass that was not proved, and did not differ where it was tried."""

    stage: str
    result: str
    type: str


@dataclass(frozen=True)
class Meaning:
    """What was found: so many results, and those that are not proved."""

    results: int
    tried: tuple[Tried, ...]

    @property
    def proved(self) -> bool:
        return not self.tried

    def __str__(self) -> str:
        names = {t.result for t in self.tried}
        said = [f"meaning: {self.results - len(names)} of {self.results} results proved equal"]
        passes: dict[str, list[Tried]] = {}
        for tried in self.tried:
            passes.setdefault(tried.stage, []).append(tried)
        for stage, found in passes.items():
            which = ", ".join(f"{t.result} {t.type}" for t in found[:3])
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            said.append(f"{stage} {HOW}: {which}{more}")
        return "; ".join(said)


def check(stages: Mapping[str, Graph]) -> Meaning:
    """Compare the graphs after each pass, by name in order, the first of which is the trace.

    Raises GraphError for a result that differs, with the pass, the node, the user's line, what was
    expected and what was got.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, FRAMES))
    try:
        return _Check(stages).run()
    finally:
        sys.setrecursionlimit(limit)


class _Check:
    def __init__(self, stages: Mapping[str, Graph]) -> None:
        plain = {name: without_marks(graph) for name, graph in stages.items()}
        self.stages = {name: without_guards(graph) for name, graph in plain.items()}
        self.terms = Terms()
        self.arrays: dict[str, Array] = {}
        self.walkers: dict[str, Walker] = {}
        self.found: dict[tuple[str, str], Term | None] = {}

    def run(self) -> Meaning:
        names = list(self.stages)
        cut = names.index("differentiate") if "differentiate" in names else 0
        parts = [names[:cut], names[max(0, cut - 1) : cut + 1], names[cut:]]
        for at in (parts[-1].index(name) for name in REDEFINES if name in parts[-1]):
            parts[-1:] = [parts[-1][:at], parts[-1][at:]]
        tried = [t for part in parts if len(part) > 1 for t in self._part(part)]
        last = self.stages[names[-1]]
        return Meaning(len(_results(last)), tuple(tried))

    def _part(self, names: Sequence[str]) -> Iterator[Tried]:
        wanted = _results(self.stages[names[0]])
        if names[-1] == "differentiate":
            # Gradients that the function gave are outputs until then.
            whole = self.stages[names[-1]]
            kept = {f"output {i}" for i, _ in enumerate(whole.outputs)}
            if any(node.op.communicates for node in whole.nodes):
                kept.discard("output 0")  # the loss, whose mean over all ranks it is then
            wanted = {name: v for name, v in wanted.items() if name in kept}
        unproved = self._unproved(names[0], names[-1], wanted)
        if not unproved:
            return
        for before, after in itertools.pairwise(names):
            if self.stages[before].nodes == self.stages[after].nodes:
                continue
            for name in self._unproved(before, after, {n: wanted[n] for n in unproved}):
                yield self._try(before, after, name)

    def _unproved(self, before: str, after: str, names: Mapping[str, object]) -> list[str]:
        """The results that no proof shows equal."""
        first, last = (_results(self.stages[n]) for n in (before, after))
        for name in names:
            expected, got = first[name], last.get(name)
            if got is None or (expected.type.shape, expected.type.dtype) != (
                got.type.shape,
                got.type.dtype,
            ):
                raise GraphError(
                    f"meaning: pass {after} changed {name}: expected {expected.type}, "
                    f"got {got.type if got else 'nothing'}{self._line(after, got)}"
                )
        return [
            n
            for n in names
            if self._term(before, first[n]) is None
            or self._term(before, first[n]) != self._term(after, last[n])
        ]

    def _term(self, stage: str, value: Value) -> Term | None:
        """The term of a value; None if it is too large."""
        key = (stage, value.name)
        if key not in self.found:
            if stage not in self.walkers:
                self.walkers[stage] = Walker(self.terms, self.stages[stage], self.arrays)
            try:
                self.found[key] = self.walkers[stage].own(value)
            except (TooLargeError, RecursionError):
                self.found[key] = None
        return self.found[key]

    def _try(self, before: str, after: str, name: str) -> Tried:
        graphs = [self.stages[n] for n in (before, after)]
        pair = (_results(graphs[0])[name], _results(graphs[1])[name])
        made = [{v.name: v for n in g.nodes for v in n.outputs} for g in graphs]
        known = [
            n
            for n, v in made[0].items()
            if n in made[1]
            and (v.type.shape, v.type.dtype) == (made[1][n].type.shape, made[1][n].type.dtype)
            and self._term(before, v) is not None
            and self._term(before, v) == self._term(after, made[1][n])
        ]
        found = difference(graphs[0], graphs[1], pair, known, self.arrays)
        if found is not None:
            node = self._culprit(before, after, made, pair[1])
            raise GraphError(
                f"meaning: pass {after} changed {name}, {found}; first in "
                f"{_shown(node) if node else pair[1]}"
            )
        return Tried(after, name, str(pair[1].type))

    def _culprit(
        self, before: str, after: str, made: Sequence[Mapping[str, Value]], result: Value
    ) -> Node | None:
        """Return the first node that a result needs and that computes something else than before.

        It may also be a node that was not there before.
        """
        graph = self.stages[after]
        needed, order = {result}, []
        for node in reversed(graph.nodes):
            if any(v in needed for v in node.outputs):
                needed.update(node.inputs)
                order.append(node)
        for node in reversed(order):
            for value in node.outputs:
                old = made[0].get(value.name)
                if old is not None and self._term(before, old) != self._term(after, value):
                    return node
        return graph.producers.get(result)

    def _line(self, stage: str, value: Value | None) -> str:
        node = self.stages[stage].producers.get(value) if value is not None else None
        return f" in {_shown(node)}" if node else ""


def _results(graph: Graph) -> Results:
    """The outputs and the new values of state, by name."""
    results = {f"output {number}": v for number, v in enumerate(graph.outputs)}
    return results | {f"state {old.name}": new for old, new in graph.updates}


def _shown(node: Node) -> str:
    """Such as `%fc1 = matmul (lenet.py:14)`."""
    lines = f" ({', '.join(node.where.lines)})" if node.where.lines else ""
    name = getattr(node.op, "kernel", node.op.name)
    return f"{', '.join(map(str, node.outputs))} = {name}{lines}"
