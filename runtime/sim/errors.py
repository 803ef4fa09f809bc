"""The errors of the simulated driver, with PyCUDA's names."""

from graphc.base.errors import RunError


class Error(RunError):
    """Any mistake of a caller of the simulated driver, or of a kernel on it."""


class LogicError(Error):
    """A call that CUDA rejects, or silently accepts though it is surely a mistake."""


class MemoryError(Error):
    """The device's memory is too small."""


class LaunchError(Error):
    """A kernel made a mistake; the message names the kernel, block, thread and line."""


class RaceError(Error):
    """Two unordered operations on the same bytes, one of them a write."""
