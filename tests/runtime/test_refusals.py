"""What the system refuses, and forks at bad moments: right results, or errors that say why."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base import config
from graphc.base.cached import cached_property
from graphc.base.errors import CompileError, GraphError
from graphc.base.locks import NOTES, between_forks, free_after_fork
from graphc.data import Batches
from graphc.program import making
from graphc.runtime.compilers import compiler
from graphc.runtime.compilers.background_builds import BackgroundBuilds
from tests.support.forks import child_of_fork, held
from tests.tools import run_python


def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "_start_new_thread", refuse)


def test_without_threads_the_caller_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    no_threads(monkeypatch)
    did: list[Any] = []
    thread = compiler.BackgroundThread(lambda: did.append(threading.current_thread()), "work")
    thread.start()
    thread.finish()
    assert did == [threading.main_thread()]
    assert not compiler.BackgroundThread(lambda: did.append(2), "other").try_start()
    assert compiler.side_by_side(lambda n: n * n, range(5)) == [0, 1, 4, 9, 16] and len(did) == 1


def test_without_threads_batches_are_made_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(12, dtype=np.float32)
    expected = [batch.tolist() for batch in Batches(x, 4, shuffle=1, prefetch=2)]
    no_threads(monkeypatch)
    assert [batch.tolist() for batch in Batches(x, 4, shuffle=1, prefetch=2)] == expected


class Queue(BackgroundBuilds):
    """A queue of one order, which `_build` deals with as a test says."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__()
        self.problem = problem
        self.left = [["unit"]]

    def _next_unit(self) -> list[Any]:
        return self.left.pop() if self.left else []

    def _build(self, unit: Any) -> None:
        raise self.problem


def test_without_threads_whoever_waits_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    no_threads(monkeypatch)
    built: list[Any] = []
    queue = Queue(KeyboardInterrupt())
    monkeypatch.setattr(queue, "_build", built.append)
    queue.hurry(())
    assert built == [["unit"]]


class Order:
    """An order in the queue."""

    def __init__(self, builder: Any) -> None:
        self.builder, self.kernel, self.customers = builder, self, [self]
        self.key, self.folder = "key", "folder"

    def existing(self) -> list[Any]:
        return self.customers


class Builder:
    """Builds nothing."""

    folder = "folder"

    def __init__(self, missing: Callable[[], Any]) -> None:
        self._missing = missing

    def missing(self, kernels: Any) -> Any:
        return self._missing()

    def address(self, kernel: Any) -> int:
        return 7


class Customer:
    """Writes down what it is told."""

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def built(self, addresses: Any) -> None:
        self.said.append(f"built {addresses}")

    def failed(self, key: str, error: CompileError) -> None:
        self.said.append(f"{key}: {error}")

    def dropped(self, key: str) -> None:
        self.said.append(f"dropped {key}")


def test_an_interrupt_of_who_builds_leaves_the_order_in_the_queue() -> None:
    def interrupt() -> Any:
        raise KeyboardInterrupt

    queue, order = BackgroundBuilds(), Order(Builder(interrupt))
    place = ("folder", "key")
    queue._running[place] = order  # type: ignore[assignment]
    queue._next_unit = lambda: [order]  # type: ignore[assignment, list-item, method-assign]
    with pytest.raises(KeyboardInterrupt):
        queue._work()
    assert (queue._waiting, queue._running) == ({place: order}, {})


def test_any_failure_of_a_build_is_told() -> None:
    def fail() -> Any:
        raise MemoryError("no more")

    said: list[str] = []
    order = Order(Builder(fail))
    order.customers = [Customer(said)]
    BackgroundBuilds()._build([order])  # type: ignore[list-item]
    assert said == ["key: kernels cannot be built in the background: MemoryError('no more')"]


def test_an_order_is_on_the_list_until_all_have_been_told() -> None:
    queue, said = BackgroundBuilds(), []
    order = Order(Builder(list))
    late = Customer(said)

    class First(Customer):
        def built(self, addresses: Any) -> None:
            assert queue._running, "the child of a fork that comes now builds it again"
            super().built(addresses)
            if len(order.customers) == 1:
                order.customers.append(late)  # ordered by another program meanwhile

    order.customers = [First(said)]
    queue._running["folder", "key"] = order  # type: ignore[assignment]
    queue._build([order])  # type: ignore[list-item]
    assert said == ["built {'key': 7}"] * 2 and not queue._running


