"""Ctrl-C at random moments: what was being done is done or not done, and goes on."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.base.config import cache_dir
from graphc.training import Checkpoints
from tools.soak.nets import BATCH, CLASSES, FEATURES, batch, digest, loss_fn, trainer, trajectory
from tools.soak.vitals import check

STEPS = 300


def interrupted(seconds: float, act: Callable[[], object]) -> bool:
    """Call a function, with Ctrl-C after so many seconds; return whether that ended it."""

    def press(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGALRM, press)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            act()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
        return True
    return False


def seconds_of(act: Callable[[], object]) -> float:
    """Return how long a call takes."""
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def in_steps(amount: int, folder: Path, device: str = "cpu") -> Mapping[str, Any]:
    """Interrupt steps, `state_dict` and `load_state_dict`: the state is that after a whole step."""
    draw, program = random.Random(amount), trainer(device=device)
    steps = STEPS if device == "cpu" else 20
    first = program.state_dict()
    expected = trajectory(program, steps)
    program.load_state_dict(first)
    batches = [batch(number) for number in range(steps)]

    def step() -> None:
        for number in range(program.update.step, steps):
            program(*batches[number])

    def step_and_read() -> None:
        for number in range(program.update.step, steps):
            program(*batches[number])
            program.state_dict()

    def load() -> None:
        program.load_state_dict(first)

    whole = seconds_of(step)
    load()
    loading = seconds_of(load)
    counts = {"steps": 0, "loads": 0}
    while sum(counts.values()) < amount:
        if program.update.step > 0.8 * steps or draw.random() < 0.3:
            counts["loads"] += interrupted(draw.uniform(0, 1.2 * loading), load)
        else:
            act = step if draw.random() < 0.5 else step_and_read
            counts["steps"] += interrupted(draw.uniform(0, 0.2 * whole), act)
        now = digest(program.state_dict())
        check(now == expected[program.update.step], f"the state after an interrupt, {counts}")
    load()
    step()
    check(digest(program.state_dict()) == expected[steps], "the state at the end")
    return {"interrupts": amount, **counts}


def in_steps_on_other_devices(amount: int, folder: Path) -> Mapping[str, Any]:
    """The same on the reference and on the simulated GPU."""
    for device in ("reference", "sim"):
        in_steps(amount // 2, folder, device)
    return {"interrupts": amount // 2 * 2}


def in_compile(amount: int, folder: Path) -> Mapping[str, Any]:
    """Interrupt `compile`: compiling the same model with the same rule again gives the same."""
    os.environ["GRAPHC_PLAN_CACHE"] = "0"
    draw, hits = random.Random(amount), 0
    expected = trajectory(trainer(), 3)

    def again() -> Any:
        return trainer()

    whole = seconds_of(again)
    while hits < amount:
        graphc.seed(0)
        model = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES))
        rule = optim.Adam(lr=0.01)
        specs = graphc.spec((BATCH, FEATURES)), graphc.spec((BATCH,), "int32")

        def make(
            model: nn.Module = model, rule: optim.Adam = rule, specs: tuple[Any, ...] = specs
        ) -> Any:
            return graphc.compile(loss_fn, model, *specs, update=rule)

        hits += interrupted(draw.uniform(0, 1.1 * whole), make)
        check(trajectory(make(), 3) == expected, f"training after interrupt {hits} of compile")
    return {"interrupts": amount}


def in_checkpoints(amount: int, folder: Path) -> Mapping[str, Any]:
    """Interrupt `save_checkpoint` and `load_checkpoint`: files are whole, and so is the state."""
    draw, program = random.Random(amount), trainer(width=256)
    first = program.state_dict()
    expected = trajectory(program, STEPS)
    program.load_state_dict(first)
    numbers = itertools.count()

    def save() -> None:
        graphc.save_checkpoint(folder, program.update.step, program, keep=2)

    def load() -> None:
        graphc.load_checkpoint(folder, program)

    save()
    writing, reading = seconds_of(save), seconds_of(load)
    hits = {"writes": 0, "reads": 0}
    while sum(hits.values()) < amount:
        if program.update.step == STEPS:
            program.load_state_dict(first)
            for path in folder.iterdir():
                path.unlink()
        program(*batch(program.update.step))
        if next(numbers) % 2:
            hits["writes"] += interrupted(draw.uniform(0, 1.2 * writing), save)
        else:
            save()
            before = program.update.step
            hits["reads"] += interrupted(draw.uniform(0, 1.2 * reading), load)
            check(program.update.step == before, "the newest checkpoint is another")
        found = graphc.load_checkpoint(folder, program)
        check(found is not None and not found.skipped, "a checkpoint is damaged")
        now = digest(program.state_dict())
        check(now == expected[program.update.step], f"the state after {hits}")
    save()
    left = sorted(path.name for path in folder.iterdir())
    check(all(name.endswith(".safetensors") for name in left), f"files that are left: {left}")
    return {"interrupts": amount, **hits}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within the block nothing is shown on standard error."""
    with open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing):
        yield


