"""Winograd's convolutions against the reference, within the error that they state, and where they
are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from graphc import functions as F
from graphc.base.target import Target
from graphc.ir import ROW_MAJOR, Layout, Node, Type
from graphc.kernels.cpu.contract import contract
from graphc.kernels.cpu.convolution.conv_winograd import AMPLIFICATION, ROUNDINGS, choices, winograd
from graphc.kernels.lower import candidates, lower
from graphc.kernels.program.nest import contraction_nest
from graphc.ops import Conv2d, Conv2dDgrad
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.trace import Tensor, emit
from tests.kernels.harness import Built, build, traced

WIDTH = cpu_target().lanes
SHAPES = (
    # images, registers of channels in and out, rows, columns, padding
    (8, 2, 3, (7, 7), (1, 1)),
    (1, 1, 2, (14, 15), (1, 1)),
    (3, 3, 5, (9, 6), (0, 2)),
    (1, 2, 1, (1, 1), (1, 1)),
    (2, 1, 4, (5, 3), (0, 0)),
    (15, 1, 1, (8, 10), (2, 1)),
)
EPS = 2.0**-24


def convolution(
    n: int, c: int, k: int, size: tuple[int, int], padding: tuple[int, int], width: int
) -> Node:
    """The sum of a convolution, a bias and another image, through relu."""
    op, lanes = Conv2d((1, 1), padding, (1, 1), 1), Layout(1, width)
    image, weight = Type((n, c * width, *size)), Type((k * width, c * width, 3, 3))
    (y,) = op.infer(image, weight)
    types = (
        image.with_layout(lanes),
        weight.with_layout(Layout(0, width)),
        Type((k * width, 1, 1)),
        y.with_layout(lanes),
    )

    def forward(x: Tensor, w: Tensor, bias: Tensor, other: Tensor) -> Tensor:
        return F.relu(emit(op, x, w) + bias + other)

    return traced("forward", forward, types, (lanes,))


def gradient(
    n: int, c: int, k: int, size: tuple[int, int], padding: tuple[int, int], width: int
) -> Node:
    """The gradient of the data of such a convolution, whose weight has lanes of c, alone."""
    settings, lanes = ((1, 1), padding, (1, 1), 1), Layout(1, width)
    image, weight = Type((n, c * width, *size)), Type((k * width, c * width, 3, 3))
    (y,) = Conv2d(*settings).infer(image, weight)
    turned = Type((c * width, k * width, 3, 3), layout=Layout(0, width))

    def back(dy: Tensor, w: Tensor) -> Tensor:
        return emit(Conv2dDgrad(*settings, size), dy, F.permute_dims(w, (1, 0, 2, 3)))

    return traced("dgrad", back, (y.with_layout(lanes), turned), (lanes,))


def nodes(width: int) -> Iterator[Node]:
    for n, c, k, size, padding in SHAPES:
        yield convolution(n, c, k, size, padding, width)
        yield gradient(n, c, k, size, padding, width)


def permitted(width: int = WIDTH) -> Target:
    return Target("cpu", width, transforms_tiles=True)


def assert_within_bound(built: Built, m: int) -> None:
    """Also over inputs where outputs may lie there; what is added rounds twice."""
    node, random = built.node, np.random.default_rng(0)
    assert "conv_winograd" in built.kernel.source
    inputs = [random.uniform(-1, 1, v.type.shape).astype(np.float32) for v in node.inputs]
    (want,) = node.op.reference(*(a.astype(np.float64) for a in inputs))
    summed = node.inputs[0].type.shape[1]
    bound = (AMPLIFICATION[m] * (summed + ROUNDINGS) * summed + 2 * np.abs(want).max()) * EPS
    for inplace in (False, True):
        (got,) = built.run(inputs, inplace=inplace)
        assert np.abs(got - want).max() <= bound, (m, node.op.body)
        assert np.abs(got - want).max() <= 1e-5 * (1 + np.abs(want).max()), "as is usual"


@pytest.mark.parametrize("width", sorted({4, 8, WIDTH}))
@pytest.mark.parametrize("m", AMPLIFICATION)
def test_what_is_computed_is_within_the_stated_error(
    m: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only(nest: contract.Nest, target: Target) -> object:
        (choice,) = (c for c in choices(nest, target) if c.m == m)
        return replace(choice, cycles=0.0)

    monkeypatch.setattr(contract, "winograd", only)
    for built in build(list(nodes(width)), permitted(width)):
        assert_within_bound(built, m)


def test_small_caches_cut_tiles_into_groups_and_channels_into_parts() -> None:
    node = convolution(8, 2, 9, (13, 13), (1, 1), WIDTH)
    nest = contraction_nest(node.op.body)
    target = permitted()
    small = replace(target, caches=replace(target.caches, second=4096 * WIDTH))
    for large, cut in zip(choices(nest, target), choices(nest, small), strict=True):
        assert cut.group < large.group and cut.units > large.units
    (built,) = build([node], small)
    assert max(built.kernel.phases) > 1
    assert_within_bound(built, int(built.kernel.note.split("F(")[1][0]))


def test_the_kernel_states_its_error_and_direct_sums_stay_a_candidate() -> None:
    node = convolution(8, 4, 4, (28, 28), (1, 1), 16)
    first, second = candidates(node, permitted(16))
    c = 64
    assert first.note == (
        f"Winograd's F(4 x 4, 3 x 3), error at most "
        f"564 * {c} * {c + ROUNDINGS} * 2^-24 * max|x| * max|w|"
    )
    assert "conv_channels" in second.source and not second.note
    assert lower(node, permitted(16)).source == first.source


def test_without_permission_sums_are_direct() -> None:
    (kernel,) = candidates(convolution(8, 4, 4, (28, 28), (1, 1), 16), Target("cpu", 16))
    assert "conv_channels" in kernel.source and not kernel.note


def test_a_few_pixels_do_not_pay_for_the_weight() -> None:
    first, second = candidates(convolution(1, 32, 32, (3, 3), (1, 1), 16), permitted(16))
    assert "conv_channels" in first.source and "conv_winograd" in second.source


@pytest.mark.parametrize(
    ("channels", "taps", "stride", "dilation"),
    [
        (64, (3, 3), (2, 2), (1, 1)),
        (64, (3, 3), (2, 1), (1, 1)),
        (64, (3, 3), (1, 1), (1, 2)),
        (64, (5, 3), (1, 1), (1, 1)),
        (64, (1, 1), (1, 1), (1, 1)),
        (3, (3, 3), (1, 1), (1, 1)),
    ],
)
def test_what_it_does_not_compute_stays_direct(
    channels: int, taps: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> None:
    op, lanes = Conv2d(stride, (1, 1), dilation, 1), Layout(1, 16)
    x = Type((8, channels, 28, 28), layout=ROW_MAJOR if channels == 3 else lanes)
    w = Type((64, channels, *taps), layout=Layout(0, 16))
    node = traced("forward", lambda x, w: emit(op, x, w), (x, w), (lanes,))
    assert winograd(contraction_nest(node.op.body), permitted(16)) is None
    (kernel,) = candidates(node, permitted(16))
    assert "conv_channels" in kernel.source


@pytest.mark.parametrize("m", AMPLIFICATION)
def test_magnitudes_grow_as_is_said(m: int) -> None:
    """By the matrices of y = A^T [(G w) * (B^T x)], which follow from the points."""
    points = {2: [0.0, 1.0, -1.0], 4: [0.0, 0.625, -0.625, 1.5, -1.5]}[m]
    others = [[q for q in points if q != p] for p in points]
    inputs = np.array([[*np.poly(o)[::-1], 0] for o in others] + [np.poly(points)[::-1]])
    scales = [np.prod([p - q for q in o]) for p, o in zip(points, others, strict=True)]
    rows = [[1 / s, p / s, p * p / s] for p, s in zip(points, scales, strict=True)]
    taps = np.array([*rows, [0, 0, 1]])
    outputs = np.array([[p**i for p in points] + [float(i == m - 1)] for i in range(m)])
    random = np.random.default_rng(0)
    x, w = random.standard_normal(m + 2), random.standard_normal(3)
    np.testing.assert_allclose(outputs @ ((taps @ w) * (inputs @ x)), np.correlate(x, w, "valid"))
    most = (np.abs(outputs) @ (np.abs(taps).sum(1) * np.abs(inputs).sum(1))).max() ** 2
    assert AMPLIFICATION[m] - 1 < most <= AMPLIFICATION[m]
