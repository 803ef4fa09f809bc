"""A training run that can be stopped at any moment: run it again, and it goes on exactly.

python examples/resume.py --folder run --steps 2000    # stop it by Ctrl-C or kill -9
python examples/resume.py --folder run --steps 2000    # goes on from the last checkpoint

The last line is the same however often the run was stopped. `run/step.audit` has a digest of all
state for each step; steps that are repeated are compared with it. The trained program is saved as
`run/model.graphc`, which `graphc.load` reads without this script.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import graphc
from graphc import nn, optim

BATCH, POINTS, EVERY = 64, 1024, 50


class Net(nn.Module):
    def __init__(self):
        self.layers = nn.Sequential(
            nn.Linear(2, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1)
        )

    def forward(self, x):
        return self.layers(x)


def loss_fn(model, x, y):
    return graphc.mse_loss(model(x), y)


def cosine(step: int) -> float:
    """The learning rate after so many finished steps."""
    return 0.005 * (1 + math.cos(math.pi * min(step / 2000, 1)))


def main(arguments: Sequence[str] | None = None) -> float:
    """Train up to a number of steps, from the last checkpoint if there is one; the last loss."""
    parser = argparse.ArgumentParser(description="Train, and go on after a stop.")
    parser.add_argument("--folder", type=Path, default=Path("run"))
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args(arguments)
    graphc.seed(0)
    model, x, y = Net(), graphc.spec((BATCH, 2)), graphc.spec((BATCH, 1))
    step = graphc.compile(loss_fn, model, x, y, update=optim.Adam(lr=cosine, ema=0.99))
    infer = graphc.compile(model, x, training=False)

    generator = np.random.default_rng(0)
    points = generator.uniform(-1, 1, (POINTS, 2)).astype(np.float32)
    values = np.sin(3 * points[:, :1]) * np.cos(2 * points[:, 1:])

    first, loss = 0, math.nan
    found = graphc.load_checkpoint(options.folder, step)
    if found is not None:
        first, loss = found.step, found.data["loss"]
        generator.bit_generator.state = found.data["generator"]
        print(f"goes on from step {first}")
    options.folder.mkdir(parents=True, exist_ok=True)
    audit = graphc.Audit(options.folder / "step.audit")
    for number in range(first + 1, options.steps + 1):
        chosen = generator.integers(0, POINTS, BATCH)
        loss = float(step(points[chosen], values[chosen]))
        audit(number, step)
        if number % EVERY == 0 or number == options.steps:
            position = {"loss": loss, "generator": generator.bit_generator.state}
            graphc.save_checkpoint(options.folder, number, step, data=position)
    infer.save(options.folder / "model.graphc")
    print(f"step {options.steps}: loss {loss!r}")
    return loss


if __name__ == "__main__":
    main()
