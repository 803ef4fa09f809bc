"""Logging at the level of GRAPHC_LOG, progress bars, and the decisions in a plan's notes."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from graphc.base.config import log_level

BAR, BAR_AFTER = 30, 1.0
"""Letters of a progress bar, and the seconds after which it is shown."""

_decisions: ContextVar[dict[str, None] | None] = ContextVar("decisions", default=None)


def log(level: str, message: str) -> None:
    """Log `message` at `level`, one of `LOG_LEVELS`, to the standard library's logger `graphc`.

    The level of that logger applies, or GRAPHC_LOG if it has none. Without a handler the message is
    printed on standard error.
    """
    logger, number = logging.getLogger("graphc"), getattr(logging, level.upper())
    if number < (logger.level or getattr(logging, log_level().upper())):
        return
    if logger.hasHandlers():
        place = logger.findCaller(stacklevel=2)
        logger.handle(logger.makeRecord("graphc", number, *place[:2], message, (), None, place[2]))
    else:
        print(f"graphc: {message}", file=sys.stderr)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal for work that takes longer than a second.

    It returns a function that reports how many of `total` items are done. The bar disappears at the
    end.
    """
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count

    if not total or not sys.stderr.isatty():
        yield advance
        return
    ended = threading.Event()

    def draw() -> None:
        wait = BAR_AFTER
        while not ended.wait(wait):
            filled = "#" * (BAR * done // total)
            print(f"\rgraphc: {what} [{filled:{BAR}}] {done}/{total}", end="", file=sys.stderr)
            sys.stderr.flush()
            wait = 0.1
        if wait != BAR_AFTER:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=draw, name="graphc-progress", daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        ended.set()
        thread.join()


def decide(message: str) -> None:
    """Log a decision, such as `store_or_recompute: lstm stores ...`, at level info.

    `decisions` returns it later.
    """
    log("info", message)
    kept = _decisions.get()
    if kept is not None:
        kept[message] = None


@contextmanager
def decisions() -> Iterator[dict[str, None]]:
    """Collect the decisions made inside, each once, in order."""
    kept: dict[str, None] = {}
    token = _decisions.set(kept)
    try:
        yield kept
    finally:
        _decisions.reset(token)
