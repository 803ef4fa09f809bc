"""Convolutions with channels in the lanes, and their gradients, against the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from graphc import functions as F
from graphc.base.target import Caches, Target
from graphc.ir import ROW_MAJOR, Layout, Node, Type
from graphc.kernels.lower import lower
from graphc.ops import Conv2d, Conv2dDgrad, Conv2dWgrad
from graphc.ops.fused import Fused
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.trace import Tensor, emit
from tests.kernels.harness import Built, build, traced

WIDTH = cpu_target().lanes

SHAPES = (
    # images, blocks of channels in and out, rows, columns, taps, strides, padding, dilation
    (2, 2, 3, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 1, 2, (14, 15), (3, 3), (1, 1), (1, 1), (1, 1)),
    (3, 1, 1, (9, 8), (3, 3), (2, 2), (1, 1), (1, 1)),
    (1, 4, 2, (5, 9), (1, 1), (1, 1), (0, 0), (1, 1)),
    (4, 1, 7, (7, 7), (1, 1), (1, 1), (0, 0), (1, 1)),
    (2, 1, 1, (8, 9), (1, 1), (2, 1), (0, 0), (1, 1)),
    (1, 1, 5, (6, 29), (5, 3), (1, 1), (1, 2), (1, 1)),
    (2, 1, 2, (9, 11), (3, 2), (1, 1), (3, 1), (2, 3)),
    (1, 2, 1, (2, 1), (5, 3), (1, 1), (2, 1), (1, 1)),
    (1, 1, 1, (1, 1), (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 0, 4, (30, 30), (7, 7), (2, 2), (3, 3), (1, 1)),
    (3, 0, 1, (6, 5), (3, 3), (1, 1), (1, 1), (1, 1)),
)
"""No blocks of channels in: three channels, row-major."""


def nodes(width: int) -> Iterator[Node]:
    """The forward convolution of each shape with a bias and relu, its weight gradient and, where
    its kernels have it, its data gradient and what is added to that."""
    lanes, first = Layout(1, width), Layout(0, width)
    for n, c, k, size, taps, stride, padding, dilation in SHAPES:
        image = Type((n, c * width or 3, *size), layout=lanes if c else ROW_MAJOR)
        weight = Type((k * width, c * width or 3, *taps))
        settings = (stride, padding, dilation, 1)
        conv, wgrad = Conv2d(*settings), Conv2dWgrad(*settings, taps)

        def forward(x: Tensor, w: Tensor, b: Tensor, op: Conv2d = conv) -> Tensor:
            return F.relu(emit(op, x, w) + b)

        def gradient(x: Tensor, dy: Tensor, op: Conv2dWgrad = wgrad) -> Tensor:
            return emit(op, x, dy)

        (y,) = conv.infer(image.with_layout(ROW_MAJOR), weight)
        laned = y.with_layout(lanes)
        bias = Type((k * width, 1, 1))
        yield traced("forward", forward, (image, weight.with_layout(first), bias), (lanes,))
        yield traced("wgrad", gradient, (image, laned))
        if c and stride == (1, 1):
            dgrad = Conv2dDgrad(*settings, size)

            def back(dy: Tensor, w: Tensor, z: Tensor, op: Conv2dDgrad = dgrad) -> Tensor:
                return emit(op, dy, F.permute_dims(w, (1, 0, 2, 3))) + z

            turned = Type((c * width, k * width, *taps), layout=first)
            yield traced("dgrad", back, (laned, turned, image), (lanes,))


def assert_right(built: Built) -> None:
    """The outputs, also over inputs where they may lie there, are those of float64."""
    node, random = built.node, np.random.default_rng(0)
    assert isinstance(node.op, Fused) and "conv_channels" in built.kernel.source
    inputs = [random.standard_normal(v.type.shape).astype(np.float32) for v in node.inputs]
    (want,) = node.op.reference(*(a.astype(np.float64) for a in inputs))
    for inplace in (False, True):
        (got,) = built.run(inputs, inplace=inplace)
        scale = 1 + np.abs(want).max()
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * scale, err_msg=str(node.op.body))


@pytest.mark.parametrize("width", sorted({4, 8, WIDTH}))
def test_channels_in_the_lanes_equal_the_reference(width: int) -> None:
    for built in build(list(nodes(width)), Target("cpu", width)):
        assert_right(built)


@pytest.mark.parametrize(("images", "blocks", "size"), [(2, 1, 28), (1, 2, 28), (3, 2, 9)])
def test_no_chunk_is_without_a_unit(images: int, blocks: int, size: int) -> None:
    """A unit is a tile of channels for a block of tiles of pixels."""
    lanes, conv = Layout(1, 16), Conv2d((1, 1), (1, 1), (1, 1), 1)
    x = Type((images, blocks * 16, size, size), layout=lanes)
    w = Type((blocks * 16, blocks * 16, 3, 3), layout=Layout(0, 16))
    node = traced("forward", lambda x, w: emit(conv, x, w), (x, w), (lanes,))
    source = lower(node, Target("cpu", 16)).source

    def figure(name: str) -> int:
        (found,) = re.findall(rf"\b{name} = (\d+)[,;]", source)
        return int(found)

    tiles = images // figure("IMAGES") * size * figure("COLUMN_TILES")
    units = -(-tiles // figure("PER_BLOCK")) * figure("K_TILES")
    assert figure("PER_BLOCK") > 1
    assert 1 < figure("CHUNKS") <= units


def test_small_caches_cut_pixels_and_weights_into_blocks() -> None:
    """With the weight passing by once for all pixels, and with blocks of pixels for all of it."""
    some = [n for i, n in enumerate(nodes(WIDTH)) if i in (0, 1, 2, 9, 11, 13)]
    built = build(some, Target("cpu", WIDTH, caches=Caches(4096, 8192)))
    sources = "".join(b.kernel.source for b in built)
    assert "WEIGHTS_FIRST = true" in sources and "WEIGHTS_FIRST = false" in sources
    for one in built:
        assert_right(one)


def test_the_sums_of_a_large_weight_are_joined_in_chunks() -> None:
    lanes, settings = Layout(1, WIDTH), ((1, 1), (1, 1), (1, 1), 1)
    x = Type((2, 16 * WIDTH, 5, 5), layout=lanes)

    def gradient(x: Tensor, dy: Tensor) -> Tensor:
        return emit(Conv2dWgrad(*settings, (3, 3)), x, dy)

    (built,) = build([traced("wgrad", gradient, (x, x))])
    assert min(built.kernel.phases) > 1
    assert_right(built)
