"""Gradients of strided convolutions as dense parts: the same numbers, and only where it pays."""

from __future__ import annotations

import numpy as np
import pytest

import graphc
from graphc.base.target import Target
from graphc.ir import Graph, Type
from graphc.passes.layout.split_strides import split_strides
from tests.passes.meaning import CPU, assert_same_meaning, ops

# Extent, taps, stride, padding.
AXES = [(8, 3, 2, 1), (9, 3, 2, 1), (7, 1, 2, 0), (8, 2, 2, 0), (11, 4, 3, 2), (5, 2, 4, 0)]


def gradient(batch: int, rows: tuple[int, ...], columns: tuple[int, ...], groups: int = 1) -> Graph:
    """dx of a convolution of 4 channels into 6, from dy and the weight."""
    extents, taps, strides, padding = zip(rows, columns, strict=True)
    pixels = [
        (n + 2 * p - k) // s + 1 for n, k, s, p in zip(extents, taps, strides, padding, strict=True)
    ]
    dy = Type((batch, 6, *pixels), "f32")
    weight = Type((6, 4 // groups, *taps), "f32")

    def dx(dy: graphc.Tensor, weight: graphc.Tensor) -> graphc.Tensor:
        x = graphc.zeros((batch, 4, *extents))
        return graphc.grad(
            lambda x: graphc.sum(graphc.conv2d(x, weight, None, strides, padding, 1, groups) * dy)
        )(x)

    return graphc.trace(dx, dy, weight)


@pytest.mark.parametrize("rows", AXES)
@pytest.mark.parametrize("columns", AXES)
def test_dense_parts_make_what_the_strided_gradient_does(
    rows: tuple[int, ...], columns: tuple[int, ...]
) -> None:
    before = gradient(2, rows, columns)
    after = split_strides(before, CPU)
    assert all(n.op.stride == (1, 1) for n in after.nodes if n.op.name == "conv2d_dgrad")
    assert_same_meaning(before, after, 1e-5)


def test_groups_stay() -> None:
    before = gradient(2, AXES[0], AXES[0], groups=2)
    after = split_strides(before, CPU)
    assert ops(after).count("conv2d_dgrad") == 4
    assert_same_meaning(before, after, 1e-5)


def test_taps_that_meet_no_pixel_have_no_part() -> None:
    after = split_strides(gradient(2, (8, 1, 2, 0), (8, 1, 2, 0)), CPU)
    assert ops(after).count("conv2d_dgrad") == 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_gradient_whose_taps_all_lie_in_the_padding_is_zero(dtype: str) -> None:
    def spread(x: graphc.Tensor, weight: graphc.Tensor) -> graphc.Tensor:
        return graphc.conv_transpose1d(x, weight, stride=2, padding=3)

    specs = graphc.spec((1, 1, 4), dtype), graphc.spec((1, 1, 1), dtype)
    before = graphc.trace(spread, *specs)
    after = split_strides(before, CPU)
    assert "conv2d_dgrad" not in ops(after)
    if dtype == "float32":
        assert_same_meaning(before, after)
    for device in ("cpu", "sim", "reference"):
        (y,) = graphc.compile(spread, *specs, device=device)(
            np.ones((1, 1, 4), "f"), np.ones((1, 1, 1), "f")
        )
        np.testing.assert_array_equal(y, [[0.0]])


@pytest.mark.parametrize("target", [CPU, Target("cuda", 1)])
def test_a_batch_in_the_lanes_and_other_devices_keep_the_stride(target: Target) -> None:
    before = gradient(16, AXES[0], AXES[0])
    assert split_strides(before, target) == before
