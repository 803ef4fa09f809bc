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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from graphc.base.errors import RunError

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


@contextmanager
def holding(locks: Sequence[Lock]) -> Iterator[None]:
    """Hold all of the locks, taken in the same order by every thread."""
    first, *others = sorted(locks, key=_locks.index)
    with first:
        if others:
            with holding(others):
                yield
        else:
            yield


def _before_fork() -> None:
    for lock in tuple(_locks):
        lock.acquire()
        _held_by_fork.append(lock)


def _after_fork() -> None:
    while _held_by_fork:
        _held_by_fork.pop().release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
