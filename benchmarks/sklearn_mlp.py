"""Compare graphc's MLPClassifier with scikit-learn's: `python -m benchmarks.sklearn_mlp`.

Both fit the same data from the same weights in the same order. "digits" are scikit-learn's 1,797
images; "mnist" are 70,000 x 784 made images: ten digits' images of 28 x 28, moved and noisy. Each
has a process of its own, in turns, as threads of scikit-learn's BLAS stay busy for a while. A row
has the least wall and processor time of a process's fits, and the accuracy on samples that were
held out. With GRAPHC_TIER=1 the first fit waits for compiled kernels, which the others use.

    GRAPHC_TIER=1 python -m benchmarks.sklearn_mlp
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier as Other

from graphc.sklearn import MLPClassifier

EPOCHS = {"digits": 100, "mnist": 10}
KINDS = {"scikit-learn": Other, "graphc": MLPClassifier}


def digits() -> tuple[Any, Any]:
    """scikit-learn's digits: 1,797 x 64 in 0..1."""
    x, y = load_digits(return_X_y=True)
    return x / 16, y


def mnist() -> tuple[Any, Any]:
    """70,000 images of 28 x 28, each a digit of scikit-learn's, enlarged, moved and noisy."""
    x, y = digits()
    random = np.random.default_rng(0)
    images, labels = np.zeros((70_000, 28, 28), np.float32), np.empty(70_000, np.int64)
    for number, chosen in enumerate(random.integers(0, len(x), len(images))):
        top, left = random.integers(0, 5, 2)
        large = np.kron(x[chosen].reshape(8, 8), np.ones((3, 3)))
        images[number, top : top + 24, left : left + 24] = large
        labels[number] = y[chosen]
    images += random.normal(0, 0.25, images.shape).astype(np.float32)
    return images.reshape(len(images), -1), labels


def fits(kind: Any, name: str, dtype: str, repeats: int) -> list[tuple[float, float, float]]:
    """Wall and processor seconds of fits by several seeds, and their accuracies."""
    x, y = {"digits": digits, "mnist": mnist}[name]()
    data = train_test_split(x.astype(dtype), y, random_state=0)
    return [fitted(kind, data, EPOCHS[name], seed) for seed in range(repeats)]


def fitted(kind: Any, data: Sequence[Any], epochs: int, seed: int) -> tuple[float, float, float]:
    """Wall and processor seconds of a fit, and its accuracy."""
    x, x_test, y, y_test = data
    wall, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(action="ignore"):
        model = kind(random_state=seed, max_iter=epochs).fit(x, y)
    times = time.perf_counter() - wall, time.process_time() - processor
    return *times, model.score(x_test, y_test)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*", help="digits, mnist; by default both")
    parser.add_argument("--repeats", type=int, default=3, help="fits of a process")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each, in turns")
    parser.add_argument("--dtype", default="float64", help="of the samples")
    parser.add_argument("--only", choices=KINDS, help="the fits of one, as JSON")
    options = parser.parse_args()
    for name in options.data or EPOCHS:
        if options.only:
            print(json.dumps(fits(KINDS[options.only], name, options.dtype, options.repeats)))
            continue
        title = f"{name} {options.dtype}, {EPOCHS[name]} epochs"
        print(f"{title:30} {'wall s':>8} {'processor s':>12}  accuracy")
        own = [name, "--repeats", str(options.repeats), "--dtype", options.dtype]
        for label in [*KINDS] * options.rounds:
            command = [sys.executable, "-m", "benchmarks.sklearn_mlp", *own, "--only", label]
            rows = json.loads(subprocess.check_output(command, text=True))
            walls, processors, scores = zip(*rows, strict=True)
            spread = " ".join(f"{score:.4f}" for score in scores)
            first = f"  first fit {walls[0]:.3f} s"
            print(f"{label:30} {min(walls):8.3f} {min(processors):12.3f}  {spread}{first}")


if __name__ == "__main__":
    main()
