"""The gradient of a loss and the update of parameters, appended to a traced graph.

For the plan cache, the update alone can be written as text without differentiation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphc.base.errors import GraphError
from graphc.base.source_lines import error
from graphc.gradients.reverse import check_scalar_loss, gradients, one_like
from graphc.ir import Graph, Type, Where
from graphc.ir.state import StateBuffer
from graphc.nn.parameter import Parameter
from graphc.nn.selection import Selection
from graphc.optim.loss_scale import loss_scale, scaled_seed, skip_overflows, unscaled
from graphc.optim.rule import Rule
from graphc.optim.slices import Slices
from graphc.parallel.options import DataParallel
from graphc.program.averages import averaged
from graphc.program.tracing import Traced
from graphc.trace import Builder, Tensor

Buffers = Mapping[str, StateBuffer]


@dataclass(frozen=True)
class Differentiated:
    """The graph that the passes after differentiation start from."""

    graph: Graph
    buffers: Buffers
    """Of its state, by name."""
    read: Sequence[str] = ()
    """The parameters among those that may change that the loss depends on."""
    updated: Sequence[str] = ()
    """Those that have a gradient."""


@dataclass(frozen=True)
class Update:
    """The parameters that `compile` must update, and the rule."""

    traced: Traced
    rule: Rule
    allowed: Mapping[str, Parameter]
    """The parameters that may change, by name, and others that are not trainable."""
    trainable: dict[str, bool]
    """Whether each of them was, when `compile` was called."""
    selected: bool
    """Whether `train` chose them."""
    scales: bool = False
    """Whether the loss is scaled, and steps whose gradients overflow are skipped."""
    parallel: DataParallel | None = None
    """The ranks over which gradients are averaged; None for a process by itself."""
    by_kernels: bool = False
    """Whether kernels, rather than messages, add the gradients of ranks."""
    clipped: bool = False
    """Whether gradients are given that are clipped already, where other ranks have some of them."""

    @classmethod
    def of(
        cls,
        traced: Traced,
        rule: Rule,
        selection: Selection | None,
        scales: bool = False,
        parallel: DataParallel | None = None,
        by_kernels: bool = False,
        clipped: bool = False,
    ) -> Update:
        """Return the update of a selection of the program's parameters.

        It raises GraphError for a selection that the arguments do not hold; and, without a
        selection, for a trainable parameter that is read but is no argument.
        """
        if selection is None:
            refuse_closures(traced, "update=")
        allowed = traced.parameters if selection is None else selection.of(traced.parameters)
        trainable = {name: p.trainable for name, p in allowed.items()}
        scales = scales or (bool(traced.builder.applied) and rule.scales_losses())
        selected = selection is not None
        return cls(
            traced, rule, allowed, trainable, selected, scales, parallel, by_kernels, clipped
        )

    def differentiate(self, graph: Graph) -> Differentiated:
        """Append the gradient of the first output and the update of the parameters to the graph.

        It raises GraphError if the loss is no scalar or depends on no trainable parameter.
        """
        builder = Builder.extend(graph, self.traced.builder)
        outputs = [Tensor(v, builder) for v in graph.outputs]
        count = len(outputs) - len(self.traced.builder.applied)
        outputs, given = outputs[:count], outputs[count:]
        read = [name for name in self.allowed if name in builder.buffers]
        with builder.building():
            pairs = self._given(given) if given else self._of_loss(builder, outputs, read)
            slices = self._slices(pairs)
            if self.parallel is not None:
                pairs, outputs = averaged(
                    builder, self.parallel, pairs, outputs, slices, self.by_kernels
                )
            self._emit(builder, pairs, slices)
        updated = [name for name, _ in pairs]
        read = list(dict.fromkeys([*read, *updated]))
        return Differentiated(builder.graph(outputs), builder.buffers, read, updated)

    def _of_loss(
        self, builder: Builder, outputs: Sequence[Tensor], read: Sequence[str]
    ) -> list[tuple[str, Tensor]]:
        """Differentiate the loss, the first output: (name of a parameter, its gradient)."""
        if not outputs:
            raise error("with update=, the function returns the loss, got nothing")
        check_scalar_loss(outputs[0])
        trained = [name for name in read if self.trainable[name]]
        if not trained:
            found = self._reason_without_gradient(read)
            raise error(f"with update=, the loss depends on trainable parameters, {found}")
        weights = [builder.read_state(self.allowed[name].state) for name in trained]
        with builder.at(Where(derived=True)):
            seed = scaled_seed(builder, outputs[0]) if self.scales else one_like(outputs[0])
        grads = gradients(outputs[:1], [seed], weights, builder)
        pairs = [(n, g) for n, g in zip(trained, grads, strict=True) if g is not None]
        return [(n, unscaled(builder, g)) for n, g in pairs] if self.scales else pairs

    def _given(self, tensors: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
        """The gradients that the function gave: (name of a parameter, its gradient)."""
        names = {id(p.state): name for name, p in self.allowed.items()}
        pairs: dict[str, Tensor] = {}
        for (parameter, _), tensor in zip(self.traced.builder.applied, tensors, strict=True):
            name = names.get(id(parameter.state))
            if name is not None and name in pairs:
                raise error(f"apply: {name} has two gradients")
            if name is not None:
                pairs[name] = tensor
        if not pairs:
            found = self._reason_without_gradient([])
            raise error(f"with update=, gradients of trainable parameters are applied, {found}")
        return list(pairs.items())

    def _slices(self, pairs: Sequence[tuple[str, Tensor]]) -> Slices | None:
        """How the update is divided among ranks, or GraphError; None if it is not."""
        parallel = self.parallel
        if parallel is None or not parallel.divides_state:
            return None
        if self.scales:
            raise error(
                "shard_optimizer_state: expected no scaled loss, since skipping a step needs whole "
                "gradients: mixed='bfloat16' has none"
            )
        self.rule.check_slices([(self.allowed[n], g, n) for n, g in pairs], parallel.ranks)
        return Slices(parallel.rank, parallel.ranks, parallel.group.gathered, self.by_kernels)

    def _emit(
        self,
        builder: Builder,
        pairs: Sequence[tuple[str, Tensor]],
        slices: Slices | None = None,
    ) -> None:
        """Append the rule's updates by the gradients of the named parameters."""
        if self.scales:
            loss_scale(builder)
        gradients = [(self.allowed[name], g, name) for name, g in pairs]
        if self.clipped:
            self.rule.emit_slices(builder, gradients, None, clipped=True)
        elif slices is None:
            self.rule.emit(builder, gradients)
        else:
            self.rule.emit_slices(builder, gradients, slices)
        if self.scales:
            skip_overflows(builder, [g for _, g in pairs], ("random.step",))

    def _reason_without_gradient(self, read: Sequence[str]) -> str:
        """What there is where the loss depends on no parameter that may change."""
        if self.selected:
            return "train= names none that are"
        if read:
            return "all that it reads are frozen"
        if self.allowed:
            return "it reads none of those of the arguments"
        return "found none among the arguments: give the module to compile as an argument"

    def note(self, read: Sequence[str]) -> None:
        """Record parameters that must stay trainable; calls of the program check it."""
        noted = self.traced.builder.trainable_read
        noted += [(name, self.allowed[name], self.trainable[name]) for name in read]

    def _input(self, name: str) -> tuple[str, Type]:
        """What stands for a parameter's gradient; the name says what `emit` may do with it."""
        parameter = self.allowed[name]
        rows = self.rule.updates_rows(parameter, name)
        return f"{name}{'.rows' * rows}", parameter.type

    def outline(self, graph: Graph, names: Sequence[str]) -> tuple[Graph, Buffers] | None:
        """Append only the update of the named parameters to a traced graph.

        The gradients are inputs.

        Its text tells two rules apart as that of the whole program would. It returns None for a
        rule with an `emit` of its own, which may depend on how a gradient was computed, or that
        refuses some parameters; and for an update that is divided among ranks.
        """
        divided = self.parallel is not None and self.parallel.divides_state
        if type(self.rule).emit is not Rule.emit or self.rule.only_rows or divided:
            return None
        builder = Builder.extend(graph, self.traced.builder)
        with builder.building():
            self._emit(builder, [(n, builder.input(*self._input(n))) for n in names])
        whole = builder.graph([])
        ranks = "" if self.parallel is None else f".{self.parallel.described}"
        return (
            Graph(
                f"{whole.name}{ranks}",
                (),
                whole.state,
                whole.nodes[len(graph.nodes) :],
                (),
                whole.updates,
            ),
            builder.buffers,
        )


def refuse_closures(traced: Traced, said: str) -> None:
    """Raise GraphError if the function reads a trainable parameter that no argument holds."""
    for parameter, lines in traced.closures:
        if parameter.trainable:
            raise GraphError(
                f"with {said}, the function reads a parameter {parameter.type} that is not among "
                "its arguments and would not be trained: give its module to compile as an "
                f"argument, or say with train= what to train ({', '.join(lines)})"
            )
