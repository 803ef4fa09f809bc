"""A small GPT that learns to write Python from the standard library's own source.

    python examples/gpt_text.py --steps 300

It trains on windows of the modules of the running Python, and then goes on with several prompts of
unequal lengths at once, one character of each at a time. Keys and values of all characters so far
are state of the program (`nn.KVCache`), as are the last characters and their positions: a step
takes no input, and reads and writes nothing but its own rows of the caches.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
from char_lstm import SYMBOLS, read_library

import graphc
from graphc import nn, optim

PROMPTS = "def ", "import ", "class Parser(object):\n", "    return "
WINDOW, BATCH = 96, 24


class Block(nn.Module):
    """A pre-norm block of attention and two dense layers, on f32[n, t, features]."""

    def __init__(self, features: int, heads: int) -> None:
        self.heads = heads
        self.norms = [nn.LayerNorm(features), nn.LayerNorm(features)]
        self.qkv = nn.Linear(features, 3 * features)
        self.projection = nn.Linear(features, features)
        self.up = nn.Linear(features, 4 * features)
        self.down = nn.Linear(4 * features, features)

    def forward(self, x, cache, positions):
        n, t, features = x.shape
        parts = self.qkv(self.norms[0](x)).reshape(n, t, 3, self.heads, features // self.heads)
        q, k, v = (graphc.swapaxes(parts[:, :, i], 1, 2) for i in range(3))
        if cache is None:
            y = graphc.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = cache(q, k, v, positions)
        x = x + self.projection(graphc.swapaxes(y, 1, 2).reshape(n, t, features))
        return x + self.down(graphc.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class GPT(nn.Module):
    """Scores of the next character, f32[n, t, symbols], from characters i32[n, t]."""

    def __init__(self, features: int, heads: int, layers: int, limit: int) -> None:
        self.features, self.heads, self.limit = features, heads, limit
        self.symbols = nn.Embedding(len(SYMBOLS), features)
        self.places = nn.Embedding(limit, features)
        self.blocks = [Block(features, heads) for _ in range(layers)]
        self.norm = nn.LayerNorm(features)
        self.head = nn.Linear(features, len(SYMBOLS), bias=False)

    def forward(self, x, positions=None, caches=None):
        """With caches, x are the characters at `positions` i32[n, t] alone."""
        if positions is None:
            positions = graphc.arange(x.shape[1])
        y = self.symbols(x) + self.places(positions)
        for i, block in enumerate(self.blocks):
            y = block(y, None if caches is None else caches[i], positions)
        return self.head(self.norm(y))


class Writer(nn.Module):
    """Goes on with n prompts: `read` takes them in, each call gives the next character of each."""

    def __init__(self, model: GPT, n: int, temperature: float) -> None:
        self.model, self.temperature = model, temperature
        width = model.features // model.heads
        self.caches = [nn.KVCache(n, model.heads, model.limit, width) for _ in model.blocks]
        self.symbols = nn.Buffer(np.zeros(n, np.int32), persistent=False)
        self.positions = nn.Buffer(np.zeros(n, np.int32), persistent=False)

    def read(self, prompts, lengths):
        """Draw the characters behind prompts i32[n, t] that are padded to t."""
        n, t = prompts.shape
        everywhere = graphc.broadcast_to(graphc.arange(t, dtype="int32"), (n, t))
        scores = self.model(prompts, everywhere, self.caches)
        last = graphc.take_along_axis(scores, (lengths - 1).reshape(n, 1, 1), 1)
        self.positions = lengths
        return self._draw(last[:, 0])

    def forward(self):
        x, at = self.symbols.reshape(-1, 1), self.positions.reshape(-1, 1)
        scores = self.model(x, at, self.caches)
        self.positions = self.positions + 1
        return self._draw(scores[:, 0])

    def _draw(self, scores):
        """Symbols i32[n] drawn from the softmax of scores f32[n, symbols], by Gumbel's maximum."""
        if self.temperature:
            noise = -graphc.log(-graphc.log(graphc.rand_like(scores) + 1e-9) + 1e-9)
            scores = scores / self.temperature + noise
        self.symbols = graphc.astype(graphc.argmax(scores, axis=-1), "int32")
        return self.symbols


def loss_fn(model, x, y):
    scores = model(x)
    return graphc.cross_entropy(scores.reshape(-1, len(SYMBOLS)), y.reshape(-1))


def write(model: GPT, prompts: Sequence[str], count: int, temperature: float = 0.7) -> list[str]:
    """Each prompt with `count` characters more, and the rate on standard output."""
    n, longest = len(prompts), max(map(len, prompts))
    if longest + count > model.limit:
        raise ValueError(f"the model has {model.limit} positions, got {longest} + {count}")
    padded = np.array([[SYMBOLS.index(c) for c in p.ljust(longest)] for p in prompts], np.int32)
    writer = Writer(model, n, temperature)
    specs = graphc.spec((n, longest), "int32"), graphc.spec((n,), "int32")
    read = graphc.compile(writer.read, *specs)
    step = graphc.compile(writer)
    symbols = [read(padded, np.array([len(p) for p in prompts], np.int32))]
    step.wait()
    begin = time.perf_counter()
    symbols += [step() for _ in range(count - 1)]
    seconds = time.perf_counter() - begin
    print(f"{n * (count - 1) / seconds:,.0f} characters per second, {n} at a time")
    written = np.array(symbols).T
    return [p + "".join(SYMBOLS[i] for i in row) for p, row in zip(prompts, written, strict=True)]


def main(arguments: Sequence[str] | None = None) -> float:
    """Train and write; the loss of the last step in bits per character."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--sample", type=int, default=160)
    options = parser.parse_args(arguments)

    graphc.seed(0)
    text, draws = read_library(1_000_000), np.random.default_rng(0)
    model = GPT(options.features, options.heads, options.layers, max(2 * WINDOW, 256))
    window = graphc.spec((BATCH, WINDOW), "int32")
    step = graphc.compile(loss_fn, model, window, window, update=optim.AdamW(2e-3))
    bits, begin = 0.0, time.perf_counter()
    for number in range(1, options.steps + 1):
        starts = draws.integers(0, len(text) - WINDOW - 1, BATCH)
        chosen = text[starts[:, None] + np.arange(WINDOW + 1)]
        bits = float(step(chosen[:, :-1], chosen[:, 1:])) / np.log(2)
        if number % max(options.steps // 10, 1) == 0:
            spent = (time.perf_counter() - begin) / number * 1e3
            print(f"step {number:5}: {bits:.2f} bits per character, {spent:.1f} ms per step")
    for written in write(model, PROMPTS, options.sample):
        print(f"---\n{written}")
    return bits


if __name__ == "__main__":
    main()
