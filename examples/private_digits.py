"""Train on handwritten digits so that no one can tell whether a given digit was among them.

    python examples/private_digits.py --noise 1.5

Each step draws every digit with the same probability (Poisson sampling), clips the gradient of
each and adds noise to their sum. The accountant of dp-accounting (`pip install graphc[privacy]`)
says how private the run was.
"""

from __future__ import annotations

import argparse

import numpy as np

import graphc
from graphc import nn, optim

try:
    from examples.digits import load_digits
except ImportError:  # run as a script
    from digits import load_digits

DELTA = 1e-4
"""The probability with which the bound may fail: below one over the number of digits."""


def loss_fn(model, x, y, weight):
    """The mean loss of the places of a batch that hold a digit; the others have weight 0."""
    return graphc.mean(weight * graphc.cross_entropy(model(x), y, reduction="none"))


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """The test accuracy in per cent, and epsilon (NaN without an accountant)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--noise", type=float, default=1.5)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=128, help="digits of a step, on average")
    options = parser.parse_args(arguments)
    images, labels, test_images, test_labels = load_digits()
    share = options.batch / len(images)
    places = options.batch + 6 * round(options.batch**0.5)  # more are drawn once in 10^8 steps

    graphc.seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 10))
    rule = optim.DPSGD(options.clip, options.noise, lr=2.0, momentum=0.5)
    step = graphc.compile(
        loss_fn,
        model,
        graphc.spec((places, 1, 28, 28)),
        graphc.spec((places,), "int32"),
        graphc.spec((places,)),
        update=rule,
    )
    generator = np.random.default_rng(0)
    for number in range(options.steps):
        chosen = np.flatnonzero(generator.random(len(images)) < share)[:places]
        x, y = np.zeros((places, 1, 28, 28), np.float32), np.zeros(places, np.int32)
        weight = np.zeros(places, np.float32)
        count = len(chosen)
        x[:count], y[:count], weight[:count] = images[chosen], labels[chosen], 1
        loss = step(x, y, weight)
        if (number + 1) % 100 == 0:
            print(f"step {number + 1}: loss {float(loss) * places / count:.3f}")

    classify = graphc.compile(model, graphc.spec(test_images.shape))
    accuracy = 100 * float(np.mean(classify(test_images).argmax(1) == test_labels))
    epsilon = spent(options.noise, share, options.steps)
    print(f"test accuracy {accuracy:.1f} %, epsilon {epsilon:.2f} at delta {DELTA}")
    return accuracy, epsilon


def spent(noise: float, share: float, steps: int) -> float:
    """Epsilon after so many steps, by Renyi differential privacy."""
    try:
        import dp_accounting
        from dp_accounting import rdp
    except ImportError:
        print("pip install graphc[privacy] for the accountant")
        return float("nan")
    event = dp_accounting.PoissonSampledDpEvent(share, dp_accounting.GaussianDpEvent(noise))
    accountant = rdp.RdpAccountant()
    accountant.compose(event, steps)
    return float(accountant.get_epsilon(DELTA))


if __name__ == "__main__":
    main()
