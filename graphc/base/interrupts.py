"""Ctrl-C that waits for the end of a block."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # a call needs it twice, without `signal`'s enums
import os
import signal
import threading
from types import FrameType

_SIGINT = int(signal.SIGINT)
_main = threading.main_thread().ident
"""The thread that gets signals."""


def _after_fork() -> None:
    global _main
    _main = threading.get_ident()


os.register_at_fork(after_in_child=_after_fork)


class DeferredInterrupts:
    """Between `begin` and `end` the first Ctrl-C waits for `end`; the second raises at once.

    Both raise KeyboardInterrupt. Blocks may be nested. Only the main thread gets signals, and only
    Python's own handler is replaced: in other threads, and where the program has a handler of its
    own, this does nothing.
    """

    def __init__(self) -> None:
        self._depth, self._asked = 0, False
        self._handler = self._note

    def begin(self) -> None:
        """Begin a block."""
        if threading.get_ident() != _main:
            return
        handler = _signal.getsignal(_SIGINT)
        if handler is signal.default_int_handler:
            self._asked = False
            _signal.signal(_SIGINT, self._handler)
            self._depth = 1
        elif handler is self._handler:
            self._depth += 1

    def end(self) -> None:
        """End a block. Raises KeyboardInterrupt if there was a Ctrl-C in the outermost one."""
        if not self._depth or threading.get_ident() != _main:
            return
        self._depth -= 1
        if not self._depth:
            _signal.signal(_SIGINT, signal.default_int_handler)
            if self._asked:
                raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            signal.default_int_handler(number, frame)
        self._asked = True


INTERRUPTS = DeferredInterrupts()
"""Those of this process."""
