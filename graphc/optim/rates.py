"""The learning rates of a rule as data, for files; of schedules, that there is one."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.base.errors import GraphError
from graphc.optim.clock import Clock
from graphc.optim.groups import Rate
from graphc.optim.stateful import Stateful

SCHEDULE = "schedule"
"""What stands for a rate that is a function of the step."""
LARGEST = 2.0**128
"""Programs hold rates as float32."""
RULE = "rule"
"""What stands for a group's rate that is the rule's."""


def rates_of(rule: Stateful) -> list[float | str]:
    """Return the rates of a rule and of each of its groups."""
    groups = [RULE if group.own_lr is None else _shown(group.own_lr) for group in rule.groups]
    return [_shown(rule.lr), *groups]


def check_rates(rule: Stateful, rates: Sequence[float | str], place: str) -> None:
    """Raise GraphError, which begins with `place`, if `restore_rates` could not set these rates."""
    if len(rates) != 1 + len(rule.groups):
        raise GraphError(
            f"{place}: was saved with {len(rates) - 1} parameter groups, the rule has "
            f"{len(rule.groups)}"
        )
    for own, rate in zip([rule.lr, *(group.own_lr for group in rule.groups)], rates, strict=True):
        if rate == SCHEDULE and not callable(own):
            raise GraphError(
                f"{place}: was saved with a schedule of learning rates, the rule has {own}: make "
                "the rule with its schedule"
            )
        if not isinstance(rate, str):
            rule.number("lr", rate, below=LARGEST)


def restore_rates(rule: Stateful, rates: Sequence[float | str], clock: Clock) -> None:
    """Set the rates that `rates_of` returned for a rule whose state was just restored.

    Schedules stay: their position is the number of finished steps.

    Args:
        rule: The rule.
        rates: The rates; see `check_rates`.
        clock: The counters of the model, which hold the number of steps by now.
    """
    clock.loaded = clock.finished
    if not isinstance(rates[0], str):
        rule.lr = rates[0]
    for group, rate in zip(rule.groups, rates[1:], strict=True):
        if rate == RULE:
            group.follow()
        elif not isinstance(rate, str):
            group.lr = rate


def _shown(rate: Rate) -> float | str:
    return SCHEDULE if callable(rate) else float(rate)
