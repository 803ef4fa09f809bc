"""Helpers of test_program.py and of tests beside it."""

import numpy as np

import graphc
from graphc import nn, optim


class Mlp(nn.Module):
    def __init__(self):
        self.fc1, self.fc2 = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.fc2(graphc.relu(self.fc1(x)))


def loss_fn(model, x, y):
    return graphc.cross_entropy(model(x), y)


X, Y = graphc.spec((4, 6)), graphc.spec((4,), "int32")


RNG = np.random.default_rng(0)


XS = RNG.standard_normal((4, 6)).astype(np.float32)


YS = RNG.integers(0, 3, 4).astype(np.int32)


def trainer(**options):
    options = {"update": optim.SGD(lr=0.1), "device": "reference", **options}
    graphc.seed(0)
    return graphc.compile(loss_fn, Mlp(), X, Y, **options)
