"""Modules made of modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graphc.nn import check
from graphc.nn.module import Module


class _Members(Module):
    """Modules in order; each is an attribute of its own name, so paths are `0.weight`."""

    def __len__(self) -> int:
        return len(vars(self))

    def __iter__(self) -> Iterator[Module]:
        return iter(vars(self).values())

    def __getitem__(self, index: int) -> Module:
        """The module at a place, counted from the end if negative."""
        if not -len(self) <= index < len(self):
            check.fail(f"{type(self).__name__}: no module {index}, there are {len(self)}")
        return list(self)[index]

    def append(self, module: Module) -> None:
        """Put `module` at the end, named by its place."""
        self._add(str(len(self)), module)

    def _add(self, name: str, module: Any) -> None:
        if not isinstance(module, Module):
            got = module.__name__ if isinstance(module, type) else type(module).__name__
            check.fail(
                f"{type(self).__name__}: expected a module at {name!r}, got {got}"
                + (", which is a class: call it" if isinstance(module, type) else "")
            )
        vars(self)[name] = module


class Sequential(_Members):
    """Each module on the outputs of the one before. Made from modules, named "0", "1", ..., or
    from one dict of name -> module."""

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        named = modules[0] if len(modules) == 1 and isinstance(modules[0], Mapping) else None
        for name, module in named.items() if named is not None else enumerate(modules):
            self._add(str(name), module)

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x


class ModuleList(_Members):
    """Modules that `forward` of another module walks; it cannot be called itself."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        for module in modules:
            self.append(module)
