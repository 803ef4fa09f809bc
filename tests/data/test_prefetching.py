"""The thread that prepares batches: its exceptions, and that it ends with the loop."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from graphc.data import Batches

X = np.arange(40, dtype=np.float32)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


class Broken:
    """A dataset one of whose samples cannot be read."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> Any:
        if number == 13:
            raise KeyError("no such file")
        return X[number]


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_an_exception_of_the_source_is_raised_by_the_loop_at_its_batch(prefetch: int) -> None:
    given = []
    with pytest.raises(KeyError, match="no such file") as caught:
        for batch in Batches(Broken(), 5, prefetch=prefetch):
            given.append(batch)
    assert len(given) == 2
    assert caught.value.__notes__ == ["in sample 13", "in batch 2 of epoch 0"]
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[0].startswith("test_an_exception") and frames[-1] == "__getitem__"


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_exception_of_an_iterable_likewise(prefetch: int) -> None:
    def samples() -> Iterator[int]:
        yield from range(4)
        raise OSError("the disk is gone")

    given = []
    with pytest.raises(OSError, match=r"^the disk is gone\nin batch 2 of epoch 0$"):
        for batch in Batches(samples, 2, prefetch=prefetch):
            given.append(batch.tolist())
    assert given == [[0, 1], [2, 3]]


def test_the_thread_ends_with_a_loop_that_is_left() -> None:
    batches = Batches(X, 2, prefetch=3)
    for _ in batches:
        assert threading.active_count() > 1
        break
    assert not workers()
    with pytest.raises(ZeroDivisionError) as caught:
        for _ in batches:
            1 / 0  # noqa: B018
    assert not workers(), "also while the exception is held"
    del caught
    for _ in batches:
        pass
    assert not workers()


def test_the_thread_ends_with_an_iterator_that_is_forgotten() -> None:
    iterator = iter(Batches(X, 2, prefetch=3))
    next(iterator)
    assert workers()
    del iterator
    gc.collect()
    assert not workers()


def test_a_thread_that_waits_for_room_does_not_run_ahead() -> None:
    asked: list[int] = []

    class Counting:
        def __len__(self) -> int:
            return 40

        def __getitem__(self, number: int) -> Any:
            asked.append(number)
            return X[number]

    iterator = iter(Batches(Counting(), 1, prefetch=3))
    next(iterator)
    iterator.close()
    assert len(asked) <= 4


INTERRUPTED = """
import os, signal, threading
import numpy as np
from graphc.data import Batches

class Slow:
    def __len__(self):
        return 100
    def __getitem__(self, number):
        if number == 7:
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(0.2)
        return number

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
batches = Batches(Slow(), 2, prefetch=2)
try:
    for batch in batches:
        threading.Event().wait(0.05)
except KeyboardInterrupt:
    print(threading.active_count(), 0 < batches.position["batch"] <= 4)
"""


def test_an_interrupt_ends_the_thread() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1 True\n", "")


def test_a_process_ends_in_the_midst_of_a_loop() -> None:
    program = (
        "import numpy as np; from graphc.data import Batches; "
        "i = iter(Batches(np.zeros(9), 1, prefetch=1)); next(i); import sys; sys.exit(3)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 3


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "graphc-batches"]
