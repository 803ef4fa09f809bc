"""The four exceptions that graphc raises."""


class GraphError(Exception):
    """A mistake in the model, the arguments, the environment, the arrays of a call or a file.

    The message says what was expected, what was got and the user's file and line.
    """


class CompileError(Exception):
    """A compiler that is missing or failed: the command, the file, the first error, the remedy."""


class PlanError(Exception):
    """A plan that is not valid, or a stage of the compiler that failed. Always a bug in graphc."""


class RunError(Exception):
    """The device, its memory or its driver failed while running; says whether state changed."""


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
    """Such as `KeyError: 3`, on one line."""
    return " ".join(f"{type(bug).__name__}: {bug}".split()).rstrip(": ")