def test_a_compiler_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(compiler.subprocess, "Popen", refuse)
    with pytest.raises(CompileError) as error:
        compiler.run(["g++", "a b"])
    assert str(error.value) == (
        "the compiler cannot be started: Resource temporarily unavailable\ncommand: g++ 'a b'"
    )


def test_no_pipe_for_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(compiler.os, "pipe", refuse)
    with pytest.raises(CompileError, match=r"^the compiler cannot be started: Too many open files"):
        compiler.run(["g++"])


def test_what_compiling_needs_and_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/sys")

    monkeypatch.setattr(making, "load", refuse)
    with pytest.raises(CompileError) as error:
        graphc.compile(graphc.relu, graphc.spec(3), device="reference")
    assert str(error.value) == (
        "the system refuses what compiling needs: [Errno 24] Too many open files: '/sys'"
    )


def test_no_home_for_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("GRAPHC_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    with pytest.raises(CompileError) as error:
        config.cache_dir()
    assert str(error.value) == (
        "no home folder to have the cache of compiled kernels in: let GRAPHC_CACHE_DIR name a "
        "folder"
    )


def test_a_loop_over_batches_does_not_go_on_in_the_child_of_a_fork() -> None:
    loop = iter(Batches(np.arange(40), 4, prefetch=2))
    next(loop)

    def act() -> bool:
        try:
            next(loop)
        except GraphError as error:
            return str(error) == (
                "Batches: the loop began before the process was forked, and its thread is the "
                "parent's; begin the loop in the child"
            )
        return False

    assert child_of_fork(act)
    assert len(list(loop)) == 9


def test_a_fork_waits_for_threads_that_compile() -> None:
    """The lock that stands for those of other libraries is held only by a thread that compiles."""
    lock = threading.Lock()
    with held(lock, 0.2, between_forks):
        assert child_of_fork(lambda: lock.acquire(timeout=5))


LOGS = """
import os, threading, time
from graphc.base.locks import between_forks
import logging
inside = threading.Event()

@between_forks
def compiles():
    inside.set()
    time.sleep(0.2)
    logging.getLogger("a new name")

threading.Thread(target=compiles).start()
inside.wait()
begin = time.monotonic()
if os.fork() == 0:
    os._exit(0)
os.wait()
print(time.monotonic() < begin + 20)
"""


def test_threads_that_compile_may_log_while_a_fork_waits() -> None:
    assert run_python("-W", "ignore", "-c", LOGS) == "True\n"


def test_a_fork_takes_locks_in_the_order_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread makes a plan, which takes the lock of the builds later than that of plans."""
    from graphc.program import sizes
    from graphc.runtime.compilers.background_builds import BUILDS

    inside, done = threading.Event(), threading.Event()

    def makes() -> None:
        with sizes._making:
            inside.set()
            time.sleep(0.2)
            if BUILDS._lock.acquire(timeout=10):
                BUILDS._lock.release()
                done.set()

    thread = threading.Thread(target=makes)
    thread.start()
    inside.wait()
    assert child_of_fork(lambda: BUILDS._lock.acquire(timeout=5))
    thread.join()
    assert done.is_set()


def test_the_lock_of_the_child_is_free() -> None:
    lock = free_after_fork(threading.Lock(), NOTES)
    with held(lock, 0.1):
        assert child_of_fork(lambda: lock.acquire(timeout=5))


def test_the_child_computes_a_property_that_a_thread_was_computing() -> None:
    class Thing:
        @cached_property
        def slow(self) -> int:
            """What takes long in one thread."""
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                time.sleep(0.3)
            return 3

    inside, thing = threading.Event(), Thing()
    thread = threading.Thread(target=lambda: thing.slow)
    thread.start()
    inside.wait()
    assert child_of_fork(lambda: Thing().slow == thing.slow == 3)
    thread.join()
    assert thing.slow == 3 and Thing.slow.__doc__ == "What takes long in one thread."
    assert thing.__dict__ == {"slow": 3}
