"""Select parameters by module, by list, or by a predicate on names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from graphc.base.source_lines import error
from graphc.nn.module import Module
from graphc.nn.parameter import Parameter

Predicate = Callable[[str], Any]


class Selection:
    """The parameters that `what` selects.

    `what` is a module, a parameter, an iterable of both, or a predicate on names such as
    `encoder.fc1.weight`. For anything else it raises GraphError, whose message begins with `said`.
    """

    def __init__(self, said: str, what: Any) -> None:
        self.said = said
        self.predicate: Predicate | None = None
        self.entries: tuple[Module | Parameter, ...] = ()
        if isinstance(what, Module | Parameter):
            self.entries = (what,)
        elif callable(what) and not isinstance(what, type):
            self.predicate = what
        elif isinstance(what, Iterable) and not isinstance(what, str | Mapping):
            self.entries = tuple(what)
        else:
            self._refuse(what)
        for entry in self.entries:
            if not isinstance(entry, Module | Parameter):
                self._refuse(entry)
        listed = {id(p): p for entry in self.entries for p in _parameters(entry)}
        self.listed = tuple(listed.values())
        """The parameters of all entries, each once."""

    def lists(self, parameter: Parameter) -> bool:
        """Return whether an entry holds the parameter."""
        return any(p is parameter for p in self.listed)

    def accepts(self, name: str) -> bool:
        """Return whether a predicate is true of `name`."""
        return self.predicate is not None and bool(self.predicate(name))

    def of(self, parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
        """Return the selected parameters; raise GraphError for an entry that selects none."""
        for entry in self.entries:
            own = list(_parameters(entry))
            if not any(p is q for p in own for q in parameters.values()):
                kind = type(entry).__name__
                raise error(f"{self.said}: none of the program's arguments holds this {kind}")
        return {n: p for n, p in parameters.items() if self.lists(p) or self.accepts(n)}

    def _refuse(self, got: Any) -> None:
        kind = f"the class {got.__name__}" if isinstance(got, type) else type(got).__name__
        raise error(
            f"{self.said}: expected a module, a parameter, a list of them or a function of a "
            f"parameter's name, got {kind}"
        )


def _parameters(entry: Module | Parameter) -> Iterator[Parameter]:
    return iter((entry,)) if isinstance(entry, Parameter) else entry.parameters()
