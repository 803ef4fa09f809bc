"""Train in Python, export, and go on training in C: the same bits, without Python.

export_main.c beside this file calls the exported functions. It needs g++ and gcc, or other
compilers by CXX and CC. `graphc.export` writes for other machines too: see docs/export.md.
"""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import graphc
from graphc import nn, optim

BATCH, STEPS = 64, 200


class Network(nn.Module):
    def __init__(self):
        self.hidden, self.out = nn.Linear(2, 32), nn.Linear(32, 1)

    def forward(self, x):
        return self.out(graphc.tanh(self.hidden(x)))


def loss_fn(model, x, y):
    return graphc.mse_loss(model(x), y)


def points(first: int) -> np.ndarray:
    """The points of one step; export_main.c has the same function."""
    numbers = np.arange(first, first + 2 * BATCH, dtype=np.uint32) * np.uint32(2654435761)
    numbers = (numbers ^ numbers >> 15) * np.uint32(2246822519)
    return ((numbers >> 8).astype(np.float32) * np.float32(2**-23) - 1).reshape(BATCH, 2)


def main() -> list[float]:
    """The losses of all steps, half of which are made in C."""
    graphc.seed(0)
    model, x, y = Network(), graphc.spec((BATCH, 2)), graphc.spec((BATCH, 1))
    train = graphc.compile(loss_fn, model, x, y, update=optim.Adam(lr=0.01), device="cpu")
    predict = graphc.compile(model, graphc.spec((1, 2)), device="cpu")

    def learn(steps: range) -> list[float]:
        made = map(points, (2 * BATCH * step for step in steps))
        return [float(train(x, x[:, :1] * x[:, 1:])) for x in made]

    losses = learn(range(STEPS // 2))
    with tempfile.TemporaryDirectory() as folder:
        graphc.export({"train": train, "predict": predict}, folder, "x86-64", name="product")
        found = run_in_c(Path(folder))
    losses += found[:-1]
    same = losses[STEPS // 2 :] == learn(range(STEPS // 2, STEPS))
    at_half = float(predict(np.full((1, 2), 0.5, np.float32))[0, 0])
    print(f"loss {losses[0]:.4f}, in C {found[0]:.4f} to {found[-2]:.4f}, as in Python: {same}")
    print(f"0.5 * 0.5 = {found[-1]:.3f}, as in Python: {found[-1] == at_half}")
    assert same and found[-1] == at_half
    return losses


def run_in_c(folder: Path) -> list[float]:
    """What export_main.c prints: the loss of each step, then a prediction."""
    source = Path(__file__).with_name("export_main.c")
    subprocess.run(["sh", "build.sh"], cwd=folder, check=True)
    compiler = shlex.split(os.environ.get("CC") or "gcc")
    command = [*compiler, "-O2", "-I.", str(source), "build/libproduct.a", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    counts = [str(STEPS // 2), str(STEPS)]
    done = subprocess.run(["./main", *counts], cwd=folder, check=True, stdout=subprocess.PIPE)
    return [float.fromhex(line) for line in done.stdout.decode().split()]


if __name__ == "__main__":
    main()
