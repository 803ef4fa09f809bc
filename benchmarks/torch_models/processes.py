"""A task in a process of its own, with a time limit."""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

Task = Callable[[str], dict[str, Any]]


def alone(task: Task, name: str, limit: float) -> dict[str, Any]:
    """What the task finds of the model, or {"failed": why} if it raises, dies, or takes longer
    than `limit` seconds."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(False)
    process = context.Process(target=_send, args=(sender, task, name))
    process.start()
    sender.close()
    try:
        if not receiver.poll(limit):
            return {"failed": f"took longer than {limit:.0f} s"}
        found: dict[str, Any] = receiver.recv()
        return found
    except EOFError:
        process.join()
        return {"failed": f"the process ended with {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def _send(sender: Connection, task: Task, name: str) -> None:
    try:
        sender.send(task(name))
    except BaseException:
        sender.send({"failed": traceback.format_exc()})
        sys.exit(1)
