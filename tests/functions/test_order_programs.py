"""Running results, orders, scatters and searches in whole programs: on the CPU and on the simulated
GPU they are what they are in NumPy, slopes included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f

X = np.random.default_rng(0).normal(size=(6, 37)).astype(np.float32)
PLACES = np.random.default_rng(1).integers(0, 37, (6, 9))
BOUNDS = np.array([-1.0, 0.0, 0.5], np.float32)


def results(x: Any, i: Any) -> tuple[Any, ...]:
    return (
        f.cumsum(x > 0, 0),
        *f.cummax(x, 1),
        f.argsort(x, 0, descending=True),
        *f.kthvalue(x, 3, 1),
        *f.nanmedian(x, 0),
        *f.mode(f.round(x), 1),
        f.nanquantile(x, 0.3),
        f.bucketize(x, BOUNDS),
        f.pad(f.searchsorted(f.sort(x, 1), x), ((1, 1), (2, 0))),
        f.scatter_reduce(x, 1, i, f.take_along_axis(x, i, 1), "amax", False),
    )


def total(x: Any, i: Any) -> Any:
    return (
        f.sum(f.sort(x, 1) * f.cumsum(x, 0) + f.cumprod(x, 1) + f.logcumsumexp(x, 0))
        + f.sum(f.cummax(x, 1)[0] ** 2)
        + f.sum(f.topk(x, 3, 0)[0] ** 3)
        + f.sum(f.quantile(x, [0.2, 0.4], 1))
        + f.sum(f.scatter(x, 1, i, 2 * f.take_along_axis(x, i, 1)) ** 2)
    )


def slope(x: Any, i: Any) -> Any:
    return graphc.grad(lambda y: total(y, i))(x)


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("function", [results, slope])
def test_programs_mean_the_same_on_every_device(function: Any, device: str) -> None:
    specs = [graphc.spec(a.shape, a.dtype) for a in (X, PLACES)]
    expected = graphc.compile(function, *specs, device="reference")(X, PLACES)
    found = graphc.compile(function, *specs, device=device)(X, PLACES)
    pairs = zip(found, expected, strict=True) if function is results else [(found, expected)]
    for got, want in pairs:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, strict=True)
