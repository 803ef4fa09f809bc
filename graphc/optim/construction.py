"""Construct optimizers: groups as the first argument, as in PyTorch, and arguments kept."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeGuard

from graphc.base.source_lines import error
from graphc.nn.module import Module
from graphc.nn.parameter import Parameter


class Made(Protocol):
    """A rule, which keeps the arguments it was made with."""

    _given: dict[str, Any]


def checked(initialize: Callable[..., None]) -> Callable[..., None]:
    """Wrap a rule's `__init__` to take groups first, as in PyTorch, and to keep its arguments.

    It raises GraphError where parameters come first. The check is here, outside of `__init__`,
    since SGD(model.parameters(), lr=0.1) would give `lr` twice.
    """

    @functools.wraps(initialize)
    def checking(self: Made, *args: Any, **kwargs: Any) -> None:
        if args and holds_groups(args[0]) and "groups" not in kwargs:
            args, kwargs = args[1:], {**kwargs, "groups": args[0]}
        if args and _holds_parameters(args[0]):
            raise error(
                f"{type(self).__name__}: parameters are found by graphc.compile; give only lr and "
                "the rule's other numbers"
            )
        if not hasattr(self, "_given"):  # else a subclass's __init__ is under way
            self._given = _arguments_of(initialize, self, args, kwargs)
        initialize(self, *args, **kwargs)

    return checking


def holds_groups(value: object) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    """Return whether `value` is a list of dicts with `params`."""
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(item, Mapping) and "params" in item for item in value)
    )


def _arguments_of(
    initialize: Callable[..., None], rule: Made, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a rule's `__init__` by name; empty if they do not fit.

    `__init__` itself then raises the error.
    """
    try:
        bound = inspect.signature(initialize).bind(rule, *args, **kwargs)
    except TypeError:
        return {}
    _, *names = bound.arguments
    return {name: bound.arguments[name] for name in names}


def _holds_parameters(value: object) -> bool:
    """Whether `value` is what PyTorch's optimizers are given first: parameters, however held."""
    if isinstance(value, (Parameter, Module, Iterator)):
        return True
    if isinstance(value, Mapping):
        return "params" in value or any(_holds_parameters(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(_holds_parameters(item) for item in value)
