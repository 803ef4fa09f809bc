"""The base of all optimizers: gradient clipping, weight averages and the updates of parameters.

A rule writes its arithmetic into the training program's graph, so that a step needs no work on the
host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc import functions
from graphc.base.errors import GraphError
from graphc.base.source_lines import error, user_line
from graphc.ir import NARROW, Type, Where
from graphc.ir.state import StateBuffer
from graphc.nn.parameter import Parameter
from graphc.optim.clock import Clock
from graphc.optim.construction import checked
from graphc.optim.groups import Group
from graphc.optim.loss_scale import SCALE
from graphc.optim.rows import Lookups, RowGradient
from graphc.optim.slices import Slices, is_elementwise
from graphc.optim.stateful import Gradient, Groups, Stateful
from graphc.trace import Builder, Tensor

__all__ = ["Gradient", "Groups", "Rule"]


class Rule(Stateful):
    """Base class of all optimizers; a subclass defines `moments` and `apply`.

    `groups` is a list of dicts, which as in PyTorch may also be the first argument. In each,
    "params" is a module, a list of modules or parameters, or a predicate on names; the other items
    replace the rule's arguments for these parameters. With `ema` the rule keeps running averages,
    average = ema * average + (1 - ema) * w after each step, and w itself after the first;
    `averaged` returns a model of them.

    Args:
        lr: The learning rate, or a schedule: a function from the number of finished steps to one.
        weight_decay: The weight decay, which `apply` uses.
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups, as above.
        ema: The decay rate of the running averages; None keeps none.
        maximize: Whether to increase the loss.

    Example:
        >>> class SignSGD(optim.Rule):
        ...     def __init__(self, lr=0.01):
        ...         super().__init__(lr, weight_decay=0.0, clip_grad_norm=None)
        ...     def apply(self, weight, gradient, moments, scalars):
        ...         return (weight - scalars[0] * graphc.sign(gradient),)
        ...
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=SignSGD())
        >>> bool(step() > step())
        True
    """

    only_rows = False
    """Whether tables are updated by the rows that a step reads, however many these are."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            setattr(cls, "__init__", checked(vars(cls)["__init__"]))  # noqa: B010

    def scalars(self, rate: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        """Return traced scalars that all parameters share.

        Args:
            rate: The learning rate f32 [].
            step: The number of the step f32 [], from 1 up.
        """
        return (rate,)

    def counts_steps(self) -> bool:
        """Return whether `scalars` depends on the number of the step.

        If so, the steps of each parameter are counted; else those of a model are enough.
        """
        builder = Builder("scalars")
        with builder.building():
            rate, step = (builder.input(name, Type((), "f32")) for name in ("rate", "step"))
            self.scalars(rate, step)
        return any(step.value in node.inputs for node in builder.nodes)

    def keeps_unread(self) -> bool:
        """Whether an element whose gradient is 0 keeps its value and its moments.

        Then only the rows of a table that a step reads are written.
        """
        return False

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Return the new weight and the new moments, by pointwise ops.

        Args:
            weight: The parameter.
            gradient: Its gradient.
            moments: Its moments, in the order of `moments`.
            scalars: What `scalars` returns.
        """
        raise GraphError(f"{type(self).__name__} has no apply method ({', '.join(user_line())})")

    def decayed(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient plus weight_decay * w."""
        return gradient + self.weight_decay * weight if self.weight_decay else gradient

    def shrunk(self, weight: Tensor, rate: Tensor) -> Tensor:
        """Return the weight, shrunk by decoupled weight decay."""
        return weight * (1 - rate * self.weight_decay) if self.weight_decay else weight

    def emit(self, builder: Builder, gradients: Sequence[Gradient]) -> None:
        """Append the updates of all parameters, moments and counters to the graph."""
        self.emit_slices(builder, gradients, None)

    def emit_slices(
        self,
        builder: Builder,
        gradients: Sequence[Gradient],
        slices: Slices | None,
        clipped: bool = False,
    ) -> None:
        """Append the updates of this rank's slices of all parameters, and what `emit` does.

        Args:
            builder: The program under construction.
            gradients: What `emit` takes; with `slices`, this rank's slice of each gradient.
            slices: How updates are divided among ranks; None if they are not.
            clipped: Whether gradients are clipped already.
        """
        called = type(self).__name__.lower()
        self._remember(gradients, slices)
        sliced: list[tuple[str, Tensor, Tensor]] = []
        clock = self._clock_for(gradients)
        counters = self._counters(gradients, clock)
        self._share(builder, clock)
        with builder.at(Where(derived=True, function=called)):
            following = self._count(builder, clock, counters)
            shared = {
                (group, counter): self._scalars(builder, clock, group, following[counter])
                for group, counter in dict.fromkeys(
                    (self._group_of(p, name), counter)
                    for (p, _, name), counter in zip(gradients, counters, strict=True)
                )
            }
            rows = self._rows(builder, gradients)
            parts = [
                g if r is None else r.values for (_, g, _), r in zip(gradients, rows, strict=True)
            ]
            scale = None if clipped else self._scale(parts)
        for (parameter, _, name), counter, few, part in zip(
            gradients, counters, rows, parts, strict=True
        ):
            group = self._group_of(parameter, name)
            with builder.at(Where(name.rpartition(".")[0], (), True, called)):
                buffers = self._moments[parameter.state]
                old = [builder.read_state(parameter.state, name)]
                old += [builder.read_state(b, f"{m}.{name}") for m, b in buffers.items()]
                read = old if few is None else [few.of(state) for state in old]
                if slices is not None:
                    read = [slices.of(builder, old[0], name), *old[1:]]
                weight, *moments = map(_wide, read)
                wide = _wide(part)
                wide = -wide if self.maximize else wide
                scaled = wide if scale is None else wide * _cast(scale, wide)
                scalars = tuple(_cast(s, weight) for s in shared[group, counter])
                average = moments.pop() if self.ema is not None else None
                member = self if group is None else group.member
                new = member.apply(weight, scaled, tuple(moments), scalars)
                if average is not None:
                    new = *new, self._averaged(average, new[0], following[counter])
                for state, tensor in zip(old, new, strict=True):
                    changed = _cast(tensor, state)
                    if slices is not None and state is old[0]:
                        sliced.append((name, state, changed))
                    else:
                        builder.update(state, changed if few is None else few.put(state, changed))
        if slices is not None:
            with builder.at(Where(derived=True, function=called)):
                slices.put(builder, sliced)

    def share(self, builder: Builder, gradients: Sequence[Gradient]) -> None:
        """Bind the loss scale and the counters of a program that computes gradients for this rule.

        They are those of the programs that update the same parameters.
        """
        self._share(builder, self._clock_for(gradients))

    def scales_losses(self) -> bool:
        """Return whether a program scales its loss for this rule."""
        return any(SCALE in clock.shared for clock in self._clocks)

    def updates_rows(self, parameter: Parameter, name: str) -> bool:
        """Return whether a step may write only the rows of this parameter that it reads."""
        group = self._group_of(parameter, name)
        member = self if group is None else group.member
        # What a class says does not hold of a subclass that computes something else.
        says, computes = (_definer(member, method) for method in ("keeps_unread", "apply"))
        return self.ema is None and issubclass(says, computes) and member.keeps_unread()

    def check_slices(self, gradients: Sequence[Gradient], ranks: int) -> None:
        """Raise GraphError unless ranks can each update a slice of every parameter."""
        said = f"shard_optimizer_state: {type(self).__name__}"
        if type(self).emit is not Rule.emit:
            raise error(f"{said} has an emit of its own, expected one that defines apply")
        for name in ("clip_grad_norm", "ema"):
            if getattr(self, name) is not None:
                raise error(f"{said} expected {name}=None, which needs whole gradients or weights")
        known: dict[tuple[Rule, Type], bool] = {}
        for parameter, _, name in gradients:
            group = self._group_of(parameter, name)
            member, kind = self if group is None else group.member, parameter.type
            if (member, kind) not in known:
                known[member, kind] = is_elementwise(member._applied, kind, ranks)
            if not known[member, kind]:
                raise error(
                    f"{said} updates {name} : {parameter.type} by more than each element's own "
                    "gradient, expected a rule such as Adam"
                )

    def _applied(self, kind: Type) -> Builder:
        """The graph of the update of a parameter of a type alone."""
        builder = Builder("apply")
        with builder.building():
            rate, step = (builder.input(name, Type((), "f32")) for name in ("rate", "step"))
            wide = Type(kind.shape, "f32" if kind.dtype in NARROW else kind.dtype)
            names = ("weight", "gradient", *self.moments)
            weight, gradient, *moments = (builder.input(name, wide) for name in names)
            scalars = tuple(_cast(s, weight) for s in self.scalars(rate, step))
            self.apply(weight, gradient, tuple(moments), scalars)
        return builder

    def _rows(self, builder: Builder, gradients: Sequence[Gradient]) -> list[RowGradient | None]:
        """Of each gradient the rows that lookups read, where no other row changes by it."""
        may = [self.updates_rows(parameter, name) for parameter, _, name in gradients]
        if not any(may):
            return [None] * len(may)
        made = {value: node for node in builder.nodes for value in node.outputs}
        rows: list[RowGradient | None] = []
        for (parameter, gradient, name), known in zip(gradients, may, strict=True):
            found = Lookups.of(builder, made, gradient) if known else None
            if found is None and self.only_rows:
                raise error(
                    f"{type(self).__name__}: expected gradients of lookups (embedding, take) alone,"
                    f" that of {name} : {parameter.type} has other parts: update it by optim.Adam"
                )
            rows.append(found.rows() if found and (self.only_rows or found.is_sparse) else None)
        return rows

    def _count(
        self, builder: Builder, clock: Clock, counters: Sequence[StateBuffer]
    ) -> dict[StateBuffer, Tensor]:
        """Let the model's steps and the parameters' go up by one; the numbers of this step."""
        following = {}
        for counter in dict.fromkeys([clock.step, *counters]):
            step = builder.read_state(counter, self._counter_name(counter))
            following[counter] = step + 1
            builder.update(step, following[counter])
        return following

    def _scalars(
        self, builder: Builder, clock: Clock, group: Group[Rule] | None, following: Tensor
    ) -> tuple[Tensor, ...]:
        """Return what the parameters of a group and a counter share.

        The group is None for a rule without groups.
        """
        step = functions.astype(following, "float32")
        if group is None:
            return self.scalars(builder.read_state(clock.rate, "lr"), step)
        rate = builder.read_state(clock.rates[group.number], f"groups.{group.number}.lr")
        return group.member.scalars(rate, step)

    def _averaged(self, average: Tensor, weight: Tensor, step: Tensor) -> Tensor:
        """The running average after step number `step`, the first of which is 1."""
        assert self.ema is not None
        moved = average + (weight - average) * (1 - self.ema)
        return functions.where(functions.equal(step, 1), weight, moved)

    def _scale(self, gradients: Sequence[Tensor]) -> Tensor | None:
        """The factor that brings the norm of all gradients down to `clip_grad_norm`."""
        if self.clip_grad_norm is None or not gradients:
            return None
        squares = [functions.sum(functions.square(_wide(gradient))) for gradient in gradients]
        total = functions.sqrt(sum(squares[1:], start=squares[0]))
        return functions.minimum(self.clip_grad_norm / (total + 1e-6), 1.0)


def _definer(rule: Rule, method: str) -> type:
    """The class that a rule has a method from."""
    return next(kind for kind in type(rule).__mro__ if method in vars(kind))


def _wide(tensor: Tensor) -> Tensor:
    """`tensor` as an update computes with it: one rounding per step, at the end."""
    return functions.astype(tensor, "f32") if tensor.dtype in NARROW else tensor


def _cast(scalar: Tensor, like: Tensor) -> Tensor:
    return scalar if scalar.dtype == like.dtype else functions.astype(scalar, like.dtype)
