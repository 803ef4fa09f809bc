"""The ranks of a run, as one of them sees them: sums, agreement, and the end of others."""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from graphc.base.errors import RunError
from graphc.parallel.life import Life
from graphc.parallel.mesh import Peers
from graphc.parallel.transport import Alone, Array, LostError, Transport, collect

GRAIN = 64
"""Bytes of whose multiples slices of a bucket have their bounds."""
WORDS = 0.5
"""Seconds in which the last words of a rank arrive after its data has stopped."""


class Group:
    """The ranks of a run.

    A rank that fails makes every call that communicates raise RunError, on all others; from then on
    the run is over.
    """

    def __init__(self, transport: Transport, peers: Peers | None = None) -> None:
        self.transport = transport
        self.rank, self.ranks = transport.rank, transport.ranks
        self.step = 0
        """The number of the step that is computed, over all programs of the run."""
        self._failure = ""
        self._missing = False
        """Whether a sum was not computed."""
        self._told = threading.Event()
        self._staging: dict[tuple[int, str], Array] = {}
        self._closed = False
        self._life = Life([] if peers is None else peers.life, self._others_failed)
        self._hook = sys.excepthook

    def end_with_process(self) -> None:
        """Tell the other ranks when this process ends, and why."""
        if self.ranks > 1:
            atexit.register(self.end)
            self._hook, sys.excepthook = sys.excepthook, self._excepthook

    def check(self) -> None:
        """Raise RunError if a rank has failed."""
        if self._failure:
            raise RunError(self._failure)

    def finish(self) -> None:
        """End a step. Raises RunError if one of its sums is missing.

        A rank may have failed behind its last sum: then this step is whole, and the next one fails.
        """
        if self._missing:
            self.check()

    def sum_pieces(self, terms: Sequence[Array], sums: Array) -> None:
        """Let `sums` be the sum of the terms of all ranks, in the order of the ranks.

        Where it fails, `check` will say so; messages run where nothing can be raised.

        Args:
            terms: The pieces of this rank, each like `sums`. The first may be `sums` itself.
            sums: Receives the sum [n].
        """
        self._noting(lambda: self._sum(terms, sums))

    def sum_slices(self, terms: Sequence[Array], total: Array) -> None:
        """Let `total` be this rank's slice of the sum of the terms of all ranks, in their order.

        Failures are as those of `sum_pieces`.

        Args:
            terms: The pieces of this rank [ranks * n]: the slice of each rank in order.
            total: Receives the sum [n].
        """
        bounds = [total.nbytes * r for r in range(self.ranks + 1)]
        self._noting(lambda: self._reduce(terms, bounds, total))

    def gather_slices(self, own: Array, whole: Array) -> None:
        """Let `whole` be the slices of all ranks in order. Failures are as those of `sum_pieces`.

        Args:
            own: This rank's slice [n].
            whole: Receives all slices [ranks * n].
        """
        self._noting(lambda: self._gather(own, whole))

    def swap(self, parts: Array, received: Array) -> None:
        """Let `received` be what each rank has for this one. Failures are as those of `sum_pieces`.

        Args:
            parts: What this rank has for each [ranks, n].
            received: Receives a row of each rank [ranks, n].
        """
        bounds = [parts[0].nbytes * r for r in range(self.ranks + 1)]
        whole, target = parts.reshape(-1).view(np.uint8), received.view(np.uint8)
        self._noting(lambda: self.transport.all_to_all(whole, bounds, target))

    def send(self, array: Array, peer: int) -> None:
        """Send an array [n] to another rank. Failures are as those of `sum_pieces`."""
        self._noting(lambda: self.transport.send(_bytes(array), peer))

    def receive(self, array: Array, peer: int) -> None:
        """Let `array` [n] be what another rank sends. Failures are as those of `sum_pieces`."""
        self._noting(lambda: self.transport.receive(_bytes(array), peer))

    def share(self, array: Array, root: int) -> None:
        """Let `array` [n] be that of rank `root`. Failures are as those of `sum_pieces`."""
        self._noting(lambda: self.transport.broadcast(_bytes(array), root))

    def shared(self, array: Array, root: int) -> Array:
        """Return a contiguous array, which is overwritten by that of rank `root`.

        All ranks call it together, between steps. Raises RunError if a rank has failed.
        """
        self._raising(lambda: self.transport.broadcast(_bytes(array), root))
        return array

    def gathered(self, own: Array) -> Array:
        """Return the contiguous arrays of all ranks, along a new first axis.

        All ranks call it together, between steps. Raises RunError if a rank has failed.
        """
        whole = np.empty((self.ranks, *own.shape), own.dtype)
        self._raising(lambda: self._gather(own.reshape(-1), whole.reshape(-1)))
        return whole

    def _gather(self, own: Array, whole: Array) -> None:
        bounds = [own.nbytes * r for r in range(self.ranks + 1)]
        whole[self.rank * own.size : (self.rank + 1) * own.size] = own
        self.transport.all_gather(whole.view(np.uint8), bounds)

    def _noting(self, call: Callable[[], None]) -> None:
        """Call what communicates within a step, where nothing can be raised."""
        if self._failure:
            self._missing = True
            return
        try:
            with np.errstate(all="ignore"):  # between arrays lies anything
                call()
        except LostError as lost:
            self._missing = True
            self._lose(lost)

    def _sum(self, terms: Sequence[Array], sums: Array) -> None:
        """Reduce and scatter by an exchange of slices, then gather."""
        grain = max(1, GRAIN // sums.itemsize)
        parts = -(-sums.size // grain)
        cuts = [min(sums.size, parts * r // self.ranks * grain) for r in range(self.ranks)]
        cuts.append(sums.size)
        bounds = [cut * sums.itemsize for cut in cuts]
        self._reduce(terms, bounds, sums[cuts[self.rank] : cuts[self.rank + 1]])
        self.transport.all_gather(sums.view(np.uint8), bounds)

    def _reduce(self, terms: Sequence[Array], bounds: Sequence[int], total: Array) -> None:
        """Exchange the slices of `terms` between `bounds`, in bytes, and add this rank's."""
        received = []
        for number, term in enumerate(terms):
            target = self._stage(number, self.ranks * total.nbytes)
            target = target.reshape(self.ranks, total.nbytes)
            self.transport.all_to_all(term.view(np.uint8), bounds, target)
            received.append(target.view(total.dtype))
        pieces = ((r, s) for r in range(self.ranks) for s in range(len(terms)))
        for n, (r, s) in enumerate(pieces):
            if n == 0:
                np.copyto(total, received[s][r])
            else:
                np.add(total, received[s][r], out=total)

    def _stage(self, number: int, size: int) -> Array:
        """Memory for what is received, kept from call to call."""
        held = self._staging.get((number, "u8"))
        if held is None or held.size < size:
            held = self._staging[number, "u8"] = np.empty(size, np.uint8)
        return held[:size]

    def broadcast(self, arrays: Sequence[Array]) -> None:
        """Let contiguous arrays be those of rank 0. Raises RunError if a rank has failed."""
        for array in arrays:
            self._raising(partial(self._broadcast, array))

    def _broadcast(self, array: Array) -> None:
        self.transport.broadcast(_bytes(array))

    def agreed(self, value: Any) -> Any:
        """Return what rank 0 gives, a value for JSON, on all ranks."""
        found = self.collected(value)
        return found[0]

    def collected(self, value: Any) -> list[Any]:
        """Return what each rank gives, values for JSON. Raises RunError if a rank has failed."""
        text = json.dumps(value, sort_keys=True).encode()
        return [json.loads(t) for t in self._raising(lambda: collect(self.transport, text))]

    def compare(self, what: str, facts: Mapping[str, str]) -> None:
        """Raise RunError unless all ranks give the same facts.

        The message says which rank differs in what.
        """
        rows = self.collected(dict(facts))
        lines = []
        for rank, row in enumerate(rows[1:], 1):
            for name in dict.fromkeys([*rows[0], *row]):
                mine, theirs = rows[0].get(name, "nothing"), row.get(name, "nothing")
                if mine != theirs:
                    lines.append(f"rank {rank} differs from rank 0 in {name}: {theirs}, not {mine}")
        if lines:
            raise RunError("\n  ".join([f"{what}: the ranks do not run the same program", *lines]))

    @functools.cached_property
    def measured(self) -> tuple[float, float]:
        """Seconds of a sum of one number, and bytes per second of a large one, on rank 0.

        All ranks read it together.
        """
        small, large = np.zeros(1, np.float32), np.zeros(1 << 18, np.float32)
        times = [self._seconds(array) for array in (small, small, small, large, large, large)]
        latency, whole = min(times[:3]), min(times[3:])
        found = self.agreed([latency, large.nbytes / max(whole - latency, 1e-6)])
        return float(found[0]), float(found[1])

    def _seconds(self, array: Array) -> float:
        begin = time.perf_counter()
        self._raising(lambda: self._sum([array], array))
        return time.perf_counter() - begin

    def _raising(self, call: Callable[[], Any]) -> Any:
        self.check()
        try:
            return call()
        except LostError as lost:
            self._lose(lost)
            raise RunError(self._failure) from None

    def _lose(self, lost: LostError) -> None:
        """Note that a rank is gone: by its last words if they come, else by what was seen."""
        self._told.wait(WORDS)
        if not self._failure:
            self._fail(f"rank {self.rank} stopped at step {self.step}: {lost}")

    def _others_failed(self, rank: int, words: str) -> None:
        """Called by the thread that watches the other ranks."""
        text = words or f"rank {rank} ended at step {self.step}, without a word: it was killed"
        self._fail(text)
        os.write(2, f"graphc: rank {self.rank} ends: {text}\n".encode())
        self.transport.wake()

    def fail(self, problem: str) -> None:
        """Note that this rank cannot go on; `check` raises that, and the others are told."""
        words = f"rank {self.rank} failed at step {self.step}: {problem}"
        self._missing = True
        self._fail(words)
        if not self._closed:
            self._closed = True
            self._life.tell(words)

    def _fail(self, words: str) -> None:
        if not self._failure:
            self._failure = (
                f"{words}; the state is that of no step: begin again from the last checkpoint"
            )
        self._told.set()

    def _excepthook(
        self, kind: type[BaseException], value: BaseException, trace: TracebackType | None
    ) -> None:
        """Tell the other ranks why this one ends."""
        if not self._failure:
            words = f"rank {self.rank} failed at step {self.step}: {kind.__name__}: {value}"
            self._closed = True
            self._life.tell(words)
            self._failure = words
        self._hook(kind, value, trace)

    def end(self) -> None:
        """End: say so to the others, unless the last words are said."""
        if not self._closed:
            self._closed = True
            self._life.tell(self._failure or None)
        self._life.close()
        self.transport.close(bool(self._failure))


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


ALONE = Group(Alone())
"""The group of a process that trains by itself."""
