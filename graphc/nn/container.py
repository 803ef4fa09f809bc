"""Modules made of modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from graphc.nn import check
from graphc.nn.buffer import Buffer, as_read
from graphc.nn.module import Module
from graphc.nn.parameter import Parameter, changes
from graphc.trace import innermost_builder

Member = TypeVar("Member", Module, Parameter)


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
        changes.count += 1
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


class _ByName(Module, Generic[Member]):
    """What the two dicts share: each member is an attribute of its own name."""

    _noun: ClassVar[str]

    def __init__(self, members: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        for name, member in dict(members).items():
            self[name] = member

    def __setitem__(self, name: str, member: Any) -> None:
        """Put `member` at `name`, in place of the one that is there."""
        if isinstance(vars(self).get(name), Buffer) and innermost_builder() is not None:
            return setattr(self, name, member)  # its next contents
        checked = self._checked(name, member)
        if hasattr(type(self), name):
            check.fail(f"{type(self).__name__}: {name!r} is a method, choose another name")
        changes.count += 1
        vars(self)[name] = checked

    def __getitem__(self, name: str) -> Member:
        if name not in vars(self):
            check.fail(
                f"{type(self).__name__}: no {self._noun} {name!r}, there are {list(vars(self))}"
            )
        member: Member = as_read(vars(self)[name])
        return member

    def __len__(self) -> int:
        return len(vars(self))

    def __contains__(self, name: str) -> bool:
        return name in vars(self)

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def keys(self) -> Iterable[str]:
        return vars(self).keys()

    def values(self) -> Iterable[Member]:
        return self._read().values()

    def items(self) -> Iterable[tuple[str, Member]]:
        return self._read().items()

    def _read(self) -> dict[str, Member]:
        return {name: as_read(member) for name, member in vars(self).items()}

    def _checked(self, name: str, member: Any) -> Member:
        raise NotImplementedError


class ModuleDict(_ByName[Module]):
    """Modules by name that `forward` of another module picks from; it cannot be called itself."""

    _noun = "module"

    def _checked(self, name: str, member: Any) -> Module:
        if not isinstance(member, Module):
            _not_a_module(self, name, member)
        return member


class ParameterDict(_ByName[Parameter]):
    """Parameters by name; what is no parameter becomes one."""

    _noun = "parameter"

    def _checked(self, name: str, member: Any) -> Parameter:
        return member if isinstance(member, Parameter) else Parameter(member)


class ParameterList(Module):
    """Parameters in order, named "0", "1", ...; what is no parameter becomes one."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        for value in values:
            self.append(value)

    def append(self, value: Any) -> None:
        """Put a parameter at the end, named by its place."""
        parameter = value if isinstance(value, Parameter) else Parameter(value)
        changes.count += 1
        vars(self)[str(len(self))] = parameter

    def __len__(self) -> int:
        return len(vars(self))

    def __iter__(self) -> Iterator[Parameter]:
        return map(as_read, vars(self).values())

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
