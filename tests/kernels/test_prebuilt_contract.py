"""Prebuilt contractions: the bytes of the generated kernels, on every instruction set."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphc import functions as F
from graphc.base.target import Target
from graphc.ir import ROW_MAJOR, Layout, Node, Type
from graphc.kernels.lower import prebuilt
from graphc.ops import Conv2d, Conv2dDgrad, Conv2dWgrad, Matmul
from graphc.ops.base import Array
from graphc.runtime.compilers.prebuilt_library import build_library
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.trace import Tensor, emit
from tests.kernels.contract_samples import convolutions, matmuls
from tests.kernels.harness import Built, build, single, traced
from tests.kernels.test_sum_orders import ordered

ISAS = ("", "avx2", "sse2")
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-42, -1e-38], np.float32)
"""Numbers that tell a product that is left out from one with zero."""


@pytest.fixture(params=ISAS)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setenv("GRAPHC_ISA", request.param)
    return cpu_target()


def prebuilt_of(built: Built, target: Target) -> Built:
    """The same node by a prebuilt function."""
    found = prebuilt(built.node, built.kernel, target)
    assert found is not None, f"{built.kernel.name} has no prebuilt function"
    address = build_library().address(found.symbol)
    assert address is not None, found.symbol
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    return replace(built, function=prototype(address), description=found.data)


def numbers(node: Node, seed: int, special: float = 0.0) -> list[Array]:
    """Random inputs, of which a share is special."""
    random = np.random.default_rng(seed)
    arrays = []
    for value in node.inputs:
        array = random.standard_normal(value.type.shape).astype(value.type.numpy_dtype)
        chosen = random.random(array.shape) < special
        array[chosen] = random.choice(SPECIAL, int(chosen.sum()))
        arrays.append(array)
    return arrays


def same_bits(x: Array, y: Array) -> bool:
    """Whether all elements have the same bits, whatever NaNs carry."""
    if x.dtype.kind == "f":
        x, y = (np.where(np.isnan(a), np.float32(np.nan), a) for a in (x, y))
    return np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes()


def assert_same(nodes: Sequence[Node], target: Target) -> None:
    """Both kernels of each node write the same bytes, chunks in any order, also in place."""
    for seed, built in enumerate(build(nodes, target)):
        other, inputs = prebuilt_of(built, target), numbers(built.node, seed)
        want = built.run(inputs, seed)
        for inplace in (False, True):
            got = other.run(inputs, seed + inplace, inplace)
            for x, y in zip(got, want, strict=True):
                assert same_bits(x, y), f"{built.kernel.name} {inplace}: {built.node}"


def test_random_products(target: Target) -> None:
    assert_same(matmuls(40, 12, target.lanes), target)


def test_random_convolutions(target: Target) -> None:
    assert_same(convolutions(40, 12, target.lanes), target)


def cell(lanes: Layout, size: int = 24) -> Node:
    """Gates that are sections of a product's columns."""

    def function(x: Tensor, weight: Tensor, c: Tensor) -> Any:
        gates = emit(Matmul(), x, F.permute_dims(weight, (1, 0)))
        i, f, g, o = (gates[:, n * size : (n + 1) * size] for n in range(4))
        new = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
        return new, F.sigmoid(o) * new

    types = [Type((35, 20), "f32", lanes), Type((4 * size, 20)), Type((35, size), "f32", lanes)]
    return traced("cell", function, types, [lanes, lanes])


def pooled(lanes: Layout, size: int) -> Node:
    """The maximum of windows of a convolution's pixels, and where it lies."""

    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return F.relu(F.max_pool2d(F.conv2d(x, weight, bias, padding=1), size))

    types = [Type((20, 3, 13, 11), "f32", lanes), Type((5, 3, 3, 3)), Type((5,))]
    return traced("pooled", function, types, [lanes])


