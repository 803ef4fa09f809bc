"""What a forked child finds, and locks that another thread holds meanwhile."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def child_of_fork(act: Callable[[], bool]) -> bool:
    """Whether `act` returns True in the child of a fork within 20 seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os._exit(0 if act() else 1)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


@contextmanager
def held(
    lock: Any,
    seconds: float,
    around: Callable[[Callable[[], None]], Callable[[], None]] = lambda hold: hold,
) -> Iterator[None]:
    """A block that begins while another thread holds `lock`, for some seconds; `around` decorates
    what that thread does."""
    inside = threading.Event()

    def hold() -> None:
        with lock:
            inside.set()
            time.sleep(seconds)

    thread = threading.Thread(target=around(hold))
    thread.start()
    inside.wait()
    yield
    thread.join()
