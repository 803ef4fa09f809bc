"""Parameter groups: parts of a model that are updated with arguments of their own.

A group is a rule of the same class, made with the rule's arguments and those of the group. So any
argument of any rule can be set in a group, and its errors are those of the rule.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from graphc.base.source_lines import error
from graphc.nn.parameter import Parameter
from graphc.nn.selection import Selection
from graphc.optim.construction import holds_groups

Rate = float | Callable[[int], float]
COMMON = ("groups", "clip_grad_norm", "ema", "maximize")
"""Arguments that are those of the whole rule."""


class Rated(Protocol):
    """A rule as its groups see it."""

    def __init__(self, **arguments: Any) -> None: ...
    @property
    def lr(self) -> Rate: ...
    @property
    def step(self) -> int: ...
    def number(self, name: str, value: object) -> float: ...


R = TypeVar("R", bound=Rated)


class Group(Generic[R]):
    """Group `number` of `rule`: `member` updates the parameters of `selection`.

    Its learning rate is that of the rule until it is set.
    """

    def __init__(self, rule: R, number: int, member: R, selection: Selection) -> None:
        self.rule, self.number, self.member, self.selection = rule, number, member, selection
        self._lr: Rate | None = None

    @property
    def lr(self) -> Rate:
        """The learning rate or schedule; setting it takes effect at the next step.

        Raises:
            GraphError: The number is negative or not finite.
        """
        return self.rule.lr if self._lr is None else self._lr

    @lr.setter
    def lr(self, value: Rate) -> None:
        self.rule.number("lr", value(self.rule.step) if callable(value) else value)
        self._lr = value

    @property
    def own_lr(self) -> Rate | None:
        """The learning rate or schedule that was set for this group; None if it is the rule's."""
        return self._lr

    def follow(self) -> None:
        """Let the learning rate be that of the rule, as before it was set."""
        self._lr = None

    def rate_at(self, step: int) -> float:
        """Return the learning rate after `step` finished steps."""
        lr = self.lr
        return self.rule.number("lr", lr(step) if callable(lr) else lr)

    def restore(self, rate: float, of_rule: float) -> None:
        """Restore the learning rates of the group and of its rule; a schedule stays."""
        if not callable(self.lr) and (self._lr is not None or rate != of_rule):
            self._lr = rate


def make_groups(rule: R, wanted: object, given: Mapping[str, Any]) -> tuple[Group[R], ...]:
    """Return the groups of `rule` from dicts with `params` and arguments of the rule.

    `given` are the arguments of the rule. It raises GraphError for anything else, and if two groups
    list the same parameter.
    """
    name = type(rule).__name__
    if not holds_groups(wanted) and wanted != ():
        raise error(f"{name}: groups expected a list of dicts that hold 'params', got {wanted!r}")
    groups = tuple(_make(rule, i, dict(group), given) for i, group in enumerate(wanted))
    owner: dict[int, int] = {}
    for group in groups:
        for parameter in group.selection.listed:
            first = owner.setdefault(id(parameter), group.number)
            if first != group.number:
                raise error(
                    f"{name}: groups[{group.number}] lists a parameter {parameter.type} that "
                    f"groups[{first}] lists too"
                )
    return groups


def group_of(groups: Sequence[Group[R]], parameter: Parameter, name: str) -> Group[R]:
    """Return the group that lists the parameter, else the first that accepts its name."""
    for group in groups:
        if group.selection.lists(parameter):
            return group
    for group in groups:
        if group.selection.accepts(name):
            return group
    raise error(
        f"{type(groups[0].rule).__name__}: {name} is in none of the groups; compile's train= "
        'leaves parameters out, a last group {"params": lambda name: True} takes what is left'
    )


def _make(rule: R, number: int, options: dict[str, Any], given: Mapping[str, Any]) -> Group[R]:
    said = f"{type(rule).__name__}: groups[{number}]"
    selection = Selection(said, options.pop("params"))
    _, *names = inspect.signature(type(rule).__init__).parameters
    known = [name for name in names if name not in COMMON]
    unknown = next((key for key in options if key not in known), None)
    if unknown is not None:
        raise error(f"{said}: expected params, {', '.join(known)}, got {unknown!r}")
    own = {name: value for name, value in given.items() if name not in COMMON}
    group = Group(rule, number, type(rule)(**{**own, **options}), selection)
    if "lr" in options:
        group.lr = options["lr"]
    return group
