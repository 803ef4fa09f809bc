"""Threads that call programs at once: calls run one after another, with right results."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from tools.soak.nets import batch, digest, trainer, trajectory
from tools.soak.vitals import check

THREADS = 4


def at_once(acts: Iterable[Callable[[], object]]) -> None:
    """Call functions in threads of their own; raise the first exception of any."""
    problems: list[BaseException] = []

    def run(act: Callable[[], object]) -> None:
        try:
            act()
        except BaseException as problem:
            problems.append(problem)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    if problems:
        raise problems[0]


def different_programs(amount: int, folder: Path) -> Mapping[str, Any]:
    """Each thread compiles and trains a network of its own; each ends as it does alone."""
    kinds = ["mlp", "lstm"] * (THREADS // 2)
    steps = amount // THREADS
    expected = [trajectory(trainer(kind), steps, kind)[-1] for kind in kinds]
    found = [""] * THREADS

    def train(place: int) -> None:
        with making:  # the seed that weights are drawn by is the process's
            program = trainer(kinds[place])
        for number in range(steps):
            program(*batch(number, kinds[place]))
        found[place] = digest(program.state_dict())

    making = threading.Lock()
    at_once([lambda place=place: train(place) for place in range(THREADS)])  # type: ignore[misc]
    check(found == expected, "a network that was trained beside others")
    return {"steps": steps * THREADS, "threads": THREADS}


def one_program(amount: int, folder: Path) -> Mapping[str, Any]:
    """All threads call one training program, one program of any size and one inference program."""
    steps = amount // THREADS
    program = trainer()
    first = program.state_dict()
    for _ in range(steps * THREADS):
        program(*batch(0))
    expected = digest(program.state_dict())
    program.load_state_dict(first)

    def squared(x: graphc.Tensor) -> graphc.Tensor:
        return graphc.sum(x * x, 1)

    fixed = graphc.compile(squared, graphc.spec((8, 16)))
    sized = graphc.compile(squared, graphc.spec(("rows", 16)))

    def work(place: int) -> None:
        for number in range(steps):
            program(*batch(0))
            x = np.full((8, 16), place + 1, np.float32)
            rows = number % 6 + 1
            check(bool((fixed(x) == 16 * (place + 1) ** 2).all()), f"thread {place}")
            check(bool((sized(x[:rows]) == 16 * (place + 1) ** 2).all()), f"thread {place}")

    at_once([lambda place=place: work(place) for place in range(THREADS)])  # type: ignore[misc]
    check(program.update.step == steps * THREADS, f"{program.update.step} steps were counted")
    check(digest(program.state_dict()) == expected, "the state after steps of several threads")
    return {"calls": 3 * steps * THREADS, "threads": THREADS}
