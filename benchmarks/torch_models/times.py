"""How long compiling and training steps take: eager PyTorch, inductor and graphc.

All is measured in one process. Compiling is from the first call to the end of the first training
step (forward, loss and backward): cold with empty caches, warm once more with full ones, after
Dynamo has forgotten the model. Besides the time on the clock the processor's time is kept, that of
the C++ compilers included, which depends less on what else the machine does. Steps are then timed
in turn, A B C A B C, by the processor's time alone, on one thread.
"""

from __future__ import annotations

import copy
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch._inductor import config as inductor_config

from benchmarks.limit import limited
from benchmarks.torch_models.models import Subject, build
from benchmarks.torch_models.truth import loss_of

BACKENDS = ("graphc", "inductor")
LIMIT = 240
"""Seconds on the clock that a compiler may take for a first step."""
THREADS = 1
"""Of each: steps of such small models are too short to share."""
ROUNDS, SECONDS = 9, 0.05
"""Rounds of each in turn, and how long each one's steps of a round last about."""
Step = Callable[[], None]


def times(name: str, backends: Sequence[str] = BACKENDS, cold: bool = True) -> dict[str, Any]:
    """Seconds of compiling (`graphc_cold_s`, `graphc_cold_cpu_s`, `graphc_warm_s`, ...; none where
    it took longer than the limit) and milliseconds of a step (`eager_ms`, ...), medians of all
    rounds, with the medians of each round's ratio to eager (`graphc_ratio`, ...). If not `cold`,
    the user's caches are used, and only compiling once more is measured."""
    subject = build(name)
    inductor_config.compile_threads = 1
    torch.set_num_threads(THREADS)
    os.environ["GRAPHC_NUM_THREADS"] = str(THREADS)
    with tempfile.TemporaryDirectory() as folder:
        if cold:
            os.environ["GRAPHC_CACHE_DIR"] = f"{folder}/graphc"
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
        small = Subject(torch.nn.Linear(3, 2), (torch.randn(4, 3),))
        steps = {"eager": _step(subject, None)}
        found: dict[str, Any] = {}
        for backend in backends:
            _step(small, backend)()  # what Dynamo and the compiler set up once
            for kind in ("cold", "warm"):
                torch._dynamo.reset()
                steps[backend] = _step(subject, backend)
                spent = _first(steps[backend])
                if spent is None:
                    steps.pop(backend)
                    found["note"] = f"{backend} took longer than {LIMIT} s"
                    break
                if cold or kind == "warm":
                    found |= {f"{backend}_{kind}_s": spent[0], f"{backend}_{kind}_cpu_s": spent[1]}
        return found | _rounds(steps)


def _step(subject: Subject, backend: str | None) -> Step:
    module = copy.deepcopy(subject.module).train()
    call: Any = module if backend is None else torch.compile(module, backend=backend)

    def step() -> None:
        module.zero_grad(set_to_none=True)
        loss_of(call(*subject.arguments, **subject.named)).backward()

    return step


def _first(step: Step) -> tuple[float, float] | None:
    """Seconds on the clock and of the processor, that of ended processes included; None where the
    step was stopped at the limit, whatever a compiler made of that."""
    begin, before = time.perf_counter(), processor()
    try:
        with limited(LIMIT):
            step()
    except Exception:
        if time.perf_counter() - begin < LIMIT:
            raise
        return None
    return time.perf_counter() - begin, processor() - before


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
    """Of the processor, for a step, the mean of `count`."""
    begin = time.process_time()
    for _ in range(count):
        step()
    return (time.process_time() - begin) / count


def processor() -> float:
    """Seconds that the processor has worked for this process and for those that it ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
