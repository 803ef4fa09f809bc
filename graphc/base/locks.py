"""Locks: one for each device, and no call from within a call.

A call holds its device's lock, so the programs of a device run one after another, and what is read
or written of their state between calls is read or written with the lock held. The locks let in the
thread that has them already: a call fetches state from another device, for one. But a signal
handler, and a finalizer, run on the thread of the call that they interrupt, in the middle of it:
what they call finds its thread to be the owner and must not go on.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from graphc.base.errors import RunError

P = ParamSpec("P")
T = TypeVar("T")
Lock = Any
"""What `threading.RLock` gives. Its own methods are in C: no interrupt comes between taking it and
entering the block that gives it back."""

ESTIMATORS, PLANS, COMPILES, FINDING, DEVICES, BUILDS, NOTES = range(7)
"""Ranks of locks, the outermost first: whoever holds a lock takes only those of higher ranks."""

_locks: list[Lock] = []
_over_forks: list[tuple[int, int, Lock]] = []
_held_by_fork: list[Lock] = []


def free_after_fork(lock: Lock, rank: int) -> Lock:
    """Return `lock`, which a fork waits for.

    So the child finds it free, and what it protects whole. A fork takes locks in the order of their
    ranks, as threads do.
    """
    _over_forks.append((rank, len(_over_forks), lock))
    return lock


def new_lock() -> Lock:
    """Return the lock of one more device.

    A fork waits until it is free, so that the child never sees half a step and finds the lock free.
    """
    lock = free_after_fork(threading.RLock(), DEVICES)
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


class _Compiles:
    """What a fork waits for in place of all locks that compiling takes, other libraries' too.

    Threads may compile at once; `acquire` and `release` are for forks.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: dict[int, int] = {}

    def run(self, act: Callable[[], T]) -> T:
        """Return what `act` returns, and let forks of other threads wait for it."""
        own = threading.get_ident()
        before = self._inside.get(own, 0)
        try:
            with self._changed:
                self._inside[own] = before + 1
            return act()
        finally:
            with self._changed:
                self._inside[own] = before
                if not before:
                    del self._inside[own]
                self._changed.notify_all()

    def acquire(self) -> None:
        """Wait until no other thread compiles, and let none begin."""
        self._changed.acquire()
        end, own = time.monotonic() + _MOST_SECONDS, threading.get_ident()
        while self._inside.keys() - {own} and time.monotonic() < end:
            self._changed.wait(0.1)

    def release(self) -> None:
        """Let threads compile."""
        self._changed.release()


_MOST_SECONDS = 60.0
"""How long a fork waits for threads that compile."""
_compiles = _Compiles()
free_after_fork(_compiles, COMPILES)


def between_forks(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that compiles, so that forks wait for its calls."""

    @functools.wraps(function)
    def called(*args: P.args, **named: P.kwargs) -> T:
        return _compiles.run(lambda: function(*args, **named))

    return called


def _before_fork() -> None:
    for _, _, lock in sorted(_over_forks, key=lambda entry: entry[:2]):
        lock.acquire()
        _held_by_fork.append(lock)


def _after_fork() -> None:
    while _held_by_fork:
        _held_by_fork.pop().release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
