"""The times of a program's kernels on a GPU, each alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from graphc.runtime.cuda import Device, measure
from graphc.runtime.plan.plan import Launch
from tools.gpu_model.constants import code_digest

REPEATS, ROUNDS = 20, 5
ROUND = 500.0
"""Microseconds of a round of a kernel, roughly."""
MOST = 50
"""Launches of a kernel in a round at most."""


def kernel_times(executable: Any, inputs: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Of each kernel of a CudaExecutable, and of each joined launch: `us`, microseconds of its
    first call in a step, in a graph that repeats this call alone, and `code`, the digest of its
    machine code. A simulated device plays each once and has no code. The state is restored."""
    place, simulated = executable.device, executable.device.name.startswith("sim")
    found: dict[str, dict[str, Any]] = {}
    with place.entered(), measure._restored(executable):
        executable.prepare(inputs)
        executable._play()
        for name, source, issues in _firsts(executable):
            if simulated:
                found[name] = {"us": repeated(issues, place, 1, 1), "code": ""}
                continue
            once = repeated(issues, place, 3, 1)
            us = repeated(issues, place, max(3, min(MOST, int(ROUND / once))))
            code = code_digest(place.driver.compile(source, name))
            found[name] = {"us": round(us, 3), "code": code}
    return found


def _firsts(executable: Any) -> Iterator[tuple[str, str, list[Callable[[], Any]]]]:
    """The names and texts of kernels, with what issues the first call of each."""
    plan, stream = executable.plan, executable.device.streams[0]
    functions, addresses, known = executable._kept.functions, executable.addresses(), set()
    joins = []
    for joined in plan.joined if executable.device.driver.cooperates else ():
        if issue := functions.joined(joined, addresses):
            joins.append(joined)
            yield joined.kernel.name, joined.kernel.source, [issue]
    for unrolled in executable.steps:
        step = unrolled.step
        if any(joined.first <= unrolled.number < joined.stop for joined in joins):
            continue
        if isinstance(step, Launch) and step.kernel not in known:
            known.add(step.kernel)
            if functions.launches(step.kernel):
                source = plan.kernels[step.kernel].source
                yield step.kernel, source, executable.issues(step, stream)


def repeated(
    calls: Sequence[Callable[[], object]],
    place: Device,
    repeats: int = REPEATS,
    rounds: int = ROUNDS,
) -> float:
    """Microseconds of the calls, in a graph that repeats them so often, as the median of so many
    launches of the graph behind a first one. The device is entered."""
    driver, stream = place.driver, place.streams[0]
    driver.begin_capture(stream)
    try:
        for _ in range(repeats):
            for call in calls:
                call()
    finally:
        graph = driver.end_capture(stream)
    marks = [driver.Event() for _ in range(rounds + 1)]
    graph.launch(stream)
    for mark in marks:
        mark.record(stream)
        if mark is not marks[-1]:
            graph.launch(stream)
    stream.synchronize()
    times = [b.time_since(a) for a, b in pairwise(marks)]
    return max(1000 * float(median(times)) / repeats, 1e-3)
