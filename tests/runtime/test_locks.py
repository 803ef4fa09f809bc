"""Whose turn it is: calls from within calls, snapshots beside a training thread, forks."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import RunError
from graphc.base.locks import HOST, new_lock, refuse_reentry
from graphc.ir.state import StateBuffer
from graphc.program import Program
from graphc.runtime.cpu.executable import load
from graphc.runtime.cuda.device import find_device
from tests.runtime.handmade import kernel, launch, plan
from tests.support.forks import child_of_fork, held

DEVICES = ("cpu", "reference", "sim")
WITHIN = (
    "{}: called from within a call of the same thread, as by a signal handler; let the handler "
    "set a flag, and call between steps"
)


class Twins(nn.Module):
    """Two parameters whose gradients are equal: after any number of whole steps, so are they."""

    def __init__(self, size: int) -> None:
        self.first, self.second = (nn.Parameter(np.zeros(size, np.float32)) for _ in range(2))


def training(size: int, device: str) -> tuple[Twins, Program]:
    """A program each of whose steps adds 1 to both parameters."""

    def loss(model: Twins, x: Any) -> Any:
        return -graphc.sum((model.first + model.second) * x)

    twins = Twins(size)
    rule = optim.SGD(lr=1.0, momentum=0.5)
    step = graphc.compile(loss, twins, graphc.spec(()), update=rule, device=device, threads=1)
    return twins, step


def infer(device: str) -> Program:
    def square(x: Any) -> Any:
        return graphc.exp(x @ x)

    return graphc.compile(square, graphc.spec((24, 24)), device=device)


def interrupting(handler: Callable[[], None], call: Callable[[], Any], every: int) -> Any:
    """What `call` gives while `handler` runs, as a signal handler may, before every so-manieth line
    of graphc that is executed; the handler's own lines are not interrupted."""
    package, count = os.path.dirname(graphc.__file__), 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(package):
            return None
        if event == "line":
            count += 1
            if count % every == 0:
                handler()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(before)


@pytest.mark.parametrize(("device", "every"), [("cpu", 1), ("reference", 1), ("sim", 47)])
def test_a_call_from_a_signal_handler_is_refused_and_spoils_nothing(
    device: str, every: int
) -> None:
    same, other, elsewhere = infer(device), infer(device), infer("reference")
    x = np.linspace(0, 0.1, 576, dtype=np.float32).reshape(24, 24)
    outer, wanted = same(x), {program: program(x / 2) for program in (same, other, elsewhere)}
    refused: dict[Program, set[str]] = {program: set() for program in wanted}

    def handler() -> None:
        for program, result in wanted.items():
            try:
                np.testing.assert_array_equal(program(x / 2), result)
            except RunError as error:
                refused[program].add(str(error))

    for _ in range(3):
        np.testing.assert_array_equal(interrupting(handler, lambda: same(x), every), outer)
    assert all(messages == {WITHIN.format("square")} for messages in refused.values())


def test_a_signal_that_comes_during_a_call_finds_it_in_progress() -> None:
    raises = kernel("raises", "raise(SIGALRM);", top="#include <signal.h>")
    executable, refused = load(plan([launch(raises, (), ())], [raises]), {}, 1), []

    def handler(*_: Any) -> None:
        try:
            executable.run([])
        except RunError as error:
            refused.append(str(error))

    before = signal.signal(signal.SIGALRM, handler)
    try:
        executable.run([])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert refused == [WITHIN.format("handmade")]


@pytest.mark.parametrize("device", DEVICES)
def test_from_within_a_call_nothing_touches_state(device: str) -> None:
    twins, step = training(3, device)
    step(1.0)
    saved, rule = step.state_dict(), step.update
    rule.lr = lambda finished: 1.0
    does: list[tuple[str, Callable[[], Any]]] = [
        ("loss", lambda: step(1.0)),
        ("loss", lambda: step.profile(1.0, repeats=1)),
        ("state_dict", step.state_dict),
        ("state_dict", twins.state_dict),
        ("state_dict", rule.state_dict),
        ("load_state_dict", lambda: step.load_state_dict(saved)),
        ("load_state_dict", lambda: twins.load_state_dict(twins)),
        ("numpy", twins.first.numpy),
        ("Parameter.assign", lambda: twins.first.assign(np.ones(3, np.float32))),
    ]
    for lock in (HOST, find_device("sim").lock):
        for name, do in does:
            with lock, pytest.raises(RunError) as caught:
                do()
            expected = WITHIN.format("state_dict" if do is does[6][1] else name)
            assert re.sub(r" \(test_\w+\.py:\d+\)$", "", str(caught.value)) == expected
    for name, array in step.state_dict().items():
        np.testing.assert_array_equal(array, saved[name])


def test_another_thread_waits_for_its_turn() -> None:
    program, x = infer("cpu"), np.zeros((24, 24), np.float32)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(program(x)))
    with HOST:
        thread.start()
        thread.join(0.05)
        assert thread.is_alive() and not results
    thread.join()
    np.testing.assert_array_equal(results[0], np.ones((24, 24)))


class Beside:
    """A thread that trains until the block ends."""

    def __init__(self, step: Program) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._train, args=(step,))

    def _train(self, step: Program) -> None:
        while not self._stop.is_set():
            step(1.0)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


SIZES = {"cpu": 300_000, "reference": 300_000, "sim": 3_000}


@pytest.mark.parametrize("device", DEVICES)
def test_a_snapshot_beside_a_training_thread_is_of_one_moment(device: str) -> None:
    twins, step = training(SIZES[device], device)
    step(1.0)
    with Beside(step):
        for _ in range(20):
            for state in (twins.state_dict(), step.state_dict()):
                np.testing.assert_array_equal(state["first"], state["second"])
                assert state["first"].min() == state["first"].max()
            moments = step.update.state_dict()
            np.testing.assert_array_equal(moments["momentum.first"], moments["momentum.second"])


@pytest.mark.parametrize("device", DEVICES)
def test_state_is_loaded_beside_a_training_thread_in_one_moment(device: str) -> None:
    twins, step = training(SIZES[device], device)
    step(1.0)
    early, whole = twins.state_dict(), step.state_dict()
    with Beside(step):
        for _ in range(20):
            twins.load_state_dict(early)
            step.load_state_dict(whole)
            state = twins.state_dict()
            np.testing.assert_array_equal(state["first"], state["second"])


def test_a_child_of_a_fork_finds_every_lock_free() -> None:
    lock = new_lock()
    with held(lock, 0.2):
        free = child_of_fork(lambda: lock.acquire(blocking=False) and HOST.acquire(blocking=False))
        assert lock.acquire(timeout=5)
        lock.release()
        assert free


def test_a_thread_that_holds_no_lock_is_not_within_a_call() -> None:
    refuse_reentry("anything")
    with new_lock(), pytest.raises(RunError) as caught:
        refuse_reentry("anything")
    assert str(caught.value) == WITHIN.format("anything")


def test_state_is_read_and_written_while_no_device_with_a_copy_of_it_is_in_a_call() -> None:
    buffer, lock = StateBuffer(np.zeros(2, np.float32)), new_lock()
    buffer.copies["other"] = SimpleNamespace(lock=lock)
    threads = [
        threading.Thread(target=act)
        for act in (buffer.numpy, lambda: buffer.assign(np.ones(2, np.float32)))
    ]
    with lock:
        for thread in threads:
            thread.start()
            thread.join(0.1)
            assert thread.is_alive()
        np.testing.assert_array_equal(buffer.array, 0)
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(buffer.array, 1)
