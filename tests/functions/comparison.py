"""Comparing a function with PyTorch's: values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from tests.functions.tracing import run

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """Our function of the inputs, and PyTorch's of torch and the inputs as tensors."""

    name: str
    ours: Function
    theirs: Function
    inputs: tuple[np.ndarray, ...]
    tolerance: float = 1e-9

    def __str__(self) -> str:
        return self.name


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def labels(classes: int, *shape: int, dtype: str = "i8", seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, classes, shape).astype(dtype)


def positive(*shape: int) -> np.ndarray:
    return np.abs(normal(*shape)) + 0.1


def torch_arrays(torch: ModuleType, settings: dict[str, Any]) -> dict[str, Any]:
    return {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in settings.items()}


def compare(torch: ModuleType, case: Case) -> None:
    """Assert that values and gradients (of the sum of the float outputs) agree in float64."""
    got = run(case.ours, *case.inputs, slopes=True)
    tensors = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in case.inputs]
    found = case.theirs(torch, *tensors)
    results = list(found) if isinstance(found, tuple) else [found]
    wanted = [t for t in tensors if t.requires_grad]
    total = sum((r.sum() for r in results if r.is_floating_point()), start=torch.zeros(()))
    slopes = [None] * len(wanted)
    if total.requires_grad:
        slopes = torch.autograd.grad(total, wanted, allow_unused=True)
    expected = [r.detach().numpy() for r in results] + [
        np.zeros(t.shape) if s is None else s.detach().numpy()
        for t, s in zip(wanted, slopes, strict=True)
    ]
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=case.tolerance, atol=case.tolerance)
