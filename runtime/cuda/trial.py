"""Run candidates for a node on a GPU, on scratch memory, timed by the device's events."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from graphc.base.cores import usable_cores
from graphc.base.errors import CompileError
from graphc.base.messages import log
from graphc.ir import Graph, Node
from graphc.kernels.program.calls import Call
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.cuda.compile import find_compiler
from graphc.runtime.cuda.device import Device, find_device, gpu_name
from graphc.runtime.cuda.launches import Issue, library_for
from graphc.runtime.cuda.player import CudaPlayer
from graphc.runtime.planner.planner import make_plan
from graphc.runtime.tuning.stream_autotuner import filled
from graphc.runtime.tuning.timing import Play

SAMPLE = 5e-4
"""Approximate seconds of a play, so that its overhead does not count: an event is exact to half a
microsecond, and a graph starts some microseconds after it."""
MOST_REPEATS = 200
"""The most calls of a kernel in a play."""


def trial_on(name: str) -> CudaTrial | None:
    """The GPU of this name; None for one that is absent or simulated, whose times mean nothing."""
    machine = gpu_name(name)
    if machine is None:
        return None
    return CudaTrial(find_device(name), f"{machine}, {find_compiler().title}")


class CudaTrial:
    """Runs candidates on one GPU.

    `machine` names it with all that its kernels' times depend on. A play is a captured graph with
    as many calls of a kernel as fill `SAMPLE`, so launches cost what they cost in a program's
    graph. All calls use the same memory, which is cached where it fits, as it often is when the
    previous kernel has just written it.
    """

    def __init__(self, device: Device, machine: str) -> None:
        self.machine, self._device = machine, device
        self._seconds = 0.0

    def clock(self) -> float:
        """Seconds of device time that plays have taken."""
        return self._seconds

    def library(self, call: Call) -> str:
        """The library for such a call; "" if there is none."""
        found = library_for(self._device.driver, call)
        return "" if found is None else str(found.title)

    def workspaces(self, call: Call) -> list[int]:
        """Bytes of workspace of each algorithm that the library has for a call; empty if it rejects
        it."""
        with self._device.entered():
            try:
                found: list[int] = library_for(self._device.driver, call).prepare(call).workspaces
            except CompileError as error:
                log("info", f"tune: {error}")
                return []
        return found

    @contextmanager
    def plays(self, node: Node, found: Sequence[Kernel]) -> Iterator[list[Play]]:
        """Functions that run each kernel, all on the same numbers. The device is held until the
        end. Raises RunError if its memory is too small."""
        with ThreadPoolExecutor(usable_cores()) as pool:
            players = list(pool.map(partial(self._player, node), found))
        inputs = [filled(v.type.storage_shape, v.type.numpy_dtype) for v in node.inputs]
        with self._device.entered():
            for player in players:
                player.prepare(inputs)
            calls = [[i for u in p.steps for i in p.issues(u.step)] for p in players]
            for call in calls:  # which loads the kernels
                self._timed(partial(_issue, call, 1))
            once = self._timed(partial(_issue, calls[0], 1))
            repeats = max(
                1, min(MOST_REPEATS, math.ceil(SAMPLE / max(once, SAMPLE / MOST_REPEATS)))
            )
            yield [partial(self._timed, self._repeated(call, repeats)) for call in calls]

    def _player(self, node: Node, kernel: Kernel) -> CudaPlayer:
        graph = Graph(kernel.name, node.inputs, (), (node,), node.outputs)
        plan = make_plan(graph, {node.outputs[0].name: kernel}, device="cuda", streams=1)
        return CudaPlayer(plan, {}, self._device, collects=False)

    def _repeated(self, call: Sequence[Issue], repeats: int) -> Play:
        """A function that issues `repeats` calls on the first stream, as a graph if the device
        captures graphs."""
        driver, stream = self._device.driver, self._device.streams[0]
        if not self._device.captures:
            return partial(_issue, call, repeats)
        driver.begin_capture(stream)
        try:
            _issue(call, repeats)
        finally:
            graph: Any = driver.end_capture(stream)
        return partial(graph.launch, stream)

    def _timed(self, play: Play) -> float:
        """Seconds of device time of a play, which the clock then includes."""
        driver, stream = self._device.driver, self._device.streams[0]
        begin, end = driver.Event(), driver.Event()
        begin.record(stream)
        play()
        end.record(stream)
        end.synchronize()
        seconds = end.time_since(begin) / 1000
        self._seconds += seconds
        return float(seconds)


def _issue(call: Sequence[Issue], repeats: int) -> None:
    for _ in range(repeats):
        for issue in call:
            issue()
