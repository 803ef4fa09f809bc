"""Many training steps in one process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from tools.soak.nets import BATCH, CLASSES, FEATURES, batch, trainer
from tools.soak.vitals import Vitals, check, check_flat, vitals

WINDOWS = 10
"""Parts of a run after each of which the process is looked at."""


def train(kind: str, steps: int, device: str = "cpu") -> Mapping[str, Any]:
    """Call a training program; what the process holds must stay as it is after the first tenth."""
    program = trainer(kind, device)
    program.wait()
    batches = [batch(number, kind) for number in range(16)]
    seen: list[Vitals] = []
    loss = np.float32(0)
    for window in range(WINDOWS):
        for number in range(window * steps // WINDOWS, (window + 1) * steps // WINDOWS):
            loss = program(*batches[number % 16])
        seen.append(vitals())
    finished = program.update.step
    check(finished == steps, f"{finished} steps were counted of {steps}")
    check(bool(np.isfinite(loss)), f"the loss is {loss}")
    return {"steps": steps, **check_flat(seen)}


def train_mlp(amount: int, folder: Path) -> Mapping[str, Any]:
    """Train a perceptron."""
    return train("mlp", amount)


def train_lstm(amount: int, folder: Path) -> Mapping[str, Any]:
    """Train an LSTM."""
    return train("lstm", amount)


def train_simulated(amount: int, folder: Path) -> Mapping[str, Any]:
    """Train a perceptron on the simulated GPU."""
    return train("mlp", amount, "sim")


def fit_batches(amount: int, folder: Path) -> Mapping[str, Any]:
    """Train by `graphc.fit` with shuffled batches that a thread prepares."""
    program = trainer()
    program.wait()
    draw = np.random.default_rng(0)
    rows = 125 * BATCH
    x = draw.standard_normal((rows, FEATURES)).astype(np.float32)
    y = draw.integers(0, CLASSES, rows).astype(np.int32)
    batches = graphc.data.Batches((x, y), BATCH, shuffle=0, prefetch=2)
    epochs = max(WINDOWS, amount // len(batches))
    seen: list[Vitals] = []

    def look(run: Any) -> None:
        if run.epoch % (epochs // WINDOWS) == 0:
            seen.append(vitals())

    history = graphc.fit(program, batches, epochs, progress=False, callbacks=[look])
    steps = program.update.step
    check(steps == history.steps == epochs * len(batches), f"{steps} steps of {history.steps}")
    # A history keeps the numbers of each epoch.
    return {"steps": steps, **check_flat(seen)}
