"""What graphc says on standard error while it works, as much as GRAPHC_LOG asks for, and what it
decided, for the plan's notes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from graphc.config import LOG_LEVELS, log_level

_decisions: ContextVar[dict[str, None] | None] = ContextVar("decisions", default=None)


def log(level: str, message: str) -> None:
    """Print `message` if `level`, one of `LOG_LEVELS`, is at most the level of GRAPHC_LOG."""
    if LOG_LEVELS.index(level) <= LOG_LEVELS.index(log_level()):
        print(f"graphc: {message}", file=sys.stderr)


def decide(message: str) -> None:
    """Log a decision, such as `store_or_recompute: lstm stores ...`, at the level info, and keep it
    for `decisions`."""
    log("info", message)
    kept = _decisions.get()
    if kept is not None:
        kept[message] = None


@contextmanager
def decisions() -> Iterator[dict[str, None]]:
    """Keep what is decided inside, once each, in order."""
    kept: dict[str, None] = {}
    token = _decisions.set(kept)
    try:
        yield kept
    finally:
        _decisions.reset(token)
