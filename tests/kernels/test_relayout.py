"""Relayouts: between row-major and lanes along any axis, of any extents."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from graphc.base.target import Target
from graphc.ir import Layout, Node, Type, Value
from graphc.ops.layout import Relayout
from graphc.runtime.compilers.shared_objects import cpu_target
from tests.kernels.harness import build

W = cpu_target().lanes


def relayouts(shape: tuple[int, ...], axis: int, dtype: str, width: int) -> list[Node]:
    """To lanes of `width` along `axis` of a value, and back."""
    plain = Type(shape, dtype)
    laned = plain.with_layout(Layout(axis, width))
    return [
        Node(Relayout(target.layout), (Value("x", source),), (Value("y", target),))
        for source, target in ((plain, laned), (laned, plain))
    ]


def assert_moved(nodes: list[Node], target: Target) -> None:
    """Each built node gives the elements it is given; its lanes beyond the extent are zero."""
    random = np.random.default_rng(0)
    for built in build(nodes, target):
        kind = built.node.output.type
        x = random.integers(0, 2, kind.shape).astype(kind.numpy_dtype)
        if kind.dtype == "f32":
            x = random.standard_normal(kind.shape).astype(np.float32)
        np.testing.assert_array_equal(built.run([x])[0], x)


@pytest.mark.parametrize("dtype", ["f32", "i32", "u8", "bool", "f64"])
def test_relayout_there_and_back_gives_the_same_elements(dtype: str) -> None:
    shapes = ((W, W), (1, 1), (W + 3, 3, 5, 7), (40,), (0, 3), (2 * W, 1100), (5, 0))
    nodes = [n for shape in shapes for n in relayouts(shape, 0, dtype, W)]
    assert_moved(nodes, cpu_target())


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_lanes_lie_along_any_axis_of_any_extent(rank: int) -> None:
    """Extents of the axis with lanes: less than a register, one, one and a rest, several; of the
    others: one, odd, and more than a register."""
    others = ((), (3,), (2, W + 1), (1, 5, 3))[rank - 1]
    nodes: list[Node] = []
    for axis, extent in itertools.product(range(rank), (1, 3, W - 1, W, W + 1, 2 * W, 2 * W + 5)):
        shape = (*others[:axis], extent, *others[axis:])
        nodes += relayouts(shape, axis, "f32", W)
    for axis in range(1, rank):
        nodes += relayouts((*others[:axis], 0, *others[axis:]), axis, "f32", W)
        nodes += relayouts((*others[:axis], W + 3, *others[axis:]), axis, "bool", W)
    assert_moved(nodes, cpu_target())


def test_a_relayout_of_many_repeats_is_cut_into_chunks() -> None:
    nodes = relayouts((40, W + 3, 1100), 1, "f32", W)
    assert all(built.kernel.phases[0] > 1 for built in build(nodes))
    assert_moved(nodes, cpu_target())


@pytest.mark.parametrize("width", [4, 8])
def test_narrower_registers_move_the_same(width: int) -> None:
    nodes = [n for axis in (0, 1, 2) for n in relayouts((3, 5, 6), axis, "f32", width)]
    assert_moved(nodes, Target("cpu", width))