def in_fit(amount: int, folder: Path) -> Mapping[str, Any]:
    """Interrupt `fit`, which goes on from its checkpoints with the bits of an undisturbed run."""
    draw = random.Random(amount)
    rows = 8 * BATCH
    x = draw_rows(rows)
    y = (np.arange(rows) % CLASSES).astype(np.int32)
    # Each run is interrupted at least every other time within some 40 steps.
    epochs, hits = 3 * amount, 0

    def run(checkpoints: list[Any], history: Any = None) -> Any:
        batches = graphc.data.Batches((x, y), BATCH, shuffle=0, prefetch=2)
        return graphc.fit(program, batches, epochs, progress=False, callbacks=checkpoints)

    program = trainer()
    expected = run([])["loss"], digest(program.state_dict())
    program = trainer()
    saved = Checkpoints(folder, every=5, keep=2)
    with quiet():
        while hits < amount and program.update.step < epochs * 8:
            hits += interrupted(draw.uniform(0, 0.012), lambda: run([saved]))
    history = run([saved])
    found = history["loss"], digest(program.state_dict())
    check(found == expected, f"the end of a run with {hits} interrupts")
    check(hits >= amount // 2, f"only {hits} interrupts")
    return {"interrupts": hits, "steps": program.update.step}


def draw_rows(rows: int) -> Any:
    """Return samples f32 [rows, FEATURES]."""
    return np.random.default_rng(1).standard_normal((rows, FEATURES)).astype(np.float32)


def in_builds(amount: int, folder: Path) -> Mapping[str, Any]:
    """Interrupt steps and waiting while kernels are compiled into a cache without kernels."""
    begin_cache(folder)
    draw, hits, programs = random.Random(amount), 0, 0
    while hits < amount and programs < amount:
        program = trainer(width=17 + programs)
        programs += 1
        first = program.state_dict()

        def step(program: Any = program) -> None:
            for number in range(program.update.step, 50):
                program(*batch(number))

        def wait(program: Any = program) -> None:
            program.wait()

        while not program.ready and hits < amount:
            act = step if draw.random() < 0.7 and program.update.step < 50 else wait
            hits += interrupted(draw.uniform(0, 0.05), act)
        step()
        disturbed = digest(program.state_dict())
        program.wait()
        program.load_state_dict(first)
        check(disturbed == trajectory(program, 50)[-1], f"program {programs}, interrupt {hits}")
    return {"interrupts": hits, "programs": programs}


def begin_cache(folder: Path) -> None:
    """Let this process use a cache that has the player and the prebuilt kernels alone."""
    built = folder / "cpu"
    built.mkdir(mode=0o700)
    for kind in ("player-*", "prebuilt-*"):
        for path in (cache_dir() / "cpu").glob(kind):
            shutil.copy2(path, built)
    os.environ["GRAPHC_CACHE_DIR"] = str(folder)
