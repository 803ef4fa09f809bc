"""What a program asks of the executable that a device makes of its plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from graphc.base.dtypes import Array

if TYPE_CHECKING:  # nothing of it is needed before something is compiled
    from graphc.runtime.tuning.timing import Timing


class Executable(Protocol):
    """A plan that is loaded on a device."""

    def run(self, inputs: Sequence[Array]) -> list[Array]: ...
    def run_checked(self, inputs: Sequence[Array]) -> list[Array]: ...
    @property
    def threads(self) -> int: ...
    def profile(self, inputs: Sequence[Array], repeats: int = ...) -> list[Timing]: ...
    def calls(self, inputs: Sequence[Array], repeats: int = ...) -> list[float]: ...


class Submitted(Protocol):
    """The results of a call that may not have ended."""

    def done(self) -> bool: ...
    def read(self) -> list[Any]: ...


@runtime_checkable
class Asynchronous(Protocol):
    """An executable whose calls need not be waited for, and whose results may stay where it is."""

    def submit(self, inputs: Sequence[Any]) -> Submitted: ...
    def keep_results(self) -> None: ...


@runtime_checkable
class Tiered(Protocol):
    """An executable that may play its first calls with prebuilt kernels."""

    @property
    def ready(self) -> bool: ...
    def wait(self) -> None: ...
