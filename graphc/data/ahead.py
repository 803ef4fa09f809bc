"""A thread that makes the next items of an iterator while the caller works on the last one."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

from graphc.base.errors import GraphError

T = TypeVar("T")


class _End:
    """What the thread hands over behind the last item, with the exception that ended it."""

    def __init__(self, problem: BaseException | None) -> None:
        self.problem = problem


def ahead(items: Generator[T], most: int) -> Ahead[T] | Generator[T]:
    """Return an iterator whose items a thread makes.

    Where the system refuses a thread, it is `items` itself.
    """
    try:
        return Ahead(items, most)
    except RuntimeError:
        return items


class Ahead(Generic[T]):
    """An iterator whose items a thread makes, up to `most` before they are asked for.

    An exception of `items` is raised where the item would have been returned. `close` ends the
    thread, also in the midst of `items`, as soon as that has made the item it is at.
    """

    def __init__(self, items: Iterator[T], most: int) -> None:
        self._room = threading.Semaphore(most)
        self._made: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
        self._closed, self._process = False, os.getpid()
        # A daemon: a loop that nobody ends does not keep the process from ending.
        self._thread = threading.Thread(
            target=self._work, args=(items,), name="graphc-batches", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if os.getpid() != self._process:
            raise GraphError(
                "Batches: the loop began before the process was forked, and its thread is the "
                "parent's; begin the loop in the child"
            )
        item = self._made.get()
        self._room.release()
        if not isinstance(item, _End):
            return item
        self._made.put(item)  # for a call that comes later still
        if item.problem is None:
            raise StopIteration
        raise item.problem

    def close(self) -> None:
        """End the thread; return once it has ended."""
        self._closed = True
        self._room.release()
        self._thread.join()

    def _work(self, items: Iterator[T]) -> None:
        problem = None
        try:
            while self._room.acquire() and not self._closed:
                self._made.put(next(items))
        except StopIteration:
            pass
        except BaseException as raised:
            problem = raised
        self._made.put(_End(problem))
