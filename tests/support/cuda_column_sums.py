"""Helpers of test_cuda_column_sums.py and of tests beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.ops.fused import kernels_in

SHAPE = (4, 4, 32, 32)


class Normed(nn.Module):
    def __init__(self) -> None:
        self.conv1, self.norm1 = nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12)

    def forward(self, x: Any) -> Any:
        x = graphc.relu(self.norm1(self.conv1(x)))
        return graphc.relu(self.norm2(self.conv2(x)))


def compiled(device: str, model: type[nn.Module] = Normed, **options: Any) -> Any:
    graphc.seed(0)

    def loss(model: Any, x: Any) -> Any:
        y = model(x)
        return graphc.mean(y * y)

    x, rule = graphc.spec(SHAPE), optim.SGD(lr=0.1)
    return graphc.compile(loss, model(), x, update=rule, device=device, **options)


def joined(program: Any) -> list[str]:
    """Kernels of a contraction that reduce as well."""
    return [
        n.op.kernel
        for n in kernels_in(program.graph)
        if any(x.op.contracts for x in n.body.nodes)
        and any(x.op.reduced_axes is not None for x in n.body.nodes)
    ]


def images() -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).normal(1, 1, SHAPE).astype(np.float32)


def steps(program: Any, count: int = 2) -> dict[str, Any]:
    """The state after so many steps."""
    for _ in range(count):
        program(images())
    return dict(program.state_dict())
