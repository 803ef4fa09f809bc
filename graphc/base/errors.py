"""The exceptions that graphc raises."""

from collections.abc import Iterator
from contextlib import contextmanager


class GraphError(Exception):
    """A mistake in the model, the arguments, the environment, the arrays of a call or a file.

    The message says what was expected, what was got, and the user's file and line.
    """


class CompileError(Exception):
    """A compiler is missing or failed; the message has the command, file and error."""


class PlanError(Exception):
    """A plan is invalid, or a stage of the compiler failed; always a bug in graphc."""


class RunError(Exception):
    """The device, its memory or its driver failed; the message says whether state has changed."""


@contextmanager
def refusals() -> Iterator[None]:
    """Raise CompileError for what the system refuses within the block, such as files or memory."""
    try:
        yield
    except OSError as problem:
        raise CompileError(f"the system refuses what compiling needs: {problem}") from problem


BUGS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What code raises that is wrong, graphc's or an own op's: never what a user gets to see bare."""


def described(bug: BaseException) -> str:
    """Return an exception as text on one line, such as `KeyError: 3`."""
    return " ".join(f"{type(bug).__name__}: {bug}".split()).rstrip(": ")
