"""Logging by the standard library, as much as GRAPHC_LOG asks for; progress of long work; and the
decisions that a plan's notes list."""

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
    """Say `message` at `level`, one of `LOG_LEVELS`, through the logger `graphc` of the standard
    library. The level of that logger decides whether it is said, or where it has none GRAPHC_LOG.
    Where no handler takes messages it is printed on standard error."""
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
    """Show on a terminal how far something is that takes longer than a second: a bar, which goes
    away at the end. Gives what counts so many of `total` as done."""
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
