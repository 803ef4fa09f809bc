"""Networks checked in a process of their own, each within a time limit.

A crash or an endless pass is then one network's failure, with where it was, not the end of all.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from dataclasses import dataclass

from tests.networks import network as data
from tests.networks.network import MisfitError, Network
from tests.tools import ROOT

READY = "ready\n"
GRACE = 5.0
"""Seconds between the time when a worker prints where it is and when it is ended."""


@dataclass(frozen=True)
class Outcome:
    """`failure` is empty where all agree; else what kind of failure it is, the same for networks
    that fail in the same way, and `text` says more. "misfit" is no network at all."""

    failure: str
    text: str = ""


class Worker:
    """A process that checks networks, started again after each one that it does not survive."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")

    def check(self, network: Network, devices: tuple[str, ...], seconds: float) -> Outcome:
        """What becomes of the network on these devices within so many seconds."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        order = {"network": repr(network), "devices": devices, "seconds": seconds}
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], seconds + GRACE)
        answer = process.stdout.readline() if ready else ""
        if answer:
            return Outcome(**json.loads(answer))
        self._end()
        self._errors.seek(0)
        said = self._errors.read()
        if ready and "Timeout (" not in said:
            return Outcome(f"died with {process.returncode}", said)
        return Outcome("hang", f"not done within {seconds} s\n{said}")

    def close(self) -> None:
        """End the process; the worker is not used again."""
        self._end()
        self._errors.close()

    def _end(self) -> None:
        """End the process, and the compilers that it started."""
        if self._process is None:
            return
        process, self._process = self._process, None
        with contextlib.suppress(ProcessLookupError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._errors.seek(0)
            self._errors.truncate()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.networks.workers"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                start_new_session=True,
            )
            assert self._process.stdout is not None
            assert self._process.stdout.readline() == READY  # importing PyTorch takes seconds
        return self._process


def serve() -> None:
    """Answer each line of standard input with one of standard output."""
    import torch

    from tests.networks import check  # noqa: F401

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else writes between answers
    print(READY, end="", file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        faulthandler.dump_traceback_later(order["seconds"], exit=True)
        outcome = _outcome(eval(order["network"], vars(data)), tuple(order["devices"]))
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(vars(outcome)), file=answers, flush=True)


def _outcome(network: Network, devices: tuple[str, ...]) -> Outcome:
    from tests.networks.check import check

    try:
        wrong = check(network, devices)
    except MisfitError as error:
        return Outcome("misfit", str(error))
    except FloatingPointError:
        return Outcome("")  # PyTorch's own results are not finite
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        inner = [f for f in frames if "tests/networks" not in f.filename] or frames
        place = f"{inner[-1].filename.rpartition('/')[2]} {inner[-1].name}"
        return Outcome(f"{type(error).__name__} in {place}", traceback.format_exc())
    if not wrong:
        return Outcome("")
    bits = all("other bits" in line for line in wrong)
    return Outcome("other bits" if bits else "wrong results", "\n".join(wrong))


if __name__ == "__main__":
    serve()
