"""How long compiling and training steps take: eager PyTorch, inductor and graphc.

All is measured in one process. Compiling is from the first call to the end of the first training
step (forward, loss and backward): cold with empty caches, warm once more with full ones, after
Dynamo has forgotten the model. Besides the time on the clock the processor's time is kept, that of
the C++ compilers included, which depends less on what else the machine does. Steps are then timed
in turn, A B C A B C.
"""

from __future__ import annotations

import copy
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from torch._inductor import config as inductor_config

from benchmarks.torch_models.models import Subject, build
from benchmarks.torch_models.truth import loss_of

BACKENDS = ("graphc", "inductor")
LIMIT = 240
"""Seconds on the clock that a compiler may take for a first step."""
ROUNDS, SECONDS = 9, 0.2
"""Rounds of each in turn, and how long each one's steps of a round last about."""
Step = Callable[[], None]


def times(name: str) -> dict[str, Any]:
    """Seconds of compiling (`graphc_cold_s`, `graphc_cold_cpu_s`, `graphc_warm_s`, ...; none where
    it took longer than the limit) and milliseconds of a step (`eager_ms`, ...), medians of all
    rounds, with the medians of each round's ratio to eager (`graphc_ratio`, ...)."""
    subject = build(name)
    inductor_config.compile_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GRAPHC_CACHE_DIR"] = f"{folder}/graphc"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
        small = Subject(torch.nn.Linear(3, 2), (torch.randn(4, 3),))
        steps = {"eager": _step(subject, None)}
        found: dict[str, Any] = {}
        for backend in BACKENDS:
            _step(small, backend)()  # what Dynamo and the compiler set up once
            try:
                for kind in ("cold", "warm"):
                    torch._dynamo.reset()
                    steps[backend] = _step(subject, backend)
                    wall, cpu = _first(steps[backend])
                    found |= {f"{backend}_{kind}_s": wall, f"{backend}_{kind}_cpu_s": cpu}
            except TimeoutError:
                steps.pop(backend)
                found["note"] = f"{backend} took longer than {LIMIT} s"
        return found | _rounds(steps)


def _step(subject: Subject, backend: str | None) -> Step:
    module = copy.deepcopy(subject.module).train()
    call: Any = module if backend is None else torch.compile(module, backend=backend)

    def step() -> None:
        module.zero_grad(set_to_none=True)
        loss_of(call(*subject.arguments, **subject.named)).backward()

    return step


def _first(step: Step) -> tuple[float, float]:
    """Seconds on the clock and of the processor, that of ended processes included."""
    begin, before = time.perf_counter(), _processor()
    with _limited(LIMIT):
        step()
    return time.perf_counter() - begin, _processor() - before


def _rounds(steps: dict[str, Step]) -> dict[str, float]:
    counts, taken = {}, {name: list[float]() for name in steps}
    for name, step in steps.items():
        step()
        counts[name] = max(1, min(200, round(SECONDS / _seconds(step, 1))))
    for _ in range(ROUNDS):
        for name, step in steps.items():
            taken[name].append(_seconds(step, counts[name]))
    found = {f"{name}_ms": 1e3 * median(seconds) for name, seconds in taken.items()}
    for name, seconds in taken.items():
        if name != "eager":
            ratios = [e / s for e, s in zip(taken["eager"], seconds, strict=True)]
            found |= {f"{name}_ratio": median(ratios), f"{name}_low": min(ratios),
                      f"{name}_high": max(ratios)}  # fmt: skip
    return found


def _seconds(step: Step, count: int) -> float:
    """The quickest of `count` steps: others may use the machine meanwhile."""
    quickest = float("inf")
    for _ in range(count):
        begin = time.perf_counter()
        step()
        quickest = min(quickest, time.perf_counter() - begin)
    return quickest


def _processor() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
