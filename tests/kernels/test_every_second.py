"""Lanes two elements apart are picked from two loads: at every tail and at images' borders."""

from __future__ import annotations

import numpy as np
import pytest

import graphc
from graphc.base.target import Target

WIDTHS = (15, 16, 17, 29, 30, 31, 32, 33, 47, 63, 64, 65)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_strided_windows_are_those_of_numpy_at_every_width(padding: int, dtype: str) -> None:
    generator = np.random.default_rng(0)
    images = [generator.standard_normal((1, 2, 7, w)).astype(dtype) for w in WIDTHS]
    weight = generator.standard_normal((3, 2, 3, 3)).astype(dtype)

    def program(*images: graphc.Tensor) -> list[graphc.Tensor]:
        results = []
        for x in images:
            results += [
                graphc.max_pool2d(x, 3, 2, padding),
                graphc.avg_pool2d(x, 3, 2, padding, count_include_pad=False),
                graphc.conv2d(x, weight, None, 2, padding),
                x[..., ::2] + 1,
            ]
        return results

    specs = [graphc.spec(x.shape, dtype) for x in images]
    expected = graphc.compile(program, *specs, device="reference")(*images)
    found = graphc.compile(program, *specs, device="cpu")(*images)
    tolerance = 100 * np.finfo(dtype).eps
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 1), (4, 2, 2)]
)
def test_gradients_of_rows_of_windows_are_those_of_numpy(
    size: int, stride: int, padding: int
) -> None:
    generator = np.random.default_rng(0)
    images = [generator.standard_normal((1, 2, 7, w), np.float32) for w in WIDTHS]

    def program(*images: graphc.Tensor) -> list[graphc.Tensor]:
        def pooled(x: graphc.Tensor) -> graphc.Tensor:
            y = graphc.max_pool2d(x, size, stride, padding)
            return graphc.sum(y * y)

        return [graphc.grad(pooled)(x) for x in images]

    specs = [graphc.spec(x.shape) for x in images]
    expected = graphc.compile(program, *specs, device="reference")(*images)
    found = graphc.compile(program, *specs, device="cpu")(*images)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_a_batch_lies_in_the_lanes_if_it_fills_them() -> None:
    for lanes in (4, 8, 16):  # or sums would have an order for each CPU
        assert [n for n in range(20) if Target("cpu", lanes).fills_lanes(n)] == list(range(10, 20))
    assert not Target("cuda", 1).fills_lanes(64)
