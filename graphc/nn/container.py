"""Modules made of modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from graphc.nn import check
from graphc.nn.module import Module
from graphc.nn.parameter import Parameter


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
            _not_a_module(self, name, module)
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


class ModuleDict(Module):
    """Modules by name that `forward` of another module picks from; it cannot be called itself."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()) -> None:
        for name, module in dict(modules).items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        """Put `module` at `name`, in place of the one that is there."""
        if not isinstance(module, Module):
            _not_a_module(self, name, module)
        if hasattr(type(self), name):
            check.fail(f"ModuleDict: {name!r} is a method, choose another name")
        vars(self)[name] = module

    def __getitem__(self, name: str) -> Module:
        if name not in vars(self):
            check.fail(f"ModuleDict: no module {name!r}, there are {list(vars(self))}")
        module: Module = vars(self)[name]
        return module

    def __len__(self) -> int:
        return len(vars(self))

    def __contains__(self, name: str) -> bool:
        return name in vars(self)

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def keys(self) -> Iterable[str]:
        return vars(self).keys()

    def values(self) -> Iterable[Module]:
        return vars(self).values()

    def items(self) -> Iterable[tuple[str, Module]]:
        return vars(self).items()


class ParameterList(Module):
    """Parameters in order, named "0", "1", ...; what is no parameter becomes one."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        for value in values:
            self.append(value)

    def append(self, value: Any) -> None:
        """Put a parameter at the end, named by its place."""
        parameter = value if isinstance(value, Parameter) else Parameter(value)
        vars(self)[str(len(self))] = parameter

    def __len__(self) -> int:
        return len(vars(self))

    def __iter__(self) -> Iterator[Parameter]:
        return iter(vars(self).values())

    def __getitem__(self, index: int) -> Parameter:
        """The parameter at a place, counted from the end if negative."""
        if not -len(self) <= index < len(self):
            check.fail(f"ParameterList: no parameter {index}, there are {len(self)}")
        return list(self)[index]


def _not_a_module(owner: Module, name: str, given: Any) -> NoReturn:
    got = given.__name__ if isinstance(given, type) else type(given).__name__
    check.fail(
        f"{type(owner).__name__}: expected a module at {name!r}, got {got}"
        + (", which is a class: call it" if isinstance(given, type) else "")
    )
