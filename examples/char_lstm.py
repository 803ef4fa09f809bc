"""A character LSTM that learns to write Python from the standard library's own source.

    python examples/char_lstm.py --steps 600

It reads the modules of the running Python, trains on windows of 64 characters whose state is
carried from window to window, and then writes by itself, one character at a time.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import time
from pathlib import Path

import numpy as np

import graphc
from graphc import nn, optim

SYMBOLS = "\n" + "".join(map(chr, range(32, 127)))
"""The characters that there are; others are left out of the text."""
LAYERS, STEPS, BATCH = 2, 64, 32


class Writer(nn.Module):
    """Scores of the next character, [t, n, symbols], from characters i32[t, n] and a state."""

    def __init__(self, hidden: int) -> None:
        self.embed = nn.Embedding(len(SYMBOLS), 32)
        self.lstm = nn.LSTM(32, hidden, num_layers=LAYERS)
        self.head = nn.Linear(hidden, len(SYMBOLS))

    def forward(self, x, state):
        y, state = self.lstm(self.embed(x), state)
        return self.head(y), state


def loss_fn(model, x, y, state):
    scores, state = model(x, state)
    loss = graphc.cross_entropy(graphc.reshape(scores, (-1, len(SYMBOLS))), graphc.flatten(y, 0))
    return loss, state


def read_library(characters: int) -> np.ndarray:
    """The first `characters` of the standard library's top modules, as indices of SYMBOLS."""
    folder = Path(sysconfig.get_path("stdlib"))
    text = ""
    for path in sorted(folder.glob("*.py")):
        text += path.read_text(encoding="utf-8", errors="ignore").replace("    ", " ")
        if len(text) > characters:
            break
    number = {symbol: i for i, symbol in enumerate(SYMBOLS)}
    return np.array([number[c] for c in text[:characters] if c in number], np.int32)


def windows(text: np.ndarray):
    """Endless (x, y), i32[t, n] each: the batch's columns read on where they stopped."""
    length = len(text) // BATCH
    columns = text[: length * BATCH].reshape(BATCH, length).T
    while True:
        for start in range(0, length - STEPS - 1, STEPS):
            x, y = columns[start : start + STEPS], columns[start + 1 : start + STEPS + 1]
            yield np.ascontiguousarray(x), np.ascontiguousarray(y)


def write(model: Writer, hidden: int, count: int, seed: int = 0) -> str:
    """`count` characters, each drawn from the scores behind the one before."""
    specs = graphc.spec((1, 1), "int32"), (graphc.spec((LAYERS, 1, hidden)),) * 2
    read = graphc.compile(model, *specs)
    state = (np.zeros((LAYERS, 1, hidden), np.float32),) * 2
    generator, symbol, text = np.random.default_rng(seed), 0, []
    for _ in range(count):
        scores, state = read(np.array([[symbol]], np.int32), state)
        weights = np.exp((scores[0, 0] - scores.max()) / 0.7)
        symbol = int(generator.choice(len(SYMBOLS), p=weights / weights.sum()))
        text.append(SYMBOLS[symbol])
    return "".join(text)


def main(arguments: list[str]) -> float:
    """Train and write; the mean loss of the last steps in bits per character."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--sample", type=int, default=400, help="characters to write at the end")
    options = parser.parse_args(arguments)
    text = read_library(2_000_000)
    print(f"{len(text)} characters of {len(SYMBOLS)} kinds")
    model = Writer(options.hidden)
    state = (np.zeros((LAYERS, BATCH, options.hidden), np.float32),) * 2
    ids, states = graphc.spec((STEPS, BATCH), "int32"), graphc.spec(state[0].shape)
    train = graphc.compile(
        loss_fn, model, ids, ids, (states, states), update=optim.Adam(0.004, clip_grad_norm=1.0)
    )
    losses, begin = [], time.perf_counter()
    for step, (x, y) in zip(range(1, options.steps + 1), windows(text), strict=False):
        loss, state = train(x, y, state)
        losses.append(float(loss) / np.log(2))
        if step % max(1, options.steps // 10) == 0:
            spent = 1000 * (time.perf_counter() - begin) / step
            recent = np.mean(losses[-50:])
            print(f"step {step:5}: {recent:.2f} bits per character, {spent:.1f} ms per step")
    print(write(model, options.hidden, options.sample))
    return float(np.mean(losses[-50:]))


if __name__ == "__main__":
    main(sys.argv[1:])