def test_epilogues_on_several_sums(target: Target) -> None:
    lanes = Layout(0, target.lanes)
    nodes = [cell(lanes), cell(ROW_MAJOR), pooled(lanes, 2), pooled(lanes, 3)]
    assert_same(nodes, target)


def gradient(layout: Layout, other: Layout, shape: Sequence[int], padding: int = 1) -> Node:
    """The weight gradient of a convolution of images [n, c, h, w] to k channels."""
    n, c, h, w, k = shape
    settings = ((1, 1), (padding, padding), (1, 1), 1)
    x, weight = Type((n, c, h, w), "f32", layout), Type((k, c, 3, 3))
    (y,) = Conv2d(*settings).infer(x.with_layout(ROW_MAJOR), weight)
    return ordered(single(Conv2dWgrad(*settings, (3, 3)), [x, y.with_layout(other)]))


def test_sums_in_parts_and_lanes(target: Target) -> None:
    """Parts are units of their own where the workspace holds their sums; partial sums of a row."""
    batch, channels = Layout(0, target.lanes), Layout(1, target.lanes)
    nodes = [
        gradient(batch, batch, (100, 4, 28, 28, 6)),
        gradient(batch, batch, (37, 16, 14, 14, 3), padding=0),
        gradient(channels, channels, (8, 16, 20, 20, 32)),
        gradient(ROW_MAJOR, channels, (6, 3, 31, 31, 16)),
        gradient(ROW_MAJOR, ROW_MAJOR, (3, 4, 12, 21, 5)),
    ]
    assert_same(nodes, target)


def channels_last(target: Target, image: tuple[int, int], stride: int) -> list[Node]:
    """A convolution with channels in the lanes, and its gradient to the image."""
    lanes, (h, w) = Layout(1, target.lanes), image
    settings = ((stride, stride), (1, 1), (1, 1), 1)
    x, weight = Type((3, 32, h, w), "f32", lanes), Type((16, 32, 3, 3))
    (y,) = Conv2d(*settings).infer(x.with_layout(ROW_MAJOR), weight)
    y, weight = y.with_layout(lanes), weight.with_layout(Layout(0, target.lanes))
    return [single(Conv2d(*settings), [x, weight], layout=lanes)]


def test_channels_in_the_lanes(target: Target) -> None:
    nodes = channels_last(target, (9, 7), 1) + channels_last(target, (12, 30), 2)
    assert_same([*map(ordered, nodes)], target)


def test_long_sums_few_rows_and_divided_addresses(target: Target) -> None:
    strided = ((2, 3), (2, 1), (1, 2), 1)
    x, weight = Type((2, 3, 17, 19)), Type((6, 3, 4, 3))
    (y,) = Conv2d(*strided).infer(x, weight)
    nodes = [
        single(Matmul(), [Type((3, 1000)), Type((1000, 130))]),
        single(Matmul(), [Type((100, 700)), Type((700, 70))]),
        single(Matmul(), [Type((5, 30, 40)), Type((5, 40, 33))]),
        single(Matmul(), [Type((1, 1)), Type((1, 1))]),
        single(Conv2dDgrad(*strided, (17, 19)), [y, weight]),
    ]
    assert_same([*map(ordered, nodes)], target)


Nodes = Callable[[int], list[Node]]


@pytest.mark.parametrize("nodes", [lambda w: matmuls(41, 8, w), lambda w: convolutions(41, 10, w)])
def test_products_that_do_not_exist_are_left_out(nodes: Nodes) -> None:
    """Infinities, NaNs and negative zeros give the bits of the reference, which leaves out products
    outside of an operand."""
    target = cpu_target()
    for seed, built in enumerate(build([*map(ordered, nodes(target.lanes))], target)):
        other, inputs = prebuilt_of(built, target), numbers(built.node, seed, 0.02)
        with np.errstate(all="ignore"):
            want = built.node.op.reference(*inputs)
        for x, y in zip(other.run(inputs, seed), want, strict=True):
            assert same_bits(x, y), f"{built.kernel.name}: {built.node}"
