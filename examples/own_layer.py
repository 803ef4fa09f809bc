"""A layer of your own is a plain function: here a gated linear unit, in three lines."""

import numpy as np

import graphc
from graphc import nn, optim


def glu(x, values, gates):
    """values(x) where the gate is open, nothing where it is shut."""
    return values(x) * graphc.sigmoid(gates(x))


class Model(nn.Module):
    def __init__(self):
        self.values, self.gates, self.out = nn.Linear(8, 32), nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        return self.out(glu(x, self.values, self.gates))


def loss_fn(model, x, y):
    return graphc.mse_loss(model(x), y)


def main() -> tuple[float, float]:
    """The first and the last loss of learning max(x0, x1) * x2."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (128, 8)).astype(np.float32)
    y = np.maximum(x[:, 0:1], x[:, 1:2]) * x[:, 2:3]
    step = graphc.compile(
        loss_fn, Model(), graphc.spec(x.shape), graphc.spec(y.shape), update=optim.Adam(lr=0.01)
    )
    losses = [float(step(x, y)) for _ in range(300)]
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print("kernels:", ", ".join(step.kernels))
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()
