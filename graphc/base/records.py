"""The decorators of graphc's frozen dataclasses: what the standard ones make, in less time.

The standard decorator writes the text of six methods for each class and compiles them, 0.25 to
0.4 ms whenever a module is imported, and graphc has some 300 classes. Here comparison, hash, text
and the guards are closures, and `__init__` is a compiled function of as many fields with other
names. `fields`, `replace`, `asdict`, classes derived by the standard decorator and type checkers
see no difference.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from reprlib import recursive_repr
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801
        """A property that is computed once, without the lock of Python 3.11's."""

        def __init__(self, function):
            self.function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.function(instance)
            return value

    def dataclass(cls=None, /, *, frozen=False, eq=True):
        """Return `cls` as a dataclass, or the decorator with these options."""
        if cls is None:
            return functools.partial(dataclass, frozen=frozen, eq=eq)
        if not frozen or not eq:
            return dataclasses.dataclass(frozen=frozen, eq=eq)(cls)
        return _frozen(cls)

    def replace(record, /, **changes):
        """Return a copy of a dataclass's instance, made anew with other values of some fields.

        It raises TypeError for a field that does not exist.
        """
        cls = record.__class__
        if "_arguments" not in cls.__dict__:
            return dataclasses.replace(record, **changes)
        for name in cls._arguments:
            if name not in changes:
                changes[name] = getattr(record, name)
        return cls(**changes)


@dataclasses.dataclass(frozen=True)
class _Standard:
    """What the standard decorator makes of a frozen class, parameters included."""


class _Made:
    """Stands for the value that a factory makes when the argument is missing."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.factory = factory


def _frozen(cls: Any) -> Any:
    """The class with its fields and methods."""
    own = _own_fields(cls)
    inherited = (getattr(base, "__dataclass_fields__", {}) for base in reversed(cls.__mro__[1:]))
    declared: dict[str, Any] = functools.reduce(operator.or_, [*inherited, own])
    if not all(f.init for f in declared.values()):
        return dataclasses.dataclass(frozen=True)(cls)
    for field in own.values():  # defaults take the places of their declarations
        if isinstance(vars(cls).get(field.name), dataclasses.Field):
            if field.default is dataclasses.MISSING:
                delattr(cls, field.name)
            else:
                setattr(cls, field.name, field.default)
    cls.__dataclass_fields__ = declared
    cls.__dataclass_params__ = _Standard.__dataclass_params__  # type: ignore[attr-defined]
    fields = dataclasses.fields(cls)
    cls._arguments = tuple(f.name for f in fields)
    cls._shown = tuple(f.name for f in fields if f.repr)
    methods = {
        "__init__": _initializer(cls, fields),
        "__repr__": _text,
        "__match_args__": tuple(f.name for f in fields if not f.kw_only),
        **_comparison(tuple(f.name for f in fields if f.compare)),
        **_guards(cls, frozenset(cls._arguments)),
    }
    if vars(cls).get("__hash__", ...) is None and "__eq__" in vars(cls):
        del cls.__hash__  # Python has put None there, beside a class's own comparison
    for name, method in methods.items():
        if name not in vars(cls):
            setattr(cls, name, method)
    return cls


def _own_fields(cls: Any) -> dict[str, Any]:
    """The fields that the class itself declares, by name.

    They are what the standard decorator finds in a class of nothing else.
    """
    annotations = vars(cls).get("__annotations__", {})
    if not annotations:
        return {}
    given = {name: vars(cls)[name] for name in annotations if name in vars(cls)}
    members = {**given, "__annotations__": annotations, "__module__": cls.__module__}
    plain: Any = type("_", (), {**members, "__doc__": "Has one, else it would be made."})
    dataclasses.dataclass(init=False, repr=False, eq=False)(plain)
    found: dict[str, Any] = plain.__dataclass_fields__
    return found


def _initializer(cls: Any, fields: Sequence[Any]) -> FunctionType:
    """The class's `__init__`."""
    names = [f.name for f in fields]
    optional = tuple(f.default_factory is not dataclasses.MISSING for f in fields)
    places = [i for i, f in enumerate(fields) if not f.kw_only]
    keywords = [i for i, f in enumerate(fields) if f.kw_only]
    order = tuple(places + keywords)
    code = _code(order, len(keywords), optional, hasattr(cls, "__post_init__"))
    renamed = {f"field{i}": name for i, name in enumerate(names)}
    code = code.replace(
        co_varnames=tuple(renamed.get(name, name) for name in code.co_varnames),
        co_consts=tuple(renamed.get(c, c) if isinstance(c, str) else c for c in code.co_consts),
        co_qualname=f"{cls.__qualname__}.__init__",
    )
    defaults = {}
    for field in fields:
        if field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = _Made(field.default_factory)
        elif field.default is not dataclasses.MISSING:
            defaults[field.name] = field.default
    positional = [names[i] for i in places]
    kept = tuple(defaults[name] for name in positional if name in defaults)
    assert all(name in defaults for name in positional[len(positional) - len(kept) :]), cls
    made = FunctionType(code, globals(), "__init__", kept)
    made.__kwdefaults__ = {names[i]: defaults[names[i]] for i in keywords if names[i] in defaults}
    made.__module__ = cls.__module__
    made.__annotations__ = {f.name: f.type for f in fields} | {"return": None}
    return made


