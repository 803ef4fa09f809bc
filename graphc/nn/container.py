"""Containers: modules and parameters in lists and dicts."""

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
    """Modules in order; each is an attribute named after its index, so paths are `0.weight`."""

    def __len__(self) -> int:
        return len(vars(self))

    def __iter__(self) -> Iterator[Module]:
        return iter(vars(self).values())

    def __getitem__(self, index: int) -> Module:
        """Return the module at an index; a negative one counts from the end."""
        if not -len(self) <= index < len(self):
            check.fail(f"{type(self).__name__}: no module {index}, there are {len(self)}")
        return list(self)[index]

    def append(self, module: Module) -> None:
        """Append a module, named after its index."""
        self._add(str(len(self)), module)

    def _add(self, name: str, module: Any) -> None:
        if not isinstance(module, Module):
            _not_a_module(self, name, module)
        changes.count += 1
        vars(self)[name] = module


class Sequential(_Members):
    """Modules that are called one after another, each with the results of the one before.

    Args:
        *modules: Modules, which are named "0", "1", ..., or one dict from names to modules.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> graphc.trace(model, graphc.spec((3, 4))).outputs[0].type.shape
        (3, 2)
    """

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        named = modules[0] if len(modules) == 1 and isinstance(modules[0], Mapping) else None
        for name, module in named.items() if named is not None else enumerate(modules):
            self._add(str(name), module)

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x


class ModuleList(_Members):
    """A list of modules for the `forward` of another module; it cannot be called.

    Args:
        modules: The modules.

    Example:
        >>> layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)])
        >>> [name for name, _ in layers.named_parameters()]
        ['0.weight', '0.bias', '1.weight', '1.bias']
    """

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
    """A dict of modules for the `forward` of another module; it cannot be called.

    Args:
        members: A dict, or pairs of names and modules.

    Example:
        >>> heads = nn.ModuleDict({"a": nn.Linear(4, 2)})
        >>> [name for name, _ in heads.named_parameters()]
        ['a.weight', 'a.bias']
    """

    _noun = "module"

    def _checked(self, name: str, member: Any) -> Module:
        if not isinstance(member, Module):
            _not_a_module(self, name, member)
        return member


class ParameterDict(_ByName[Parameter]):
    """A dict of parameters; values of other types become parameters.

    Args:
        members: A dict, or pairs of names and values.

    Example:
        >>> nn.ParameterDict({"scale": [1.0, 2.0]})["scale"]
        Parameter(f32[2])
    """

    _noun = "parameter"

    def _checked(self, name: str, member: Any) -> Parameter:
        return member if isinstance(member, Parameter) else Parameter(member)


class ParameterList(Module):
    """A list of parameters, named "0", "1", ...; values of other types become parameters.

    Args:
        values: The values.

    Example:
        >>> nn.ParameterList([[1.0, 2.0]])[0]
        Parameter(f32[2])
    """

    def __init__(self, values: Iterable[Any] = ()) -> None:
        for value in values:
            self.append(value)

    def append(self, value: Any) -> None:
        """Append a parameter, named after its index."""
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
