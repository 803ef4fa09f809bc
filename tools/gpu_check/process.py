"""Run commands with a time limit, and count down the total time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = 4000
"""Characters at the end of a failure's text that are kept."""
ENDED = "ended after"
"""How the failure of a command begins that exceeded its time."""


@dataclass(frozen=True)
class Done:
    """How a command ended, and all that it printed."""

    status: int
    out: str
    err: str
    seconds: float
    ended: bool = False
    """Whether it was terminated because its time was up."""

    @property
    def failure(self) -> str:
        """What went wrong, with the end of the output; "" if nothing did."""
        if self.ended:
            head = f"{ENDED} {self.seconds:.0f} s"
        elif self.status:
            head = f"status {self.status}"
        else:
            return ""
        printed = "\n".join(text.strip() for text in (self.out, self.err) if text.strip())
        return f"{head}: {printed[-TEXT:]}" if printed else head


class Countdown:
    """Counts down from `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Remaining seconds."""
        return self._end - time.monotonic()


def python(arguments: Sequence[str], seconds: float, before: Sequence[str] = ()) -> Done:
    """Run this Python with `arguments` in the checkout, with the command `before` in front; see
    `run`."""
    return run([*before, sys.executable, *arguments], seconds)


def run(command: Sequence[str], seconds: float) -> Done:
    """Run the command, and terminate it with all its children after `seconds`. Its output is kept.
    Never raises: a missing command has status 127."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the machine's own plugins are not the suite's
    }
    begin = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=out, stderr=err, start_new_session=True
            )
        except OSError as error:
            return Done(127, "", f"{command[0]}: {error.strerror}", 0.0)
        try:
            status, ended = process.wait(timeout=max(seconds, 0.0)), False
        except subprocess.TimeoutExpired:
            status, ended = 124, True
        finally:
            _end(process)
        said, errors = _text(out), _text(err)
    return Done(status, said, errors, time.monotonic() - begin, ended)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process and what it left running in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _text(file: object) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    return str(file.read().decode(errors="replace"))  # type: ignore[attr-defined]
