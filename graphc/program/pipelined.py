"""One stage of a function, for all micro-batches, with the messages between it and its neighbours.

The function is traced once, for a micro-batch, and cut (`stage_cuts.py`). Each stage is
differentiated, from the last to the first: what its gradient reads of the stage behind and gives the
stage before is then known on every rank. The nodes of this rank's own stage are written once for each
micro-batch and direction, in the order of `graphc.parallel.order`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc import functions, ops
from graphc.base.messages import decide
from graphc.base.source_lines import error
from graphc.functions.array.looping import BodyBuilder
from graphc.gradients.copying import repeat
from graphc.gradients.reverse import check_scalar_loss, gradients, one_like
from graphc.ir import NARROW, Node, Type, Value, Where, tree
from graphc.nn.parameter import Parameter
from graphc.nn.selection import Selection
from graphc.parallel import order
from graphc.parallel.order import BACKWARD, FORWARD
from graphc.parallel.pipeline import PipelineParallel
from graphc.program import stage_cuts
from graphc.program.micro_batches import is_read, joined, noted, size_of
from graphc.program.stage_cuts import Flow
from graphc.program.tracing import Traced
from graphc.program.update import refuse_closures
from graphc.trace import Builder, Tensor

Known = dict[Value, Tensor]
"""What stands for the values of one micro-batch in the program."""


@dataclass(frozen=True)
class Pipelined:
    """How `compile` makes a rank's program of a function, while that is traced."""

    parallel: PipelineParallel
    selection: Selection | None
    """The parameters to train; None for all that are trainable."""
    trains: bool
    """Whether parameters are updated; else the program goes forwards alone."""
    clip: float | None = None
    """The largest norm of the gradients of all stages."""

    def __call__(self, traced: Traced, fn: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Return the results of `fn`; the first is the loss. The gradients go to the update."""
        parameters = noted(traced, self.selection)
        batch = _MicroBatch(self, traced.builder, args, parameters)
        result = batch.traced(fn)
        if self.trains and self.selection is None:
            refuse_closures(traced, "update=")
        found = batch.run()
        if self.clip is not None:
            found = batch.clipped(found, self.clip)
        traced.builder.applied += [(parameters[n], g) for n, g in found.items()]
        return batch.shared(result)


@dataclass
class _Stage:
    """What is computed and exchanged for one micro-batch on one stage."""

    first: int
    """The number of its first moving node."""
    received: list[Value]
    """What it reads of the stages before."""
    nodes: list[Node] = field(default_factory=list)
    backward: list[Node] = field(default_factory=list)
    behind: dict[Value, Value] = field(default_factory=dict)
    """What it sends, and what stands for the gradient that comes back."""
    before: dict[Value, Tensor] = field(default_factory=dict)
    """What it receives, and the gradient that it sends back."""
    own: dict[str, Tensor] = field(default_factory=dict)
    """The gradients of its parameters, by their names."""


class _MicroBatch(BodyBuilder):
    """The function for one micro-batch, and this rank's program of all."""

    def __init__(
        self,
        how: Pipelined,
        outer: Builder,
        args: Sequence[Any],
        parameters: Mapping[str, Parameter],
    ) -> None:
        parallel = how.parallel
        super().__init__(outer, parallel.micro_batches, "micro_batches")
        self.how, self.parameters = how, parameters
        self.rank, self.count = parallel.rank, parallel.ranks
        self.size = size_of(args, self.length, "micro_batches")
        self.parts: dict[Value, Tensor] = {}
        """The whole array of each argument of a micro-batch."""
        self.args = [tree.map_leaves(self._part, arg) for arg in args]
        with outer.building():
            self.token = functions.as_tensor(False)
        self.kept: list[Node] = []
        """Forward nodes that depend on parameters alone, which all micro-batches share."""
        self.steady: Known = {}
        """What stands for parameters and constants, and for what `kept` makes."""
        self.totals: dict[str, Tensor] = {}
        self.made: list[Known] = [{} for _ in range(self.length)]

    def _part(self, _: str, leaf: Any) -> Any:
        """One micro-batch of an array; anything else as it is."""
        if not isinstance(leaf, Tensor) or not leaf.ndim:
            return leaf
        part = self._symbol(f"x.{leaf.value.name}", Type((self.size, *leaf.shape[1:]), leaf.dtype))
        self.parts[part.value] = leaf
        return part

    def traced(self, fn: Callable[..., Any]) -> Any:
        """Return the results of a micro-batch, after cutting and differentiating the function."""
        with self.building():
            result = fn(*self.args)
            result = tree.map_leaves(lambda _, leaf: self.own(functions.as_tensor(leaf)), result)
            loss = None
            if self.how.trains:
                loss = result[0] if isinstance(result, tuple) else result
                check_scalar_loss(loss)
                loss = functions.astype(loss, "f32") if loss.dtype in NARROW else loss
        if self.shown:
            raise error("show and tap: in a pipeline expected none, values are on several ranks")
        read = [n for n, p in self.parameters.items() if is_read(self, p.state)]
        self.weights = {n: self.read_state(self.parameters[n].state) for n in read}
        self.forward = tuple(self.nodes)
        trained = [weight.value for weight in self.weights.values()]
        self.flow = Flow.of(self.forward, self.parts, trained)
        self.moves = {id(node) for node in self.flow.moving}
        self._cut()
        if loss is not None:
            self._differentiate(loss)
        self._agree()
        self._gather_nodes(result)
        return result

    def _cut(self) -> None:
        """Cut the function into stages, each of which owns the parameters that it reads first."""
        parallel, flow = self.how.parallel, self.flow
        buffers = {self.weights[n].value: self.parameters[n].state for n in self.weights}
        known = {v: parallel.owner(b) for v, b in buffers.items()}
        owned = {v: stage for v, stage in known.items() if stage is not None}
        if owned:
            cuts = stage_cuts.kept(flow, owned, self.count)
        elif parallel.stages is not None:
            cuts = stage_cuts.named(flow, parallel.stages)
        else:
            cuts = stage_cuts.balanced(flow, self.count)
        self.stages = [_Stage(0, []), *(_Stage(cut, flow.crossing(cut)) for cut in cuts)]
        self.owner = {v: self._stage_at(flow.reach[v][0]) for v in buffers if v in flow.reach}
        for stage in range(self.count):
            if stage not in self.owner.values():
                raise error(
                    f"stages: expected each to be the first to read a trained parameter, stage "
                    f"{stage} reads none"
                )
        parallel.give({buffers[v]: stage for v, stage in self.owner.items()})

    def _stage_at(self, number: int) -> int:
        """The stage of a moving node."""
        return max(s for s, stage in enumerate(self.stages) if stage.first <= number)

    def _stage_of(self, value: Value) -> int | None:
        """The stage that makes a value; None if every stage does."""
        found = self.flow.reach.get(value)
        return None if found is None else self._stage_at(found[0])

    def _differentiate(self, loss: Tensor) -> None:
        """Append the gradient of each stage, from the last to the first."""
        moving = self.flow.moving
        number = {id(node): n for n, node in enumerate(self.forward)}
        if self._stage_of(loss.value) != self.count - 1:
            raise error("stages: the loss depends on none of the parameters of the last stage")
        with self.building():
            for place, stage in reversed([*enumerate(self.stages)]):
                begin = len(self.nodes)
                with self.at(Where(derived=True)):
                    seeds = [Tensor(v, self) for v in stage.behind.values()]
                    if place == self.count - 1:
                        seed = one_like(loss)
                        seeds.append(seed if self.length == 1 else seed * (1 / self.length))
                outputs = [Tensor(v, self) for v in stage.behind]
                outputs += [loss] if place == self.count - 1 else []
                names = [n for n, w in self.weights.items() if self.owner.get(w.value) == place]
                received = [v for v in stage.received if v in self.flow.active]
                wanted = [self.weights[n] for n in names] + [Tensor(v, self) for v in received]
                first = number[id(moving[stage.first])]
                found = gradients(outputs, seeds, wanted, self, first)
                own = zip(names, found, strict=False)
                stage.own = {n: self._wide(g) for n, g in own if g is not None}
                back = zip(received, found[len(names) :], strict=True)
                stage.before = {v: g for v, g in back if g is not None}
                stage.backward = self.nodes[begin:]
                if place:
                    self.stages[place - 1].behind = {
                        v: self._symbol(f"d.{v.name}", g.value.type).value
                        for v, g in stage.before.items()
                    }

    def _wide(self, tensor: Tensor) -> Tensor:
        return functions.astype(tensor, "f32") if tensor.dtype in NARROW else tensor

    def _agree(self) -> None:
        """Compare the function and its cuts with those of the other ranks. All call this."""
        text = "\n".join(
            f"{n.op.name} {n.op.attributes} {[v.name for v in n.inputs]} {n.outputs}"
            for n in self.forward
        )
        self.how.parallel.group.compare(
            self.outer.name,
            {
                "NumPy": np.__version__,
                "micro_batches": str(self.length),
                "the function": hashlib.sha256(text.encode()).hexdigest()[:12],
                "stages": ", ".join(str(stage.first) for stage in self.stages),
                "parameters": ", ".join(self.weights),
            },
        )

    def _gather_nodes(self, result: Any) -> None:
        """Collect the forward nodes of this rank's stage: its run, and others that it reads."""
        stage = self.stages[self.rank]
        last = self.stages[self.rank + 1].first if self.rank + 1 < self.count else None
        inside = {id(node) for node in self.flow.moving[stage.first : last]}
        self.changed = {
            state: (before, new)
            for state, (before, new) in self.assigned.items()
            if self._changed_on(new.value) == self.rank
        }
        needed = {new.value for _, new in self.changed.values()}
        needed.update(v for node in stage.backward for v in node.inputs)
        needed.update(leaf.value for _, leaf in tree.leaves(result))
        kept = []
        for node in reversed(self.forward):
            free = id(node) not in self.moves and not needed.isdisjoint(node.outputs)
            if free or id(node) in inside:
                needed.update(node.inputs)
                kept.append(node)
        steady = {t.value for _, t in self.constants}
        for node in kept[::-1]:
            if steady.issuperset(node.inputs) and not node.op.draws:
                steady.update(node.outputs)
                self.kept.append(node)
            else:
                stage.nodes.append(node)
        for before, new in self.assigned.values():
            stage_of_new = self._changed_on(new.value)
            if stage_of_new != self.rank and self._symbols["contents", before].value in needed:
                raise error(
                    f"stages: {before.name} is changed on stage {stage_of_new} and read on stage "
                    f"{self.rank}: begin stages elsewhere"
                )

    def _changed_on(self, new: Value) -> int:
        """The stage that changes state to a value: that of the moving node that makes it, or that
        of the last one before.
        """
        place = next((n for n, node in enumerate(self.forward) if new in node.outputs), 0)
        ahead = sum(id(node) in self.moves for node in self.forward[: place + 1])
        return self._stage_at(max(0, ahead - 1))

    def run(self) -> dict[str, Tensor]:
        """Append this rank's program of all micro-batches; return the sums of gradients."""
        contents = {
            state: Tensor(before, self.outer) for state, (before, _) in self.assigned.items()
        }
        stage = self.stages[self.rank]
        self.steady.update((t.value, Tensor(v, self.outer)) for v, t in self.constants)
        with self.outer.building():
            part = 0
            for action, direction, m in order.steps(
                self.rank, self.count, self.length, self.how.trains
            ):
                known = self.made[m]
                if action == "compute":
                    part += 1
                    self.outer.part = part
                if action == "compute" and direction == FORWARD:
                    if m == 0:
                        self._begin_all()
                    self._begin(m, contents)
                    repeat(self.outer, stage.nodes, known, derived=False)
                    for state, (_, new) in self.changed.items():
                        contents[state] = known[new.value]
                elif action == "compute":
                    repeat(self.outer, stage.backward, known)
                    self._add(known)
                self.outer.part = 0
                if action == "compute":
                    continue
                if action == "send":
                    self._send(direction, m)
                else:
                    self._receive(direction, m)
            for state in self.changed:
                self.outer.update(Tensor(state, self.outer), contents[state])
        self._tell()
        return self.totals

    def _begin_all(self) -> None:
        """Append what all micro-batches share, in no part."""
        part, self.outer.part = self.outer.part, 0
        repeat(self.outer, self.kept, self.steady, derived=False)
        self.outer.part = part

    def _begin(self, m: int, contents: Mapping[Value, Tensor]) -> None:
        """Let what a micro-batch reads from outside stand for what its nodes read."""
        known = self.made[m]
        known.update(self.steady)
        for value, whole in self.parts.items():
            known[value] = whole[m * self.size : (m + 1) * self.size]
        for _, number in self.elements:  # the counter of random draws alone
            known[number.value] = functions.as_tensor(m, number.dtype)
        for state, (before, _) in self.assigned.items():
            known[self._symbols["contents", before].value] = contents[state]

    def _send(self, direction: str, m: int) -> None:
        """Send what the next stage reads of a micro-batch, or the gradients of the one before."""
        known, stage = self.made[m], self.stages[self.rank]
        if direction == BACKWARD:
            for gradient in stage.before.values():
                self._message(ops.Send(self.rank - 1), known[gradient.value])
            return
        for value in self.stages[self.rank + 1].received:
            if m == 0 or value not in self.flow.trained:
                self._message(ops.Send(self.rank + 1), known[value])

    def _receive(self, direction: str, m: int) -> None:
        """Receive what `_send` sends; parameters with the first micro-batch."""
        known, stage = self.made[m], self.stages[self.rank]
        if direction == BACKWARD:
            for symbol in stage.behind.values():
                known[symbol] = self._arriving(self.rank + 1, symbol, f"{symbol.name}.{m}")
            return
        for value in stage.received:
            if value not in self.flow.trained:
                known[value] = self._arriving(self.rank - 1, value, f"{value.name}.{m}")
            elif m == 0:
                self.steady[value] = self._arriving(self.rank - 1, value, value.name)

    def _arriving(self, peer: int, value: Value, name: str) -> Tensor:
        return self._message(ops.Receive(peer, value.type.shape, value.type.dtype), name=name)[0]

    def _message(self, op: ops.Op, *inputs: Tensor, name: str = "") -> tuple[Tensor, ...]:
        """Append a message behind those before; the results but the token."""
        self.token, *results = self.outer.emit(op, self.token, *inputs, name=name)
        return tuple(results)

    def _add(self, known: Known) -> None:
        """Add the gradients of a micro-batch to the sums, which begin with zeros."""
        for name, gradient in self.stages[self.rank].own.items():
            grad = known[gradient.value]
            if name in self.totals:
                self.totals[name] = self.totals[name] + grad
            elif self.length > 1:
                self.totals[name] = functions.zeros(grad.shape, grad.dtype) + grad
            else:
                self.totals[name] = grad

    def clipped(self, found: Mapping[str, Tensor], limit: float) -> dict[str, Tensor]:
        """Return the gradients, scaled so that the norm of those of all stages is in the limit."""
        squares = dict[str, Tensor]()
        with self.outer.building():
            for rank, stage in enumerate(self.stages):
                names = [*stage.own]
                op = ops.Share(rank, (len(names),), "f32")
                own = [functions.sum(functions.square(found[n])) for n in names if n in found]
                given = [functions.stack(own)] if rank == self.rank else []
                (shared,) = self._message(op, *given, name="squares")
                squares.update((name, shared[n]) for n, name in enumerate(names))
            ordered = [squares[n] for n in self.weights if n in squares]
            total = functions.sqrt(sum(ordered[1:], start=ordered[0]))
            scale = functions.minimum(limit / (total + 1e-6), 1.0)
            return {name: gradient * scale for name, gradient in found.items()}

    def shared(self, result: Any) -> Any:
        """Return the results for the whole batch, which every rank gets from those that have them."""

        def of_batch(path: str, leaf: Tensor) -> Tensor:
            stage = self._stage_of(leaf.value)
            owner = self.count - 1 if stage is None else stage
            with self.building():
                stack = functions.zeros((self.length, *leaf.shape), leaf.dtype)
                kind = self._whole(leaf, stack).value.type
            with self.outer.building():
                given = []
                if owner == self.rank:
                    found = functions.stack([known[leaf.value] for known in self.made])
                    given = [self._whole(leaf, found)]
                op = ops.Share(owner, kind.shape, kind.dtype)
                return self._message(op, *given, name="result")[0]

        return tree.map_leaves(of_batch, result)

    def _whole(self, leaf: Tensor, stack: Tensor) -> Tensor:
        """The result for the whole batch from those of the micro-batches."""
        return stack[0] if self.length == 1 else joined(leaf.value.type, stack)

    def _tell(self) -> None:
        """Note what this rank does."""
        stage, flow = self.stages[self.rank], self.flow
        last = self.stages[self.rank + 1].first if self.rank + 1 < self.count else len(flow.moving)
        costs = [stage_cuts.cost(node) for node in flow.moving]
        share = 100 * sum(costs[stage.first : last]) / sum(costs)
        own = [w for w in self.weights.values() if self.owner.get(w.value) == self.rank]
        sizes = [sum(w.value.type.nbytes for w in ws) for ws in (own, self.weights.values())]
        begins = next((n.where.module for n in flow.moving[stage.first :] if n.where.module), "")
        decide(
            f"pipeline: stage {self.rank} of {self.count} begins with {begins or 'the function'}, "
            f"has {len(own)} of {len(self.weights)} parameters ({sizes[0] / 1e6:.2f} of "
            f"{sizes[1] / 1e6:.2f} MB) and {share:.0f} % of the work"
        )
        if not self.how.trains:
            return
        passes = order.passes(self.rank, self.count, self.length)
        most = order.alive(self.rank, self.count, self.length)
        decide(
            f"pipeline: {' '.join(f'{d[0].upper()}{m}' for d, m in passes)}, at most {most} of "
            f"{self.length} micro-batches in memory"
        )
