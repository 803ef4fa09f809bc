"""Train a small transformer on this text, its layers spread over several processes.

    mpiexec -n 2 python examples/pipeline_parallel.py

needs `pip install 'graphc[mpi]'`. Each process has the parameters of its own stage alone. The
losses are those of one process to the bit, which `python examples/pipeline_parallel.py` is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import graphc
from graphc import nn, optim

LENGTH, WIDTH, LAYERS, BATCH = 32, 64, 4, 32


class Block(nn.Module):
    """Attention and two layers, each beside a shortcut."""

    def __init__(self) -> None:
        self.norms = [nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)]
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, attn_mask=mask)[0]
        return x + self.narrow(graphc.gelu(self.wide(self.norms[1](x))))


class Model(nn.Module):
    """Predicts the next character. The embedding of characters is also the last layer."""

    def __init__(self, characters: int) -> None:
        self.characters = nn.Embedding(characters, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids):
        x = self.characters(ids) + self.places(np.arange(LENGTH, dtype=np.int32))
        mask = np.triu(np.ones((LENGTH, LENGTH), bool), 1)
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x) @ self.characters.weight.mT


def loss_fn(model, ids, following):
    logits = model(ids)
    return graphc.cross_entropy(logits.reshape(-1, logits.shape[-1]), following.reshape(-1))


def train(parallel: graphc.PipelineParallel, steps: int) -> float:
    """The loss of the last step."""
    text = Path(__file__).read_text(encoding="utf-8")
    characters = sorted(set(text))
    ids = np.array([characters.index(c) for c in text], np.int32)
    graphc.seed(0)
    model = Model(len(characters))
    spec = graphc.spec((BATCH, LENGTH), "int32")
    step = graphc.compile(
        loss_fn, model, spec, spec, update=optim.AdamW(lr=0.003), parallel=parallel
    )
    for note in step.plan.notes:
        if parallel.rank == 0 and note.startswith("pipeline"):
            print(note, flush=True)
    loss = 0.0
    for n in range(steps):
        starts = np.random.default_rng(n).integers(0, len(ids) - LENGTH, BATCH)
        rows = ids[starts[:, None] + np.arange(LENGTH + 1)]  # the same on all ranks
        loss = float(step(rows[:, :-1].copy(), rows[:, 1:].copy()))
        if parallel.rank == 0 and (n + 1) % 20 == 0:
            print(f"step {n + 1:3d}/{steps}  loss {loss:.8f}", flush=True)
    return loss


def main(arguments: list[str] | None = None) -> float:
    """The loss of the last step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--micro-batches", type=int, default=4)
    options = parser.parse_args(arguments)
    return train(graphc.PipelineParallel(options.micro_batches), options.steps)


if __name__ == "__main__":
    main()
