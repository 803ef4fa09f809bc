"""The kinds of model that tests of the whole way use, small. Their lines are in goldens."""

from __future__ import annotations

import graphc
from graphc import nn


class MLP(nn.Module):
    def __init__(self):
        self.l1, self.l2 = nn.Linear(12, 16), nn.Linear(16, 10)

    def forward(self, x):
        return self.l2(graphc.relu(self.l1(x)))


class LeNet(nn.Module):
    def __init__(self):
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 5), nn.Conv2d(4, 6, 5)
        self.fc1, self.fc2 = nn.Linear(96, 20), nn.Linear(20, 10)

    def forward(self, x):
        x = graphc.max_pool2d(graphc.relu(self.conv1(x)), 2)
        x = graphc.max_pool2d(graphc.relu(self.conv2(x)), 2)
        return self.fc2(graphc.relu(self.fc1(graphc.flatten(x))))


class NormNet(nn.Module):
    def __init__(self):
        self.conv1, self.norm1 = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.conv2, self.norm2 = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.dropout, self.fc = nn.Dropout(0.25), nn.Linear(6, 10)

    def forward(self, x):
        x = graphc.relu(self.norm1(self.conv1(x)))
        x = graphc.relu(self.norm2(self.conv2(x)) + x)
        return self.fc(self.dropout(graphc.mean(x, axis=(2, 3))))


def loss_fn(model, x, y):
    return graphc.cross_entropy(model(x), y)


class Recurrent(nn.Module):
    def __init__(self):
        self.lstm, self.gru = nn.LSTM(6, 8, batch_first=True), nn.GRU(8, 8, batch_first=True)
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        y, _ = self.gru(self.lstm(x)[0])
        return self.fc(y[:, -1])


MODELS = {
    "mlp": (MLP, (20, 12)),
    "lenet": (LeNet, (24, 1, 28, 28)),
    "norm": (NormNet, (18, 3, 9, 9)),
    "recurrent": (Recurrent, (16, 5, 6)),
}
"""Name -> module class and input shape."""
