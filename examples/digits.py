"""Train a LeNet on handwritten digits, and say what the compiled program is.

    python examples/digits.py                 1,797 digits that come with scikit-learn
    python examples/digits.py --data FOLDER   MNIST's four files, plain or .gz

One training step (forward, backward, SGD with momentum) is one program; evaluation is a second one
that shares the parameters.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import graphc
from graphc import nn, optim
from graphc.runtime.plan.plan import Launch

BATCH = 100


class LeNet(nn.Module):
    def __init__(self):
        self.conv1 = nn.Conv2d(1, 20, kernel_size=5)
        self.conv2 = nn.Conv2d(20, 50, kernel_size=5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x):
        x = graphc.max_pool2d(graphc.relu(self.conv1(x)), 2)
        x = graphc.max_pool2d(graphc.relu(self.conv2(x)), 2)
        return self.fc2(graphc.relu(self.fc1(graphc.flatten(x))))


def loss_fn(model, x, y):
    logits = model(x)
    return graphc.cross_entropy(logits, y), logits


def main(arguments: list[str] | None = None) -> float:
    """The test accuracy in per cent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of MNIST's idx files")
    parser.add_argument("--epochs", type=int, help="passes over the training images")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--device", help="cpu or reference")
    parser.add_argument("--streams", help="1 to 8 or auto")
    options = parser.parse_args(arguments)
    images, labels, test_images, test_labels = (
        load_mnist(options.data) if options.data else load_digits()
    )
    epochs = options.epochs or (3 if options.data else 20)
    print(f"{len(images)} images to learn from, {len(test_images)} to test with")

    model = LeNet()
    batch = graphc.spec((BATCH, 1, 28, 28))
    begin = time.perf_counter()
    train = graphc.compile(
        loss_fn,
        model,
        batch,
        graphc.spec((BATCH,), "int32"),
        update=optim.SGD(lr=options.lr, momentum=0.9),
        device=options.device,
        streams=options.streams,
    )
    classify = graphc.compile(model, batch, device=options.device)
    print(f"compiled in {time.perf_counter() - begin:.1f} s")

    begin = time.perf_counter()
    step = fit(train, images, labels, epochs)
    print(f"trained in {time.perf_counter() - begin:.1f} s, {1000 * step:.2f} ms per step")
    print(describe(train))
    accuracy = 100 * float(np.mean(predict(classify, test_images) == test_labels))
    print(f"test accuracy: {accuracy:.1f} %")
    return accuracy


def fit(train: graphc.Program, images: np.ndarray, labels: np.ndarray, epochs: int) -> float:
    """Train for some epochs of whole batches; the median seconds of a step."""
    generator = np.random.default_rng(0)
    steps = len(images) // BATCH
    times = []
    for epoch in range(epochs):
        if epoch == epochs * 3 // 4:
            train.lr /= 5  # smaller steps at the end; nothing is compiled again
        losses, correct = [], []
        order = generator.permutation(len(images))[: steps * BATCH]
        for i, chosen in enumerate(order.reshape(steps, BATCH)):
            x, y = images[chosen], labels[chosen]
            begin = time.perf_counter()
            loss, logits = train(x, y)
            times.append(time.perf_counter() - begin)
            losses.append(float(loss))
            correct.append(np.mean(logits.argmax(1) == y))
            show_progress(epoch, epochs, i + 1, steps, losses, correct, times[-1])
    return statistics.median(times)


def show_progress(
    epoch: int, epochs: int, done: int, steps: int, losses: list, correct: list, seconds: float
) -> None:
    """Redraw one line on a terminal; elsewhere print one line per epoch."""
    bar = "#" * round(24 * done / steps)
    line = (
        f"epoch {epoch + 1:2d}/{epochs} [{bar:24}] {done}/{steps}  loss {np.mean(losses):.4f}"
        f"  accuracy {100 * np.mean(correct):5.1f} %  {1000 * seconds:6.2f} ms"
    )
    if sys.stdout.isatty():
        print(f"\r{line}", end="\n" if done == steps else "", flush=True)
    elif done == steps:
        print(line)


def predict(classify: graphc.Program, images: np.ndarray) -> np.ndarray:
    """The most likely digit of each image. The last batch is padded with zeros."""
    padded = np.zeros((-len(images) % BATCH, *images.shape[1:]), np.float32)
    batches = np.concatenate([images, padded]).reshape(-1, BATCH, *images.shape[1:])
    return np.concatenate([classify(batch).argmax(1) for batch in batches])[: len(images)]


def describe(program: graphc.Program) -> str:
    """Kernels before and after fusion, streams, and memory beside what it must be at least."""
    before = sum(
        node.op.name not in ("constant", "reshape") for node in program.stages["clean"].nodes
    )
    plan = program.plan
    if plan is None:
        return f"{before} operations, played one by one in NumPy"
    launches = sum(isinstance(step, Launch) for step in plan.steps)
    return (
        f"{before} operations became {launches} kernel launches on {plan.streams} stream(s)\n"
        f"work memory: peak {plan.peak_bytes / 1e6:.3f} MB, "
        f"lower bound {plan.lower_bound_bytes / 1e6:.3f} MB"
    )


def load_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """scikit-learn's digits at 28 x 28: 1,500 to learn from, 297 to test with."""
    from sklearn.datasets import load_digits as load

    images, labels = load(return_X_y=True)
    images = enlarge(images.reshape(-1, 8, 8).astype(np.float32) / 16, 28)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order, None], labels[order].astype(np.int32)
    return images[:1500], labels[:1500], images[1500:], labels[1500:]


def enlarge(images: np.ndarray, size: int) -> np.ndarray:
    """Square images [n, h, h] to [n, size, size], bilinear, as a product with a matrix."""
    old = images.shape[1]
    places = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
    weights = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(old))).astype(np.float32)
    return np.ascontiguousarray(weights @ images @ weights.T)


def load_mnist(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """MNIST's images as f32 [n, 1, 28, 28] in 0..1 and labels, for learning and for testing."""

    def images(name: str) -> np.ndarray:
        return read_idx(folder, f"{name}-images-idx3-ubyte")[:, None].astype(np.float32) / 255

    def labels(name: str) -> np.ndarray:
        return read_idx(folder, f"{name}-labels-idx1-ubyte").astype(np.int32)

    return images("train"), labels("train"), images("t10k"), labels("t10k")


def read_idx(folder: Path, name: str) -> np.ndarray:
    """The bytes of an idx file, which begins 0, 0, 8, rank and the extents, big-endian."""
    for path, opener in ((folder / name, open), (folder / f"{name}.gz", gzip.open)):
        if path.exists():
            with opener(path, "rb") as file:
                content = file.read()
            rank = content[3]
            shape = np.frombuffer(content, ">i4", rank, offset=4)
            return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)
    raise SystemExit(f"{folder}: expected {name} or {name}.gz, found neither")


if __name__ == "__main__":
    main()
