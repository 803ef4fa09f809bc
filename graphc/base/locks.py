"""Locks: one for each device, and no call from within a call.

A call holds its device's lock, so the programs of a device run one after another, and what is read
or written of their state between calls is read or written with the lock held. The locks let in the
thread that has them already: a call fetches state from another device, for one. But a signal
handler, and a finalizer, run on the thread of the call that they interrupt, in the middle of it:
what they call finds its thread to be the owner and must not go on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from graphc.base.errors import RunError

T = TypeVar("T")
Lock = Any
"""What `threading.RLock` gives. Its own methods are in C: no interrupt comes between taking it and
entering the block that gives it back."""

_locks: list[Lock] = []
_held_by_fork: list[Lock] = []


def new_lock() -> Lock:
    """Return the lock of one more device.

    A fork waits until it is free, so that the child never sees half a step and finds the lock free.
    """
    lock = threading.RLock()
    _locks.append(lock)
    return lock


HOST = new_lock()
"""That of the devices that write state where it lies on the host: "cpu" and "reference"."""


def refuse_reentry(name: str) -> None:
    """Raise RunError if this thread is within a call of any device; `name` is what was called."""
    for lock in _locks:
        if lock._is_owned():
            raise RunError(
                f"{name}: called from within a call of the same thread, as by a signal handler; "
                "let the handler set a flag, and call between steps"
            )


def holding(locks: Sequence[Lock], act: Callable[[], T]) -> T:
    """Return what `act` returns, called with all of the locks held.

    Every thread takes them in the same order. (Not a context manager: an interrupt between its
    `__enter__` and the block would leave the locks to whoever keeps the traceback.)
    """
    first, *others = sorted(locks, key=_locks.index)
    with first:
        return holding(others, act) if others else act()


def completed(act: Callable[[], T]) -> T:
    """Return what `act` returns, which may be called twice.

    If an interrupt raises an exception in the midst of it, it is called again and the exception is
    raised after that, so that `act` has always come to its end.
    """
    try:
        return act()
    except BaseException:
        act()
        raise


def _before_fork() -> None:
    for lock in tuple(_locks):
        lock.acquire()
        _held_by_fork.append(lock)


def _after_fork() -> None:
    while _held_by_fork:
        _held_by_fork.pop().release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
