"""Compare graphc's MLPClassifier with scikit-learn's: `python -m benchmarks.sklearn_mlp`.

Both fit the same data from the same weights in the same order. "digits" are scikit-learn's 1,797
images; "mnist" are 70,000 x 784 made images: ten digits' images of 28 x 28, moved and noisy. A row
has the least wall and processor time of some fits, and the accuracy on samples that were held out.
With GRAPHC_TIER=1 the first fit waits for compiled kernels, which the others use.

    GRAPHC_TIER=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.sklearn_mlp
"""

from __future__ import annotations

import argparse
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
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", default="float64", help="of the samples")
    options = parser.parse_args()
    for name in options.data or EPOCHS:
        x, y = {"digits": digits, "mnist": mnist}[name]()
        data = train_test_split(x.astype(options.dtype), y, random_state=0)
        rows = []
        for seed in range(options.repeats):
            rows.append([fitted(kind, data, EPOCHS[name], seed) for kind in (Other, MLPClassifier)])
        title = f"{name} {options.dtype}, {EPOCHS[name]} epochs"
        print(f"{title:30} {'wall s':>8} {'processor s':>12}  accuracy")
        for label, own in zip(("scikit-learn", "graphc"), zip(*rows, strict=True), strict=True):
            walls, processors, scores = zip(*own, strict=True)
            spread = " ".join(f"{score:.4f}" for score in scores)
            print(f"{label:30} {min(walls):8.3f} {min(processors):12.3f}  {spread}")
        print(f"first fit of graphc            {rows[0][1][0]:8.3f} {rows[0][1][1]:12.3f}")


if __name__ == "__main__":
    main()
