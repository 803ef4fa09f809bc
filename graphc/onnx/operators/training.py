"""Optimizers as operators.

Each takes a learning rate, a step count, then all tensors, gradients and moments, and returns the
new tensors and moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc import functions as f
from graphc.onnx.operators.rules import operator
from graphc.trace import Tensor

_DOMAIN = "ai.onnx.preview.training"


def _groups(tensors: tuple[Tensor, ...], kinds: int) -> list[tuple[Tensor, ...]]:
    """A tuple for each tensor: itself, its gradient and its moments."""
    count = len(tensors) // kinds
    return list(zip(*(tensors[i * count : (i + 1) * count] for i in range(kinds)), strict=True))


def _outputs(results: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(t for kind in zip(*results, strict=True) for t in kind)


def _gradient(x: Tensor, g: Tensor, norm_coefficient: float) -> Tensor:
    return f.add(g, f.multiply(x, norm_coefficient)) if norm_coefficient else g


def _mixed(old: Tensor, new: Tensor, share: float) -> Tensor:
    return f.add(f.multiply(old, share), f.multiply(new, 1 - share))


@operator("Adam", domain=_DOMAIN)
def adam(
    rate: Tensor,
    step: Tensor,
    *tensors: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Any:
    count = f.astype(step, rate.dtype)
    grown = [f.subtract(1, f.pow(share, count)) for share in (beta, alpha)]
    adjusted = f.divide(f.multiply(rate, f.sqrt(grown[0])), grown[1])
    rate = f.where(f.greater(step, 0), adjusted, rate)
    results = []
    for x, g, v, h in _groups(tensors, 4):
        g = _gradient(x, g, norm_coefficient)
        first, second = _mixed(v, g, alpha), _mixed(h, f.square(g), beta)
        change = f.divide(f.multiply(rate, first), f.add(f.sqrt(second), epsilon))
        new = f.multiply(f.subtract(x, change), 1 - norm_coefficient_post)
        results.append((new, first, second))
    return _outputs(results)


@operator("Adagrad", domain=_DOMAIN)
def adagrad(
    rate: Tensor,
    step: Tensor,
    *tensors: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> Any:
    rate = f.divide(rate, f.add(f.multiply(f.astype(step, rate.dtype), decay_factor), 1))
    results = []
    for x, g, h in _groups(tensors, 3):
        g = _gradient(x, g, norm_coefficient)
        total = f.add(h, f.square(g))
        change = f.divide(f.multiply(rate, g), f.add(f.sqrt(total), epsilon))
        results.append((f.subtract(x, change), total))
    return _outputs(results)


@operator("Momentum", domain=_DOMAIN)
def momentum(
    rate: Tensor,
    step: Tensor,
    *tensors: Tensor,
    alpha: float,
    beta: float,
    mode: str = "standard",
    norm_coefficient: float = 0.0,
) -> Any:
    share = f.where(f.greater(step, 0), beta, 1.0)
    results = []
    for x, g, v in _groups(tensors, 3):
        g = _gradient(x, g, norm_coefficient)
        new = f.add(f.multiply(v, alpha), f.multiply(g, share))
        change = f.add(g, f.multiply(new, alpha)) if mode == "nesterov" else new
        results.append((f.subtract(x, f.multiply(rate, change)), new))
    return _outputs(results)
