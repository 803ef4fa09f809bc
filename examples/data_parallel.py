"""Train on handwritten digits with several processes, each with its part of every batch.

    mpiexec -n 2 python examples/data_parallel.py

needs `pip install 'graphc[mpi,demo]'`. Any number of processes that divides 24 gives the same bits,
and so does one process by itself. A run that was interrupted goes on from its last checkpoint,
also with another number of processes, where `--folder` names where these are.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import graphc
from graphc import nn, optim

BATCH, SHARDS = 120, 24


def loss_fn(model, x, y):
    return graphc.cross_entropy(model(x), y)


def train(parallel: graphc.DataParallel, epochs: int, folder: Path | None = None) -> float:
    """The accuracy on the test digits, in per cent."""
    images, labels, test_images, test_labels = load_digits()
    model = nn.Sequential(
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    part = parallel.part(BATCH)  # of every batch, the samples of this process
    size = part.stop - part.start
    step = graphc.compile(
        loss_fn,
        model,
        graphc.spec((size, 64)),
        graphc.spec((size,), "int32"),
        update=optim.Adam(lr=0.003),
        parallel=parallel,
        seed=1,
    )
    found = graphc.load_checkpoint(folder, step) if folder else None
    for epoch in range(found.step if found else 0, epochs):
        order = np.random.default_rng(epoch).permutation(len(images))  # the same on all ranks
        losses = []
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH][part]
            losses.append(float(step(images[chosen], labels[chosen])))
        if folder:
            graphc.save_checkpoint(folder, epoch + 1, step)
        if parallel.rank == 0:
            print(f"epoch {epoch + 1:2d}/{epochs}  loss {np.mean(losses):.8f}", flush=True)
    classify = graphc.compile(model, graphc.spec(test_images.shape))
    return 100 * float(np.mean(classify(test_images).argmax(1) == test_labels))


def load_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """scikit-learn's digits f32 [n, 64]: 1,500 to learn from, 297 to test with."""
    from sklearn.datasets import load_digits as load

    images, labels = load(return_X_y=True)
    images, labels = images.astype(np.float32) / 16, labels.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order], labels[order]
    return images[:1500], labels[:1500], images[1500:], labels[1500:]


def main(arguments: list[str] | None = None) -> float:
    """The accuracy on the test digits, in per cent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where checkpoints are")
    options = parser.parse_args(arguments)
    return run(options.epochs, options.folder)


def run(epochs: int, folder: Path | None = None) -> float:
    """Train as one of the ranks; the accuracy on the test digits, in per cent."""
    graphc.seed(0)
    parallel = graphc.DataParallel(shards=SHARDS)
    accuracy = train(parallel, epochs, folder)
    if parallel.rank == 0:
        print(f"{parallel.ranks} processes, test accuracy {accuracy:.1f} %", flush=True)
    return accuracy


if __name__ == "__main__":
    main()
