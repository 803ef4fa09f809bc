"""Calls of a GPU program for inspection: one launch at a time to find a NaN, or timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from graphc.base.dtypes import Array
from graphc.base.errors import RunError
from graphc.ir import Type
from graphc.ir.state import aligned_empty, elements
from graphc.runtime.checks.nan import (
    Nan,
    Reads,
    has_nan,
    kernels_of,
    reads_of,
    value_types,
    written_nan,
)
from graphc.runtime.cuda.player import CudaPlayer, Input
from graphc.runtime.plan.plan import Copy, Launch, Range
from graphc.runtime.plan.unroll import Unrolled
from graphc.runtime.tuning.timing import Timing, timing


def run_checked(executable: CudaPlayer, inputs: Sequence[Input]) -> None:
    """Run all steps, one after another on stream 0. Raises RunError at the first NaN; then the
    state is restored."""
    plan, stream = executable.plan, executable.device.streams[0]
    executable.prepare(inputs)
    for binding in (*plan.inputs, *plan.state):
        if has_nan(_values(executable, binding.place, binding.value.type)):
            raise RunError(Nan(binding.value).message)
    types, nodes = _types(executable), kernels_of(executable.graph)
    with _restored(executable, only_after_errors=True):
        for unrolled in _work(executable):
            step, reads = unrolled.step, None
            if isinstance(step, Launch):
                reads = reads_of(step, nodes, [_bytes(executable, place) for place in step.reads])
            for issue in executable.issues(step, stream):
                issue()
            if isinstance(step, Launch):
                _check(executable, step, unrolled.iterations, types, reads)
    executable.mark_updated()


def profile(executable: CudaPlayer, inputs: Sequence[Input], repeats: int) -> list[Timing]:
    """The times of each launch and copy, run one after another."""
    stream, driver = executable.device.streams[0], executable.device.driver
    work = _work(executable)
    issues = [executable.issues(u.step, stream) for u in work]
    marks = [driver.Event() for _ in range(len(work) + 1)]
    spent = np.zeros((repeats, len(work)))
    executable.prepare(inputs)
    with _restored(executable):
        for repeat in range(-1, repeats):
            marks[0].record(stream)
            for mark, group in zip(marks[1:], issues, strict=True):
                for issue in group:
                    issue()
                mark.record(stream)
            stream.synchronize()
            if repeat >= 0:
                spent[repeat] = [1000 * b.time_since(a) for a, b in pairwise(marks)]
    of_step: dict[int, list[int]] = {}
    for place, u in enumerate(work):
        of_step.setdefault(u.number, []).append(place)
    found = []
    for number, places in of_step.items():
        step = work[places[0]].step
        name = step.kernel if isinstance(step, Launch) else "copy"
        found.append(timing(number, name, spent[:, places].sum(axis=1), len(places)))
    return found


def calls(executable: CudaPlayer, play: Callable[[], None], repeats: int) -> list[float]:
    """Microseconds of each of `repeats` calls of `play`, after one uncounted call."""
    spent = []
    with _restored(executable):
        for _ in range(1 + repeats):
            begin = time.perf_counter_ns()
            play()
            spent.append((time.perf_counter_ns() - begin) / 1000)
    return spent[1:]


def replays(
    executable: CudaPlayer,
    inputs: Sequence[Input],
    play: Callable[[], None],
    repeats: int,
    rounds: int,
) -> list[float]:
    """Microseconds of a step that `play` issues, `repeats` of them per round."""
    stream, driver = executable.device.streams[0], executable.device.driver
    marks = [driver.Event() for _ in range(rounds + 1)]
    executable.prepare(inputs)
    with _restored(executable):
        play()
        marks[0].record(stream)
        for mark in marks[1:]:
            for _ in range(repeats):
                play()
            mark.record(stream)
        stream.synchronize()
    return [1000 * b.time_since(a) / repeats for a, b in pairwise(marks)]


def timeline(executable: CudaPlayer, inputs: Sequence[Input]) -> list[tuple[int, float, float]]:
    """(step number, start, end) of each launch and copy in microseconds, on its stream; in loops
    for every iteration."""
    driver, streams = executable.device.driver, executable.device.streams
    marks: list[tuple[int, Any, Any]] = []
    origin = driver.Event()
    executable.prepare(inputs)
    with _restored(executable):
        origin.record(streams[0])
        for unrolled in executable.steps:
            step = unrolled.step
            timed = isinstance(step, Launch | Copy)
            if timed:
                marks.append((unrolled.number, driver.Event(), driver.Event()))
                marks[-1][1].record(streams[step.stream])
            for issue in executable.issues(step):
                issue()
            if timed:
                marks[-1][2].record(streams[step.stream])
        for stream in streams[: executable.plan.streams]:
            stream.synchronize()
        times = [(i, 1000 * a.time_since(origin), 1000 * b.time_since(origin)) for i, a, b in marks]
    first = min((start for _, start, _ in times), default=0.0)
    return [(index, start - first, stop - first) for index, start, stop in times]


@contextmanager
def _restored(executable: CudaPlayer, only_after_errors: bool = False) -> Iterator[None]:
    """Restore the state that the plan writes after the block, or with `only_after_errors` if it
    fails."""
    device, stream = executable.device, executable.device.streams[0]
    copies = [copy for _, copy in executable.updated]
    before = [aligned_empty((copy.nbytes,), np.uint8) for copy in copies]
    for array, copy in zip(before, copies, strict=True):
        device.staging.download(array, copy.address, stream)
    failed = True
    try:
        yield
        failed = False
    finally:
        if failed or not only_after_errors:
            for array, copy in zip(before, copies, strict=True):
                device.staging.upload(copy.address, array, stream)


def _check(
    executable: CudaPlayer,
    step: Launch,
    iterations: Sequence[int],
    types: dict[str, Type],
    reads: Reads | None,
) -> None:
    for place in step.writes:
        type = types.get(place.value)
        if type is not None and has_nan(elements(_values(executable, place, type), type)):
            raise written_nan(step, place.value, type, iterations, reads)


def _values(executable: CudaPlayer, place: Range, type: Type) -> Array:
    """The elements at a place, once stream 0 has reached them."""
    return _bytes(executable, place).view(type.numpy_dtype)


def _bytes(executable: CudaPlayer, place: Range) -> Array:
    """The bytes at a place, likewise."""
    values = aligned_empty((place.stop - place.start,), np.uint8)
    address = executable.addresses().of(place)
    executable.device.staging.download(values, address, executable.device.streams[0])
    return values


def _types(executable: CudaPlayer) -> dict[str, Type]:
    plan = executable.plan
    bindings = (*plan.state, *plan.inputs, *plan.outputs)
    return {b.value.name: b.value.type for b in bindings} | value_types(executable.graph)


def _work(executable: CudaPlayer) -> list[Unrolled]:
    return [u for u in executable.steps if isinstance(u.step, Launch | Copy)]
