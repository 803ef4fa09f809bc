"""Ctrl-C at any point where Python lets it in: state is that of whole steps, and locks are free."""

from __future__ import annotations

import ctypes
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.interrupts import DeferredInterrupts
from graphc.base.locks import completed, refuse_reentry
from graphc.runtime.compilers.compiler import find_compiler
from graphc.runtime.cpu.addresses import HostArena
from tests.runtime.test_locks import training

# Audit hooks of other tests, which nothing can remove, are interrupted as well, which is ignored.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SAMPLES, LAST = 40, 250
"""How many points of an action are met: some at random, and the last ones, where state is
written."""


@pytest.fixture(autouse=True)
def python_handles_ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`points(act, n)`: calls `act` with Ctrl-C before its n-th event; returns how many it has."""
    built = tmp_path_factory.mktemp("points") / "points.so"
    text = Path(__file__).with_name("interrupt_points.cpp")
    command = [*find_compiler().command, "-shared", "-fPIC", "-O1", str(text), "-o", str(built)]
    subprocess.run(command, check=True)
    library = ctypes.PyDLL(str(built))
    library.begin.argtypes = ctypes.c_long, ctypes.py_object
    library.end.restype = ctypes.c_long

    def call(act: Callable[[], object], n: int) -> int:
        try:
            library.begin(n, True)
            act()
        finally:
            count = library.end()
        return int(count)

    return call


def sampled(count: int) -> list[int]:
    some = random.Random(0).sample(range(1, count + 1), min(count, SAMPLES))
    return sorted({*some, *range(max(1, count - LAST), count + 1)})


def interrupted(points: Any, act: Callable[[], object], n: int) -> KeyboardInterrupt | None:
    """The exception, with its traceback: what a notebook keeps."""
    try:
        points(act, n)
    except KeyboardInterrupt as interrupt:
        return interrupt
    return None


ACTIONS = ("step", "state_dict", "load", "save", "restore", "profile", "optimizer")


# A finalizer that is interrupted says so, and that is all that it can do.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("device", "action"),
    [*(("cpu", action) for action in ACTIONS), ("reference", "step"), ("sim", "step")],
)
def test_state_is_whole_and_locks_are_free(
    device: str, action: str, points: Any, tmp_path: Path
) -> None:
    _, step = training(3, device)
    step(1.0)
    saved, moments = step.state_dict(), step.update.state_dict()
    step(1.0)
    graphc.save_checkpoint(tmp_path, 2, step)
    does: dict[str, tuple[Callable[[], object], bool]] = {
        "step": (lambda: step(1.0), True),
        "state_dict": (step.state_dict, False),
        "load": (lambda: step.load_state_dict(saved), True),
        "save": (lambda: graphc.save_checkpoint(tmp_path, 3, step), False),
        "restore": (lambda: graphc.load_checkpoint(tmp_path, step), False),
        "profile": (lambda: step.executable.profile(step.checked([1.0]), 1), False),
        "optimizer": (lambda: step.update.load_state_dict(moments), True),
    }
    act, changes = does[action]
    before = step.state_dict()
    act()
    after = step.state_dict()
    step.load_state_dict(before)
    count, met = points(act, 0), 0
    for n in sampled(count):
        step.load_state_dict(before)
        held = interrupted(points, act, n)
        met += held is not None
        refuse_reentry("the next call")
        now = step.state_dict()
        same = [all(np.array_equal(now[k], x[k]) for k in now) for x in (before, after)]
        assert any(same), (n, now)
    assert met > SAMPLES // 3
    assert changes != all(np.array_equal(before[k], after[k]) for k in before)


def test_memory_that_grows_is_never_left_for_memory_that_is_freed(points: Any) -> None:
    for n in range(1, points(lambda: HostArena().reserve(1 << 20), 0)):
        arena = HostArena()
        arena.reserve(64)
        interrupted(points, lambda arena=arena: arena.reserve(1 << 20), n)  # type: ignore[misc]
        assert arena.address in (0, arena.memory.ctypes.data)
        arena.reserve(1 << 20)
        assert arena.memory.nbytes >= 1 << 20 and arena.address == arena.memory.ctypes.data


def test_the_first_ctrl_c_waits_for_the_end_of_the_block_and_the_second_does_not() -> None:
    interrupts, reached = DeferredInterrupts(), []
    interrupts.begin()
    interrupts.begin()
    signal.raise_signal(signal.SIGINT)
    interrupts.end()
    reached.append("outer")
    with pytest.raises(KeyboardInterrupt):
        interrupts.end()
    assert reached == ["outer"]
    interrupts.begin()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupts.end()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    interrupts.begin()
    interrupts.end()


def test_handlers_of_the_program_and_other_threads_are_left_alone() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    interrupts = DeferredInterrupts()
    interrupts.begin()
    signal.raise_signal(signal.SIGINT)
    assert seen == [signal.SIGINT]
    interrupts.end()
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def other() -> None:
        interrupts.begin()
        seen.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        interrupts.end()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen[1:] == [True]


def test_what_is_interrupted_is_completed_first() -> None:
    calls: list[int] = []

    def act() -> int:
        calls.append(len(calls))
        if len(calls) == 1:
            raise KeyboardInterrupt
        return len(calls)

    with pytest.raises(KeyboardInterrupt):
        completed(act)
    assert calls == [0, 1]
    assert completed(act) == 3