@functools.cache
def _code(
    order: tuple[int, ...], keywords: int, optional: tuple[bool, ...], continues: bool
) -> CodeType:
    """The code of an `__init__` of the fields `field0`, `field1`, ...

    They are taken in this order, the last so many by keyword; the `optional` ones may be `_Made`.
    It `continues` with `__post_init__`.
    """
    arguments = [f"field{i}" for i in order]
    if keywords:
        arguments.insert(len(arguments) - keywords, "*")
    lines = []
    for i, may_be_made in enumerate(optional):
        value = f"field{i}"
        if may_be_made:
            value = f"{value}.factory() if {value}.__class__ is _Made else {value}"
        lines.append(f"_set(self, 'field{i}', {value})")
    lines.append("self.__post_init__()" if continues else "return None")
    return _compiled("__init__", ", ".join(["self", *arguments]), *lines)


_set = object.__setattr__


@recursive_repr()
def _text(self: Any) -> str:
    """The `__repr__` of all classes."""
    shown = [f"{name}={getattr(self, name)!r}" for name in self._shown]
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _comparison(names: tuple[str, ...]) -> dict[str, FunctionType]:
    """`__eq__` and `__hash__` by the fields of these names."""
    renamed = {f"field{i}": name for i, name in enumerate(names)}
    return {
        code.co_name: FunctionType(
            code.replace(co_names=tuple(renamed.get(name, name) for name in code.co_names)),
            globals(),
        )
        for code in _comparison_codes(len(names))
    }


@functools.cache
def _comparison_codes(count: int) -> tuple[CodeType, ...]:
    """The codes of an `__eq__` and a `__hash__` by the fields `field0`, `field1`, ..."""
    own, others = (
        f"({''.join(f'{who}.field{i}, ' for i in range(count))})" for who in ("self", "other")
    )
    return (
        _compiled(
            "__eq__",
            "self, other",
            "if other.__class__ is self.__class__:",
            f"    return {own} == {others}",
            "return NotImplemented",
        ),
        _compiled("__hash__", "self", f"return hash({own})"),
    )


def _compiled(name: str, arguments: str, *lines: str) -> CodeType:
    """The code of a function of this text."""
    scope: dict[str, Any] = {}
    exec("\n    ".join([f"def {name}({arguments}):", *lines]), scope)
    code: CodeType = scope[name].__code__
    return code


def _guards(cls: Any, names: frozenset[str]) -> dict[str, Any]:
    """What keeps the fields of these names as they are."""

    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}
