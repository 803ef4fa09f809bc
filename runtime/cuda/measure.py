"""Calls of a GPU program that look inside: one launch at a time for NaN, or with a clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import RunError
from graphc.ir import Type
from graphc.runtime.plan import Copy, Launch, Range, Step
from graphc.runtime.reference import has_nan, nan_message
from graphc.state import aligned_empty

if TYPE_CHECKING:
    from graphc.runtime.cuda.executable import CudaExecutable, Input

Array = np.ndarray[Any, np.dtype[Any]]


def run_checked(executable: CudaExecutable, inputs: Sequence[Input]) -> None:
    """All steps, one after another on stream 0. RunError at the first NaN; then the state is what
    it was."""
    plan, stream = executable.plan, executable.device.streams[0]
    executable.prepare(inputs)
    for binding in (*plan.inputs, *plan.state):
        if has_nan(_values(executable, binding.place, binding.value.type)):
            raise RunError(f"{nan_message(binding.value, None)}; the state is unchanged")
    types = _types(executable)
    with _restored(executable, only_after_errors=True):
        for step in _work(plan.steps):
            for issue in executable.issues(step, stream):
                issue()
            if isinstance(step, Launch):
                _check(executable, step, types)
    executable.mark_updated()


def profile(
    executable: CudaExecutable, inputs: Sequence[Input], repeats: int
) -> list[tuple[str, int, float]]:
    """(kernel or "copy", calls, microseconds of all calls) per launch, one after another."""
    stream, driver = executable.device.streams[0], executable.device.driver
    steps = _work(executable.plan.steps)
    issues = [executable.issues(step, stream) for step in steps]
    marks = [driver.Event() for _ in range(len(steps) + 1)]
    spent = np.zeros(len(steps))
    executable.prepare(inputs)
    with _restored(executable):
        for repeat in range(1 + repeats):
            marks[0].record(stream)
            for mark, group in zip(marks[1:], issues, strict=True):
                for issue in group:
                    issue()
                mark.record(stream)
            stream.synchronize()
            if repeat:
                spent += [b.time_since(a) for a, b in pairwise(marks)]
    names = [step.kernel if isinstance(step, Launch) else "copy" for step in steps]
    return [(n, repeats, float(t) * 1000) for n, t in zip(names, spent, strict=True)]


def timeline(executable: CudaExecutable, inputs: Sequence[Input]) -> list[tuple[int, float, float]]:
    """(index of the step, start, end) of each launch and copy, microseconds, on its stream."""
    driver, streams = executable.device.driver, executable.device.streams
    marks: dict[int, tuple[Any, Any]] = {}
    origin = driver.Event()
    executable.prepare(inputs)
    with _restored(executable):
        origin.record(streams[0])
        for index, step in enumerate(executable.plan.steps):
            timed = isinstance(step, Launch | Copy)
            if timed:
                marks[index] = driver.Event(), driver.Event()
                marks[index][0].record(streams[step.stream])
            for issue in executable.issues(step):
                issue()
            if timed:
                marks[index][1].record(streams[step.stream])
        for stream in streams[: executable.plan.streams]:
            stream.synchronize()
        times = [
            (i, 1000 * a.time_since(origin), 1000 * b.time_since(origin))
            for i, (a, b) in marks.items()
        ]
    first = min((start for _, start, _ in times), default=0.0)
    return [(index, start - first, stop - first) for index, start, stop in times]


@contextmanager
def _restored(executable: CudaExecutable, only_after_errors: bool = False) -> Iterator[None]:
    """Put the state that the plan writes back to what it was."""
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


def _check(executable: CudaExecutable, step: Launch, types: dict[str, Type]) -> None:
    for place in step.writes:
        type = types.get(place.value)
        if type is not None and has_nan(_values(executable, place, type)):
            where = f", {step.where}" if str(step.where) else ""
            raise RunError(
                f"NaN in %{place.value} : {type}, written by {step.kernel}{where}; "
                "the state is unchanged"
            )


def _values(executable: CudaExecutable, place: Range, type: Type) -> Array:
    """The elements at a place, once stream 0 has come to them."""
    values = np.empty(type.size, type.numpy_dtype)
    address = executable.addresses().of(place)
    executable.device.staging.download(values, address, executable.device.streams[0])
    return values


def _types(executable: CudaExecutable) -> dict[str, Type]:
    plan, graph = executable.plan, executable.graph
    types = {b.value.name: b.value.type for b in (*plan.state, *plan.inputs, *plan.outputs)}
    for node in graph.nodes if graph else ():
        types.update({v.name: v.type for v in node.outputs})
    return types


def _work(steps: Sequence[Step]) -> list[Launch | Copy]:
    return [step for step in steps if isinstance(step, Launch | Copy)]
