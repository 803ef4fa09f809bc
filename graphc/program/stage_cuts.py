"""Where a function is cut into stages, and what is sent from one to the next.

The nodes of the function, in the order of the trace, are cut into runs. Those that depend neither
on the batch nor on trained parameters are in no run: each stage that reads them computes them.

Unless the user says where stages begin, the cost of the most expensive run is as low as runs allow
that begin with a module and each read a trained parameter first; of all cuts that come within
`TOLERANCE` of that, one that sends the fewest bytes is taken. The cost of a node is its operations
and its bytes, one operation for each.

If possible, stages begin where kernels of one process usually do too: with a module that
multiplies, looks up, or normalizes within samples, and behind one that does not normalize.
Elsewhere one kernel may compute what is sent and what reads it, so that a product and a sum are
rounded once (`graphc/passes/fuse/fuse_multiply_add.py`), and add up a gradient in an order of its
own; a cut then changes the last bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from graphc.base.source_lines import error
from graphc.ir import FLOATS, Node, Value
from graphc.ops.base import Index
from graphc.ops.cost import node_bytes, node_flops
from graphc.ops.loops.scan import Scan
from graphc.ops.pointwise.arithmetic import Multiply, Square
from graphc.ops.pointwise.logic import Cast

TOLERANCE = 1.1
"""How much more than the least the most expensive stage may cost, if fewer bytes are sent."""
HALVINGS = 50
"""How often the interval in which the least cost lies is halved."""


@dataclass(frozen=True)
class Flow:
    """The nodes of a function and what they read of each other."""

    nodes: Sequence[Node]
    """All nodes, in the order of the trace."""
    moving: Sequence[Node]
    """Those that depend on the batch or on trained parameters."""
    trained: Collection[Value]
    """The trained parameters."""
    reach: Mapping[Value, tuple[int, int]]
    """(the number of the moving node that makes it, or for a parameter reads it first; the number
    of the last one that reads it) of each value that may have to be sent."""
    active: Collection[Value]
    """The floats that depend on trained parameters."""

    @classmethod
    def of(cls, nodes: Sequence[Node], batch: Collection[Value], trained: Sequence[Value]) -> Flow:
        """Return the flow of nodes that read the arrays of a batch and trained parameters."""
        bound = {*batch, *trained}
        active = set(trained)
        moving: list[Node] = []
        reach: dict[Value, tuple[int, int]] = {}
        for node in nodes:
            if bound.isdisjoint(node.inputs):
                continue
            number = len(moving)
            moving.append(node)
            bound.update(node.outputs)
            if not active.isdisjoint(node.inputs):
                active.update(v for v in node.outputs if v.type.dtype in FLOATS)
            for value in node.inputs:
                if value in reach or value in trained:
                    reach[value] = reach.get(value, (number, number))[0], number
            reach.update((v, (number, number)) for v in node.outputs)
        return cls(tuple(nodes), moving, frozenset(trained), reach, active)

    def crossing(self, cut: int) -> list[Value]:
        """Return what nodes from number `cut` on read of those before, or of their parameters."""
        return [value for value, (made, read) in self.reach.items() if made < cut <= read]

    def sent(self) -> list[int]:
        """Return the bytes that cross a cut before each moving node."""
        change = [0] * (len(self.moving) + 1)
        for value, (made, read) in self.reach.items():
            if made < read:
                change[made + 1] += value.type.nbytes
                change[read + 1] -= value.type.nbytes
        return list(accumulate(change))[:-1]

    def joints(self) -> set[int]:
        """Return the numbers of moving nodes that are in another module than the one before."""
        modules = [node.where.module for node in self.moving]
        return {n for n in range(1, len(modules)) if modules[n] != modules[n - 1]}

    def apart(self) -> set[int]:
        """Return those `joints` at which kernels of one process begin too, in either direction."""
        reduce = {n.where.module for n in self.moving if n.op.reduced_axes is not None}
        change = [0] * (len(self.moving) + 1)
        for value, (made, read) in self.reach.items():
            maker = self.moving[made]
            fused = isinstance(maker.op, Multiply | Square) or maker.where.module in reduce
            if fused and value not in self.trained:
                change[made + 1] += made < read
                change[read + 1] -= made < read
        joined = [*accumulate(change)]
        return {n for n in self.joints() if self._begins_kernel(n) and not joined[n]}

    def _begins_kernel(self, number: int) -> bool:
        """Whether the first node from a number on that computes is the first one of a kernel."""
        for node in self.moving[number:]:
            if not node.op.moves and not isinstance(node.op, Cast):
                axes = node.op.reduced_axes
                within = axes is not None and 0 not in axes
                return node.op.contracts or isinstance(node.op, Index) or within
        return False

    def firsts(self) -> set[int]:
        """Return the numbers of the moving nodes that are the first to read a parameter."""
        return {self.reach[value][0] for value in self.trained if value in self.reach}


def balanced(flow: Flow, stages: int) -> list[int]:
    """Return the numbers of the moving nodes with which stages 1, 2, ... begin.

    It raises GraphError if there are fewer nodes that first read a parameter than stages.
    """
    firsts = flow.firsts()
    if len(firsts) < stages:
        raise error(
            f"stages: {stages} ranks expected as many operations that are the first to read a "
            f"trained parameter, the function has {len(firsts)}"
        )
    costs = [0, *accumulate(map(cost, flow.moving))]
    sent = flow.sent()
    for places in (flow.apart(), flow.joints(), range(len(flow.moving))):
        if _cuts(costs, sent, firsts, places, stages, costs[-1]) is not None:
            break
    low, high = costs[-1] / stages, float(costs[-1])
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _cuts(costs, sent, firsts, places, stages, middle) is None:
            low = middle
        else:
            high = middle
    found = _cuts(costs, sent, firsts, places, stages, TOLERANCE * high)
    assert found is not None, "a higher limit allows what a lower one does"
    return found


def _cuts(
    costs: Sequence[int],
    sent: Sequence[int],
    firsts: Collection[int],
    places: Collection[int],
    stages: int,
    limit: float,
) -> list[int] | None:
    """The cuts at some places that send least with stages of at most a cost, or None.

    `least[n]` is what is sent if a stage begins with node n. The stage before it begins where the
    cost allows, and early enough to have a first reader.
    """
    count = len(costs) - 1
    latest = [-1, *accumulate((n if n in firsts else -1 for n in range(count)), max)]
    least: dict[int, int] = {0: 0}
    back: list[dict[int, int]] = []
    for stage in range(1, stages + 1):
        found: dict[int, int] = {}
        before: dict[int, int] = {}
        window: deque[int] = deque()
        entered = 0
        for end in range(1, count + 1) if stage < stages else (count,):
            while entered <= latest[end]:
                if entered in least:
                    while window and least[window[-1]] >= least[entered]:
                        window.pop()
                    window.append(entered)
                entered += 1
            while window and costs[end] - costs[window[0]] > limit:
                window.popleft()
            if window and (end in places or stage == stages):
                before[end] = window[0]
                found[end] = least[window[0]] + (sent[end] if end < count else 0)
        least = found
        back.append(before)
    if count not in least:
        return None
    cuts = [count]
    for before in reversed(back):
        cuts.append(before[cuts[-1]])
    return cuts[-2:0:-1]


def named(flow: Flow, names: Sequence[str]) -> list[int]:
    """Return the numbers of the moving nodes that are the first of modules of these names.

    It raises GraphError if a module has none, or if they do not come in this order.
    """
    found = []
    for name in names:
        inside = (
            n
            for n, node in enumerate(flow.moving)
            if f"{node.where.module}.".startswith(f"{name}.")
        )
        first = next(inside, None)
        if first is None:
            known = dict.fromkeys(n.where.module for n in flow.moving if n.where.module)
            raise error(f"stages: no module {name!r} is called, only {', '.join(known)}")
        found.append(first)
    return _in_order(found, names)


def kept(flow: Flow, owners: Mapping[Value, int], stages: int) -> list[int]:
    """Return the cuts by which parameters are read first on the stages that have them."""
    found = []
    for stage in range(1, stages):
        own = [flow.reach[v][0] for v, s in owners.items() if s == stage and v in flow.reach]
        if not own:
            raise error(
                f"stages: the function reads no parameter of stage {stage}, which has some by the "
                "program compiled before: expected one that calls the same modules"
            )
        found.append(min(own))
    return _in_order(found, [str(s) for s in range(1, stages)])


def _in_order(cuts: list[int], names: Sequence[str]) -> list[int]:
    for (one, other), (name, following) in zip(
        pairwise([0, *cuts]), pairwise(["0", *names]), strict=True
    ):
        if other <= one:
            raise error(
                f"stages: expected them in the order in which they are called, {following} is not "
                f"behind the beginning of {name}"
            )
    return cuts


def cost(node: Node) -> int:
    """Return the operations and bytes of a node; of a loop those of all iterations."""
    if isinstance(node.op, Scan):
        return node.op.length * sum(map(cost, node.op.body.nodes))
    return node_flops(node) + node_bytes(node)
