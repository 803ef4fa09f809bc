"""The gradient and the update of the parameters, behind a traced loss; and what an update is
recognised by where neither has to be made."""

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
from graphc.optim.rule import Rule
from graphc.program.tracing import Traced
from graphc.trace import Builder, Tensor

Buffers = Mapping[str, StateBuffer]


@dataclass(frozen=True)
class Differentiated:
    """What the passes behind the gradient begin with."""

    graph: Graph
    buffers: Buffers
    """Of its state, by name."""
    read: Sequence[str] = ()
    """The parameters among those that may change that the loss depends on."""
    updated: Sequence[str] = ()
    """Those that have a gradient."""


@dataclass(frozen=True)
class Update:
    """What `compile` is asked to update, and how."""

    traced: Traced
    rule: Rule
    allowed: Mapping[str, Parameter]
    """The parameters that may change, by name, and others that are not trainable."""
    trainable: dict[str, bool]
    """Whether each of them was, when `compile` was called."""
    selected: bool
    """Whether `train` chose them."""

    @classmethod
    def of(cls, traced: Traced, rule: Rule, selection: Selection | None) -> Update:
        """GraphError for a selection of what the program's arguments do not hold, and, without a
        selection, for a trainable parameter that is read and is no argument."""
        if selection is None:
            _refuse_closures(traced)
        allowed = traced.parameters if selection is None else selection.of(traced.parameters)
        trainable = {name: p.trainable for name, p in allowed.items()}
        return cls(traced, rule, allowed, trainable, selection is not None)

    def differentiate(self, graph: Graph) -> Differentiated:
        """The graph with the gradient of its first output and the update of the parameters.
        GraphError if the loss is no scalar or depends on nothing that may change."""
        builder = Builder.extend(graph, self.traced.builder)
        outputs = [Tensor(v, builder) for v in graph.outputs]
        if not outputs:
            raise error("with update=, the function returns the loss, got nothing")
        check_scalar_loss(outputs[0])
        read = [name for name in self.allowed if name in builder.buffers]
        trained = [name for name in read if self.trainable[name]]
        if not trained:
            found = self._found_instead(read)
            raise error(f"with update=, the loss depends on trainable parameters, {found}")
        weights = [builder.read_state(self.allowed[name].state) for name in trained]
        with builder.building():
            with builder.at(Where(derived=True)):
                seed = one_like(outputs[0])
            grads = gradients(outputs[:1], [seed], weights, builder)
            pairs = [(n, g) for n, g in zip(trained, grads, strict=True) if g is not None]
            self.rule.emit(builder, [(self.allowed[n], g, n) for n, g in pairs])
        updated = [name for name, _ in pairs]
        return Differentiated(builder.graph(outputs), builder.buffers, read, updated)

    def _found_instead(self, read: Sequence[str]) -> str:
        """What there is where the loss depends on no parameter that may change."""
        if self.selected:
            return "train= names none that are"
        if read:
            return "all that it reads are frozen"
        if self.allowed:
            return "it reads none of those of the arguments"
        return "found none among the arguments: give the module to compile as an argument"

    def note(self, read: Sequence[str]) -> None:
        """Let the program refuse to run when one of these parameters is no longer trainable, or
        is so by now."""
        noted = self.traced.builder.trainable_read
        noted += [(name, self.allowed[name], self.trainable[name]) for name in read]

    def _input(self, name: str) -> tuple[str, Type]:
        """What stands for a parameter's gradient; the name says what `emit` may do with it."""
        parameter = self.allowed[name]
        rows = self.rule.updates_rows(parameter, name)
        return f"{name}{'.rows' * rows}", parameter.type

    def outline(self, graph: Graph, names: Sequence[str]) -> tuple[Graph, Buffers] | None:
        """The update alone, behind the traced `graph`, of the parameters of these names: their
        gradients are inputs. Its text tells two rules apart as that of the whole program would. The
        buffers are those of the whole program. None if a rule has an `emit` of its own, which may
        look at how a gradient was computed, or refuses some."""
        if type(self.rule).emit is not Rule.emit or self.rule.only_rows:
            return None
        builder = Builder.extend(graph, self.traced.builder)
        with builder.building():
            pairs = [(self.allowed[n], builder.input(*self._input(n)), n) for n in names]
            self.rule.emit(builder, pairs)
        whole = builder.graph([])
        return (
            Graph(whole.name, (), whole.state, whole.nodes[len(graph.nodes) :], (), whole.updates),
            builder.buffers,
        )


def _refuse_closures(traced: Traced) -> None:
    """GraphError if the function reads a trainable parameter that its arguments do not hold."""
    for parameter, lines in traced.closures:
        if parameter.trainable:
            raise GraphError(
                f"with update=, the function reads a parameter {parameter.type} that is not among "
                "its arguments and would not be trained: give its module to compile as an "
                f"argument, or say with train= what to train ({', '.join(lines)})"
            )
