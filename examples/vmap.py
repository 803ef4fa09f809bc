"""Many at once: a function of one sample, or of one model, becomes a function of many.

Eight small networks learn the same curve from different starts as one program; then the gradient of
each sample of a batch shows which samples pull hardest at the best of them.
"""

from __future__ import annotations

import numpy as np

import graphc
from graphc import nn, optim

MODELS, SAMPLES = 8, 64


class Net(nn.Module):
    def __init__(self):
        self.fc1, self.fc2 = nn.Linear(1, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.fc2(graphc.tanh(self.fc1(x)))


def loss_fn(model, x, y):
    return graphc.mean((model(x) - y) ** 2)


def losses_fn(models, x, y):
    losses = graphc.vmap(loss_fn, in_axes=(0, None, None))(models, x, y)
    return graphc.sum(losses), losses


def main() -> tuple[np.ndarray, np.ndarray]:
    """The losses of all models after training; the norm of each sample's gradient."""
    random = np.random.default_rng(0)
    x = random.uniform(-2, 2, (SAMPLES, 1)).astype(np.float32)
    y = np.sin(2 * x)
    y[0] += 3  # one sample does not belong

    models = nn.stack_modules([Net() for _ in range(MODELS)])  # each parameter [8, ...]
    specs = graphc.spec(x.shape), graphc.spec(y.shape)
    train = graphc.compile(losses_fn, models, *specs, update=optim.Adam(lr=0.02))
    for _ in range(300):
        _, losses = train(x, y)
    print("losses:", *(f"{loss:.3f}" for loss in losses))
    best = nn.unstack_modules(models)[int(np.argmin(losses))]

    each = graphc.vmap(graphc.grad(loss_fn), in_axes=(None, 0, 0))
    gradients = graphc.compile(each, best, *specs)(x, y)  # name -> [64, ...]
    norms = np.sqrt(sum(np.square(g).reshape(SAMPLES, -1).sum(1) for g in gradients.values()))
    print(f"the sample that pulls hardest: {np.argmax(norms)}")
    return losses, norms


if __name__ == "__main__":
    main()
