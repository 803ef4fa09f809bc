"""Build kernels in the background while programs already run without them.

There is one queue per process. Threads, one per core, take the kernels from it that gain most for
their compile time, a few in one translation unit, and run compilers at the least priority: whatever
else wants a core goes before. Whoever has ordered a kernel is told its address, or why it was not
built; a kernel that several programs want is built once. The compilers end with the process.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from graphc.base import locks
from graphc.base.cores import usable_cores
from graphc.base.errors import CompileError
from graphc.base.locks import free_after_fork
from graphc.runtime.compilers import cache
from graphc.runtime.compilers.compiler import BackgroundThread, Jobs
from graphc.runtime.compilers.translation_units import KernelBuilder, PendingKernel

UNIT_COST = 12.0
"""The largest cost of a unit, in simple kernels: half a second of compilation. A larger unit takes
less time per kernel, but all of its kernels are swapped in together, at its end."""


class Customer(Protocol):
    """Who has ordered kernels. Its methods are called by other threads."""

    def built(self, addresses: Mapping[str, int]) -> None:
        """Take the addresses of kernels by their keys."""

    def failed(self, key: str, error: CompileError) -> None:
        """Note that a kernel cannot be built."""

    def dropped(self, key: str) -> None:
        """Note that a kernel will not be built, as compilers were told to end."""


@dataclass
class _Order:
    """A kernel that is to be built, or is being built."""

    builder: KernelBuilder
    kernel: PendingKernel
    gain: float
    customers: list[weakref.ref[Customer]] = field(default_factory=list)
    urgent: bool = False

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """What is built first has the highest rank: what somebody waits for, then what programs
        that still exist want, then what gains most."""
        return self.urgent, bool(self.existing()), self.gain / self.kernel.cost

    def existing(self) -> list[Customer]:
        """The customers that still exist."""
        return [customer for ref in self.customers if (customer := ref()) is not None]


class BackgroundBuilds:
    """The queue of a process."""

    def __init__(self) -> None:
        self._lock = free_after_fork(threading.Lock(), locks.BUILDS)
        self._waiting: dict[tuple[str, str], _Order] = {}
        self._running: dict[tuple[str, str], _Order] = {}
        self._workers: list[BackgroundThread] = []
        self._jobs = Jobs(in_background=True)

    def order(
        self,
        builder: KernelBuilder,
        kernels: Collection[PendingKernel],
        gains: Mapping[str, float],
        customer: Customer,
    ) -> None:
        """Order kernels that the cache lacks; `gains` has, by key, how much of a call's time
        compiling a kernel saves, in any unit."""
        with self._lock:
            for kernel in kernels:
                place = str(builder.folder), kernel.key
                order = self._running.get(place) or self._waiting.get(place)
                if order is None:
                    order = self._waiting[place] = _Order(builder, kernel, 0.0)
                order.gain = max(order.gain, gains.get(kernel.key, 0.0))
                order.customers.append(weakref.ref(customer))
            self._start()

    def hurry(self, keys: Collection[str]) -> None:
        """Let these kernels be built first; somebody waits for them. Where the system refuses
        threads, this builds all that waits."""
        with self._lock:
            for order in self._waiting.values():
                order.urgent |= order.kernel.key in keys
            self._start()
            refused = not self._workers
        if refused:
            self._work()

    def end(self) -> None:
        """Drop all orders, and terminate the compilers."""
        with self._lock:
            dropped = list(self._waiting.values())
            self._waiting.clear()
            workers = list(self._workers)
            self._jobs.end()
        for worker in workers:
            worker.end()
        for order in dropped:
            for customer in order.existing():
                customer.dropped(order.kernel.key)
        with self._lock:
            self._jobs = Jobs(in_background=True)

    def after_fork_in_child(self) -> None:
        """Build here too what the parent's threads, which a child lacks, are building."""
        self._waiting.update(self._running)
        self._running.clear()
        self._workers.clear()
        self._jobs = Jobs(in_background=True)

    def _start(self) -> None:
        """Start as many threads as there are cores and orders. The lock is held."""
        while len(self._workers) < min(usable_cores(), len(self._waiting)):
            worker = BackgroundThread(self._work, "graphc-background", self._jobs)
            if not worker.try_start():
                return
            self._workers.append(worker)

    def _work(self) -> None:
        """Build until nothing is left, or the process ends."""
        while unit := self._next_unit():
            try:
                self._build(unit)
            except BaseException:  # an interrupt of the caller of `hurry`
                with self._lock:
                    for order in unit:
                        place = str(order.builder.folder), order.kernel.key
                        if self._running.pop(place, None):
                            self._waiting[place] = order
                raise

    def _next_unit(self) -> list[_Order]:
        with self._lock:
            if self._jobs.ended or not self._waiting:
                own = threading.current_thread()
                self._workers = [worker for worker in self._workers if worker is not own]
                return []
            ranked = sorted(self._waiting.items(), key=lambda item: item[1].rank, reverse=True)
            whole = sum(order.kernel.cost for _, order in ranked)
            most = min(UNIT_COST, max(UNIT_COST / 3, whole / usable_cores()))
            unit: list[_Order] = []
            builder, cost = ranked[0][1].builder, 0.0
            for place, order in ranked:
                cost += order.kernel.cost
                if order.builder != builder or (unit and cost > most):
                    break
                unit.append(order)
                self._running[place] = self._waiting.pop(place)
            return unit

    def _build(self, unit: Sequence[_Order]) -> None:
        """Build a unit; if it fails, its kernels one by one."""
        builder, kernels = unit[0].builder, [order.kernel for order in unit]
        addresses: dict[str, int] = {}
        errors: dict[str, CompileError] = {}
        try:
            with cache.open_folder("cpu"):
                missing = builder.missing(kernels)  # another process may have built some
                if missing:
                    builder.build_unit(missing)
                addresses = {kernel.key: builder.address(kernel) for kernel in kernels}
        except CompileError as error:
            errors = {kernel.key: error for kernel in kernels}
        except Exception as problem:  # such as a lack of memory: whoever waits is to know
            refused = CompileError(f"kernels cannot be built in the background: {problem!r}")
            errors = {kernel.key: refused for kernel in kernels}
        if errors and len(unit) > 1 and not self._jobs.ended:
            for order in unit:
                self._build([order])
            return
        told: dict[int, Customer] = {}
        while customers := self._untold(unit, told):
            for customer in customers:
                told[id(customer)] = customer
                if addresses:
                    customer.built(addresses)
                for failed, why in errors.items():
                    if self._jobs.ended:
                        customer.dropped(failed)
                    else:
                        customer.failed(failed, why)

    def _untold(self, unit: Sequence[_Order], told: Mapping[int, Customer]) -> list[Customer]:
        """Those who have ordered any of a unit that has been built, and are not told yet. If there
        are none, the unit is taken off the list of what is being built: not before, since the
        child of a fork builds what is on the list, and tells those who wait there."""
        with self._lock:
            found = {id(c): c for order in unit for c in order.existing() if id(c) not in told}
            for order in unit if not found else ():
                self._running.pop((str(order.builder.folder), order.kernel.key), None)
        return list(found.values())


BUILDS = BackgroundBuilds()
"""The queue of this process."""

os.register_at_fork(after_in_child=BUILDS.after_fork_in_child)
