"""The smallest whole thing: a model, a loss, an update rule, a compiled step."""

import numpy as np

import graphc
from graphc import nn, optim


class MLP(nn.Module):
    def __init__(self):
        self.hidden, self.out = nn.Linear(2, 64), nn.Linear(64, 1)

    def forward(self, x):
        return self.out(graphc.tanh(self.hidden(x)))


def loss_fn(model, x, y):
    return graphc.mse_loss(model(x), y)


def main() -> float:
    """Learn y = sin(3 a) cos(2 b) from random points; the last loss."""
    generator = np.random.default_rng(0)
    step = graphc.compile(
        loss_fn, MLP(), graphc.spec((256, 2)), graphc.spec((256, 1)), update=optim.Adam(lr=0.01)
    )
    for i in range(1, 1001):
        x = generator.uniform(-1, 1, (256, 2)).astype(np.float32)
        y = np.sin(3 * x[:, :1]) * np.cos(2 * x[:, 1:])
        loss = float(step(x, y))
        if i % 200 == 0:
            print(f"step {i:4d}  loss {loss:.5f}")
    return loss


if __name__ == "__main__":
    main()
