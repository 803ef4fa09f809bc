"""A function that is traced for one micro-batch, cut into stages and differentiated.

Each stage is differentiated by itself, from the last to the first: what its gradient reads of the
stage behind, and gives the one before, is then known on every rank.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from graphc import functions
from graphc.base.source_lines import error
from graphc.functions.array.looping import BodyBuilder
from graphc.gradients.reverse import check_scalar_loss, gradients, one_like
from graphc.ir import NARROW, Node, Type, Value, Where, tree
from graphc.nn.parameter import Parameter
from graphc.parallel.pipeline import PipelineParallel
from graphc.program import stage_cuts
from graphc.program.micro_batches import is_read, size_of
from graphc.program.stage_cuts import Flow
from graphc.trace import Builder, Tensor


@dataclass
class Stage:
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


class Stages(BodyBuilder):
    """The function for one micro-batch.

    Attributes:
        parts: The whole array of each argument of a micro-batch.
        stages: The stages, in their order.
        weights: The trained parameters that the function reads, by name.
        kept: Forward nodes of this rank that depend on parameters alone: all micro-batches share
            them.
        changed: (contents before, contents behind a micro-batch) of state that this rank changes.
    """

    def __init__(
        self,
        parallel: PipelineParallel,
        trains: bool,
        outer: Builder,
        args: Sequence[Any],
        parameters: Mapping[str, Parameter],
    ) -> None:
        super().__init__(outer, parallel.micro_batches, "micro_batches")
        self.parallel, self.trains, self.parameters = parallel, trains, parameters
        self.rank, self.count = parallel.rank, parallel.ranks
        self.size = size_of(args, self.length, "micro_batches")
        self.parts: dict[Value, Tensor] = {}
        self.args = [tree.map_leaves(self._part, arg) for arg in args]
        self.kept: list[Node] = []

    def _part(self, _: str, leaf: Any) -> Any:
        """One micro-batch of an array; anything else as it is."""
        if not isinstance(leaf, Tensor) or not leaf.ndim:
            return leaf
        part = self._symbol(f"x.{leaf.value.name}", Type((self.size, *leaf.shape[1:]), leaf.dtype))
        self.parts[part.value] = leaf
        return part

    def trace(self, fn: Callable[..., Any]) -> Any:
        """Return the results of a micro-batch, after cutting and differentiating the function."""
        with self.building():
            result = fn(*self.args)
            result = tree.map_leaves(lambda _, leaf: self.own(functions.as_tensor(leaf)), result)
            loss = None
            if self.trains:
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
            self._renew()
        self._agree()
        self._gather_nodes(result)
        return result

    def _cut(self) -> None:
        """Cut the function into stages, each of which owns the parameters that it reads first."""
        parallel, flow = self.parallel, self.flow
        buffers = {self.weights[n].value: self.parameters[n].state for n in self.weights}
        known = {v: parallel.owner(b) for v, b in buffers.items()}
        owned = {v: stage for v, stage in known.items() if stage is not None}
        if owned:
            cuts = stage_cuts.kept(flow, owned, self.count)
        elif parallel.stages is not None:
            cuts = stage_cuts.named(flow, parallel.stages)
        else:
            cuts = stage_cuts.balanced(flow, self.count)
        self.stages = [Stage(0, []), *(Stage(cut, flow.crossing(cut)) for cut in cuts)]
        self.owner = {v: self.stage_at(flow.reach[v][0]) for v in buffers if v in flow.reach}
        for stage in range(self.count):
            if stage not in self.owner.values():
                raise error(
                    f"stages: expected each to be the first to read a trained parameter, stage "
                    f"{stage} reads none"
                )
        parallel.give({buffers[v]: stage for v, stage in self.owner.items()})

    def stage_at(self, number: int) -> int:
        """Return the stage of a moving node."""
        return max(s for s, stage in enumerate(self.stages) if stage.first <= number)

    def stage_of(self, value: Value) -> int | None:
        """Return the stage that makes a value; None if every stage does."""
        found = self.flow.reach.get(value)
        return None if found is None else self.stage_at(found[0])

    def _differentiate(self, loss: Tensor) -> None:
        """Append the gradient of each stage, from the last to the first."""
        moving = self.flow.moving
        number = {id(node): n for n, node in enumerate(self.forward)}
        if self.stage_of(loss.value) != self.count - 1:
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

    def _renew(self) -> None:
        """Take the forward nodes as they are by now: gradients of loops have added results."""
        new = dict(zip(map(id, self.forward), self.nodes, strict=False))
        self.forward = tuple(new.values())
        moving = [new[id(node)] for node in self.flow.moving]
        self.flow = replace(self.flow, nodes=self.forward, moving=moving)
        self.moves = {id(node) for node in moving}

    def _wide(self, tensor: Tensor) -> Tensor:
        return functions.astype(tensor, "f32") if tensor.dtype in NARROW else tensor

    def _agree(self) -> None:
        """Compare the function and its cuts with those of the other ranks. All call this."""
        text = "\n".join(
            f"{n.op.name} {n.op.attributes} {[v.name for v in n.inputs]} {n.outputs}"
            for n in self.forward
        )
        self.parallel.group.compare(
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
        """The stage that changes state to a value: that of the last moving node up to its maker."""
        place = next((n for n, node in enumerate(self.forward) if new in node.outputs), 0)
        ahead = sum(id(node) in self.moves for node in self.forward[: place + 1])
        return self.stage_at(max(0, ahead - 1))

    def contents_before(self) -> dict[Value, Tensor]:
        """Return the contents, before the first micro-batch, of state that the function changes."""
        return {state: Tensor(before, self.outer) for state, (before, _) in self.assigned.items()}

    def contents_inside(self) -> dict[Value, Value]:
        """Return what stands, in a micro-batch, for the contents of such state before it."""
        return {
            state: self._symbols["contents", before].value
            for state, (before, _) in self.assigned.items()
        }
