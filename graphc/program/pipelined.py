"""A rank's program of a function that is cut into stages, for all micro-batches.

The nodes of the rank's stage (`stages.py`) are written once for each micro-batch and direction, in
the order of `graphc.parallel.order`, with the messages between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from graphc import functions, ops
from graphc.base.messages import decide
from graphc.gradients.copying import repeat
from graphc.ir import Value, tree
from graphc.nn.selection import Selection
from graphc.parallel import order
from graphc.parallel.order import BACKWARD, FORWARD
from graphc.parallel.pipeline import PipelineParallel
from graphc.program import stage_cuts
from graphc.program.micro_batches import joined, noted
from graphc.program.stages import Stages
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
        stages = Stages(self.parallel, self.trains, traced.builder, args, parameters)
        result = stages.trace(fn)
        if self.trains and self.selection is None:
            refuse_closures(traced, "update=")
        program = _Program(stages, traced.builder)
        found = program.run()
        if self.clip is not None:
            found = program.clipped(found, self.clip)
        traced.builder.applied += [(parameters[n], g) for n, g in found.items()]
        return program.shared(result)


class _Program:
    """The program of a rank's stage under construction."""

    def __init__(self, stages: Stages, outer: Builder) -> None:
        self.whole, self.outer = stages, outer
        self.rank, self.count, self.length = stages.rank, stages.count, stages.length
        self.stage = stages.stages[self.rank]
        self.made: list[Known] = [{} for _ in range(self.length)]
        """What stands for the values of each micro-batch."""
        self.steady: Known = {t.value: Tensor(v, outer) for v, t in stages.constants}
        """What stands for parameters and constants, and what is made of these alone."""
        self.contents = stages.contents_before()
        """What state holds by now that the function changes."""
        self.totals: dict[str, Tensor] = {}
        """The sums of gradients by now, by the names of parameters."""
        with outer.building():
            self.token = functions.as_tensor(False)

    def run(self) -> dict[str, Tensor]:
        """Append the passes and messages of all micro-batches; return the sums of gradients."""
        compute = {FORWARD: self._forward, BACKWARD: self._backward}
        with self.outer.building():
            turn = 1
            for step in order.steps(self.rank, self.count, self.length, self.whole.trains):
                if step.action == "compute":
                    with self._at(turn, step.batch + 1):
                        compute[step.direction](step.batch)
                    turn += 1
                elif step.action == "send":
                    self._send(step.direction, step.batch)
                else:
                    with self._at(turn, 0):
                        self._receive(step.direction, step.batch)
            for state in self.whole.changed:
                self.outer.update(Tensor(state, self.outer), self.contents[state])
        self._tell()
        return self.totals

    @contextmanager
    def _at(self, turn: int, batch: int) -> Iterator[None]:
        """Set the turn and the micro-batch of nodes that are appended inside."""
        before = self.outer.turn, self.outer.batch
        self.outer.turn, self.outer.batch = turn, batch
        try:
            yield
        finally:
            self.outer.turn, self.outer.batch = before

    def _forward(self, m: int) -> None:
        """Append the forward pass of a micro-batch."""
        whole, known = self.whole, self.made[m]
        if m == 0:
            with self._at(0, 0):
                repeat(self.outer, whole.kept, self.steady, derived=False)
        known.update(self.steady)
        for value, array in whole.parts.items():
            known[value] = array[m * whole.size : (m + 1) * whole.size]
        for _, number in whole.elements:  # the counter of random draws alone
            known[number.value] = functions.as_tensor(m, number.dtype)
        for state, old in whole.contents_inside().items():
            known[old] = self.contents[state]
        repeat(self.outer, self.stage.nodes, known, derived=False)
        for state, (_, new) in whole.changed.items():
            self.contents[state] = known[new.value]

    def _backward(self, m: int) -> None:
        """Append the backward pass of a micro-batch, and add its gradients to the sums."""
        known = self.made[m]
        repeat(self.outer, self.stage.backward, known)
        for name, gradient in self.stage.own.items():
            grad = known[gradient.value]
            if name in self.totals:
                self.totals[name] = self.totals[name] + grad
            elif self.length > 1:  # from zero on, as the loop of accumulate=
                self.totals[name] = functions.zeros(grad.shape, grad.dtype) + grad
            else:
                self.totals[name] = grad

    def _send(self, direction: str, m: int) -> None:
        """Send what the next stage reads of a micro-batch, or the gradients of the one before."""
        known, stage = self.made[m], self.stage
        if direction == BACKWARD:
            for gradient in stage.before.values():
                self._message(ops.Send(self.rank - 1), known[gradient.value])
            return
        for value in self.whole.stages[self.rank + 1].received:
            if m == 0 or value not in self.whole.flow.trained:
                self._message(ops.Send(self.rank + 1), known[value])

    def _receive(self, direction: str, m: int) -> None:
        """Receive what `_send` sends; parameters with the first micro-batch."""
        known, stage = self.made[m], self.stage
        if direction == BACKWARD:
            for symbol in stage.behind.values():
                known[symbol] = self._arriving(self.rank + 1, symbol, f"{symbol.name}.{m}")
            return
        for value in stage.received:
            if value not in self.whole.flow.trained:
                known[value] = self._arriving(self.rank - 1, value, f"{value.name}.{m}")
            elif m == 0:
                self.steady[value] = self._arriving(self.rank - 1, value, value.name)

    def _arriving(self, peer: int, value: Value, name: str) -> Tensor:
        return self._message(ops.Receive(peer, value.type.shape, value.type.dtype), name=name)[0]

    def _message(self, op: ops.Op, *inputs: Tensor, name: str = "") -> tuple[Tensor, ...]:
        """Append a message behind those before; the results but the token."""
        self.token, *results = self.outer.emit(op, self.token, *inputs, name=name)
        return tuple(results)

    def clipped(self, found: Mapping[str, Tensor], limit: float) -> dict[str, Tensor]:
        """Return the gradients, scaled so that the norm of those of all stages is in the limit."""
        squares = dict[str, Tensor]()
        with self.outer.building():
            for rank, stage in enumerate(self.whole.stages):
                names = [*stage.own]
                op = ops.Share(rank, (len(names),), "f32")
                own = [functions.sum(functions.square(found[n])) for n in names if n in found]
                given = [functions.stack(own)] if rank == self.rank else []
                (shared,) = self._message(op, *given, name="squares")
                squares.update((name, shared[n]) for n, name in enumerate(names))
            ordered = [squares[n] for n in self.whole.weights if n in squares]
            total = functions.sqrt(sum(ordered[1:], start=ordered[0]))
            scale = functions.minimum(limit / (total + 1e-6), 1.0)
            return {name: gradient * scale for name, gradient in found.items()}

    def shared(self, result: Any) -> Any:
        """Return the results for the whole batch, on every rank."""

        def of_batch(_: str, leaf: Tensor) -> Tensor:
            stage = self.whole.stage_of(leaf.value)
            owner = self.count - 1 if stage is None else stage
            with self.whole.building():
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
        stage, flow = self.stage, self.whole.flow
        last = (
            self.whole.stages[self.rank + 1].first
            if self.rank + 1 < self.count
            else len(flow.moving)
        )
        costs = [stage_cuts.cost(node) for node in flow.moving]
        share = 100 * sum(costs[stage.first : last]) / sum(costs)
        weights = [w.value for w in self.whole.weights.values()]
        mine = [w for w in weights if self.whole.owner.get(w) == self.rank]
        sizes = [sum(w.type.nbytes for w in ws) for ws in (mine, weights)]
        begins = next((n.where.module for n in flow.moving[stage.first :] if n.where.module), "")
        decide(
            f"pipeline: stage {self.rank} of {self.count} begins with {begins or 'the function'}, "
            f"has {len(mine)} of {len(weights)} parameters ({sizes[0] / 1e6:.2f} of "
            f"{sizes[1] / 1e6:.2f} MB) and {share:.0f} % of the work"
        )
        if not self.whole.trains:
            return
        passes = order.passes(self.rank, self.count, self.length)
        most = order.alive(self.rank, self.count, self.length)
        decide(
            f"pipeline: {' '.join(f'{d[0].upper()}{m}' for d, m in passes)}, at most {most} of "
            f"{self.length} micro-batches in memory"
        )
