"""Properties that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801
    """As that of functools, without its lock.

    Before Python 3.12 that lock is one for all objects, and the child of a fork would wait for ever
    for a thread that it lacks. Two threads may compute a value twice; both get the same one then.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: Any, owner: type) -> cached_property[T] | T:
        if instance is None:
            return self
        found = self._function(instance)
        value: T = instance.__dict__.setdefault(self._name, found)
        return value
