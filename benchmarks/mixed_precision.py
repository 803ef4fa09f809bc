"""Mixed precision beside float32: `python -m benchmarks.mixed_precision lenet --seeds 3`.

Trains a LeNet or a small ResNet-18 on scikit-learn's digits, for each precision with the same
seeds: initial values, order of batches, schedule. A line of a table for each: the test accuracies
and their mean, the work memory of the plan on one stream, the least processor time of a step, and
the steps that were skipped. --accumulate cuts batches into micro-batches.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc
from examples.digits import BATCH, LeNet, enlarge, load_digits, predict
from graphc import nn, optim
from tests.models.images import resnet

HEADER = (
    "| model | precision | test accuracy % | mean | work MB | ms of a step | skipped |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)
MODELS: dict[str, Callable[[], Any]] = {
    "lenet": LeNet,
    "resnet18": lambda: resnet(nn, graphc, 18, 16),
}
PRECISIONS = {"float32": None, "bfloat16": "bfloat16", "float16": "float16"}


def loss_fn(model: Any, x: Any, y: Any) -> Any:
    """The mean cross-entropy of a batch."""
    return graphc.cross_entropy(model(x), y)


def images_for(model: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and labels to learn from and to test with; 32 x 32 in 3 channels for a ResNet."""
    images, labels, test_images, test_labels = load_digits()
    if model == "resnet18":
        images, test_images = (
            np.repeat(enlarge(part[:, 0], 32)[:, None], 3, axis=1) for part in (images, test_images)
        )
    return images, labels, test_images, test_labels


def trained(name: str, mixed: str | None, seed: int, epochs: int, accumulate: int) -> list[float]:
    """Accuracy in per cent, bytes of work memory, seconds of a step, skipped steps."""
    images, labels, test_images, test_labels = images_for(name)
    graphc.seed(seed)
    model = MODELS[name]()
    steps = len(images) // BATCH
    rate = optim.schedules.OneCycle(0.02, epochs * steps)
    batch = graphc.spec((BATCH, *images.shape[1:]))
    train = graphc.compile(
        loss_fn,
        model,
        batch,
        graphc.spec((BATCH,), "int32"),
        update=optim.SGD(lr=rate, momentum=0.9, weight_decay=5e-4),
        mixed=mixed,
        accumulate=accumulate,
        streams=1,
        threads=1,
        device="cpu",
        wait=True,
    )
    classify = graphc.compile(model, batch, mixed=mixed, threads=1, device="cpu", wait=True)
    generator = np.random.default_rng(seed)
    least = float("inf")
    for _ in range(epochs):
        for chosen in generator.permutation(len(images))[: steps * BATCH].reshape(steps, BATCH):
            x, y = images[chosen], labels[chosen]
            begin = time.process_time()
            train(x, y)
            least = min(least, time.process_time() - begin)
    accuracy = 100 * float(np.mean(predict(classify, test_images) == test_labels))
    assert train.plan is not None
    return [accuracy, train.plan.peak_bytes, least, train.skipped_steps]


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", choices=MODELS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--accumulate", type=int, default=1)
    options = parser.parse_args(arguments)
    print("\n".join(HEADER))
    for model in options.models:
        for precision, mixed in PRECISIONS.items():
            runs = [
                trained(model, mixed, seed, options.epochs, options.accumulate)
                for seed in range(options.seeds)
            ]
            accuracies = [run[0] for run in runs]
            shown = ", ".join(f"{a:.1f}" for a in accuracies)
            print(
                f"| {model} | {precision} | {shown} | {np.mean(accuracies):.2f} "
                f"| {runs[0][1] / 1e6:.2f} | {1e3 * min(run[2] for run in runs):.1f} "
                f"| {sum(run[3] for run in runs):.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
