"""Helpers of test_against_torch.py and of tests beside it."""

from __future__ import annotations

from typing import Any

import graphc
from graphc import nn
from tests.tools import need_module


class LeNet(nn.Module):
    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 20, kernel_size=5)
        self.conv2 = nn.Conv2d(20, 50, kernel_size=5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x: Any) -> Any:
        x = graphc.max_pool2d(graphc.relu(self.conv1(x)), 2)
        x = graphc.max_pool2d(graphc.relu(self.conv2(x)), 2)
        return self.fc2(graphc.relu(self.fc1(graphc.flatten(x))))


def mlp(nn: Any) -> Any:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


def batch_norm_cnn(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2), nn.BatchNorm2d(12), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(108, 10),
    )  # fmt: skip


def torch_lenet() -> Any:
    torch = need_module("torch")
    functional = torch.nn.functional

    class TorchLeNet(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = torch.nn.Conv2d(1, 20, 5), torch.nn.Conv2d(20, 50, 5)
            self.fc1, self.fc2 = torch.nn.Linear(800, 500), torch.nn.Linear(500, 10)

        def forward(self, x: Any) -> Any:
            x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
            x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
            return self.fc2(functional.relu(self.fc1(x.flatten(1))))

    return TorchLeNet()
