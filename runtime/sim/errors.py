"""The errors of the simulated driver, with PyCUDA's names."""

from graphc.base.errors import RunError


class Error(RunError):
    """Anything that the simulated driver or a kernel on it gets wrong."""


class LogicError(Error):
    """A call that CUDA refuses, or that it takes in silence and that is surely a mistake."""


class MemoryError(Error):
    """The device's memory is too small."""


class LaunchError(Error):
    """A kernel did what no kernel may: the message names the kernel, block, thread and line."""


class RaceError(Error):
    """Two operations on the same bytes, one of them a write, that nothing puts in order."""
