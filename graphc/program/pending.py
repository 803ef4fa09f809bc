"""The results of calls that may not have ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.program.executable import Submitted


class Ended:
    """The outputs of a call that has ended."""

    def __init__(self, arrays: list[Any]) -> None:
        self._arrays = arrays

    def done(self) -> bool:
        """Return True."""
        return True

    def read(self) -> list[Any]:
        """Return the outputs."""
        return self._arrays


class Pending:
    """The results of a call that `Program.submit` began.

    Example:
        >>> f = graphc.compile(lambda x: 2 * x, graphc.spec(2))
        >>> pending = f.submit(np.ones(2, np.float32))
        >>> pending.result()
        array([2., 2.], dtype=float32)
        >>> pending.done()
        True
    """

    def __init__(self, submitted: Submitted, given: Callable[[list[Any]], Any]) -> None:
        self._submitted, self._given = submitted, given
        self._results: tuple[Any, ...] = ()

    def done(self) -> bool:
        """Return whether the call has ended, so that `result` does not wait."""
        return bool(self._results) or self._submitted.done()

    def result(self) -> Any:
        """Return what the call returns, after waiting for it; each time the same arrays.

        Raises:
            RunError: The call failed on the device.
        """
        if not self._results:
            self._results = (self._given(self._submitted.read()),)
        return self._results[0]
