"""Parts of a function that mixed precision leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphc.trace import current_builder
from graphc.trace.mixed import in_precision


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute what is traced inside in float32, whatever compile's `mixed` says.

    Two-byte tensors that come in are converted where they meet float32 ones, as outside of mixed
    precision; `astype` converts them at once.

    Example:
        >>> def f(x, w):
        ...     with graphc.full_precision():
        ...         return x @ w
        ...
        >>> specs = graphc.spec((1, 1)), graphc.spec((1, 1))
        >>> x = np.array([[1.001]], np.float32)
        >>> graphc.compile(f, *specs, mixed="bfloat16")(x, x) == x * x
        array([[ True]])
    """
    with in_precision(current_builder(), ""):
        yield
