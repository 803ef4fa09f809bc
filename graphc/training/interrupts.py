"""Ctrl-C between the steps of a training run."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """Within its block the first Ctrl-C sets `asked`; the second raises KeyboardInterrupt.

    Only the main thread gets signals, and only Python's own handler is replaced: in other threads,
    and where the program has a handler of its own, this does nothing.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True
        print("\nstops after this step; Ctrl-C again stops at once", file=sys.stderr, flush=True)
