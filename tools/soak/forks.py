"""Processes that are forked or spawned after graphc was used: they work, or say why not."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from tools.soak.nets import BATCH, batch, trainer, trajectory
from tools.soak.vitals import SoakError, check

SECONDS = 60.0
"""After which a child counts as hanging."""


def forked(act: Callable[[], object], what: str) -> None:
    """Call a function in a forked child, which must return within SECONDS."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException as problem:
            os.write(2, f"{what}: {problem!r}\n".encode())
            os._exit(1)
        os._exit(0)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            check(os.waitstatus_to_exitcode(status) == 0, f"{what}: status {status} of the child")
            return
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise SoakError(f"{what}: the child hangs")


class Beside:
    """A thread that calls a function again and again until the block ends."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act, self._stop = act, threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self._stop.is_set():
            self._act()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def fork_after_use(amount: int, folder: Path) -> Mapping[str, Any]:
    """Fork beside threads that train, compile, build kernels and look for plans; the child trains,
    compiles and waits for kernels."""
    program = trainer()
    first = program.state_dict()
    expected = trajectory(program, 5)
    program.load_state_dict(first)
    width = 100 + os.getpid() % 1000

    def squared(x: graphc.Tensor) -> graphc.Tensor:
        return graphc.sum(x * x, 1)

    sized: Any = graphc.compile(squared, graphc.spec(("rows", 16)))
    other = trainer()

    def act() -> None:
        check(trajectory(program, 5) == expected, "training in the child")
        check(trajectory(trainer(), 5) == expected, "compiling in the child")
        x = np.ones((31, 16), np.float32)
        check(bool((sized(x) == 16).all()), "a new size in the child")

    def compiles() -> None:
        nonlocal width
        width += 1
        trainer(width=width)
        sized.at(rows=width)

    def waits(made: Any) -> Callable[[], None]:
        def wait() -> None:
            act()
            made.wait()
            made(*batch(0))
            check(made.ready, "kernels in the child")

        return wait

    for number in range(amount):
        with Beside(compiles if number % 2 else lambda: other(*batch(0))):
            time.sleep(0.001 * (number % 40))
            forked(act, f"fork {number}")
        if number % 8 == 7:
            width += 1
            made = trainer(width=width)
            time.sleep(0.01 * (number % 64))
            forked(waits(made), f"fork {number} while kernels are built")
            made.wait()
    check(trajectory(program, 5) == expected, "training in the parent")
    return {"forks": amount + amount // 8}


def _in_worker(number: int) -> str:
    return trajectory(trainer(), number)[-1]


def workers(amount: int, folder: Path) -> Mapping[str, Any]:
    """Workers of `multiprocessing` compile and train, by each of its start methods."""
    program = trainer()
    expected = trajectory(program, 3)[-1]
    counts = {}
    for method in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context(method)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            with context.Pool(2) as pool:
                found = pool.map_async(_in_worker, [3] * amount).get(SECONDS)
        check(found == [expected] * amount, f"workers by {method}")
        counts[method] = len(found)
    with_program = multiprocessing.get_context("spawn")
    try:
        process = with_program.Process(target=print, args=(program,))
        process.start()
    except graphc.GraphError as error:
        check("a program cannot be pickled" in str(error), f"a program as an argument: {error}")
    else:
        raise SoakError("a program was sent to a process")
    return counts


def loaders(amount: int, folder: Path) -> Mapping[str, Any]:
    """Fork while a loop over batches is under way: the child has loops of its own, and one that
    began in the parent says that it cannot go on."""
    x = np.arange(400, dtype=np.float32)
    refused = "its thread is the parent's"
    for number in range(amount):
        batches = graphc.data.Batches(x, BATCH, shuffle=number, prefetch=2)
        loop = iter(batches)
        given = [next(loop).sum() for _ in range(number % 5 + 1)]

        def act(loop: Any = loop, batches: Any = batches) -> None:
            try:
                next(loop)
            except graphc.GraphError as error:
                check(refused in str(error), f"the message: {error}")
            else:
                raise SoakError("a loop goes on without its thread")
            check(len(list(batches)) == 50, "a loop in the child")

        forked(act, f"fork {number} in a loop")
        check(len(given) + len(list(loop)) == 50, "the loop of the parent")
    return {"forks": amount}
