"""What the copies of tiles are thought to bring from the second-level cache, and parts of k."""

from __future__ import annotations

from typing import Any

import pytest

import graphc
from graphc.kernels.cuda.contract.contract import Problem, in_parts, make_problem
from graphc.kernels.cuda.contract.copies import Copies
from graphc.kernels.cuda.contract.tiles.tensor_tiles import (
    LONG_TILES,
    Operand,
    TensorTile,
    room_in_l1,
    tensor_tiles,
)
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.program.nest import contraction_nest
from graphc.ops.fused import kernels_in
from tests.kernels.cuda_harness import choose_tile


def problem(fn: Any, *shapes: tuple[int, ...]) -> Problem:
    program = graphc.compile(fn, *map(graphc.spec, shapes), device="cuda", precision="tf32")
    (node,) = (n for n in kernels_in(program.graph) if n.op.template == "contract")
    nest, first = in_parts(contraction_nest(node.body, lanes=False))
    return make_problem(nest, node.body, first=first)


def three_by_three(x: Any, w: Any) -> Any:
    return graphc.permute_dims(graphc.conv2d(x, w, padding=1), (0, 2, 3, 1))


def unpadded(x: Any, w: Any) -> Any:
    return graphc.permute_dims(graphc.conv2d(x, w), (0, 2, 3, 1))


def tile(m: int, n: int) -> TensorTile:
    return next(t for t in reversed(LONG_TILES) if (t.m, t.n) == (m, n))


def every(t: TensorTile) -> int:
    return (t.m + t.n) * t.k * 4


@pytest.mark.parametrize(("m", "n"), [(64, 64), (128, 128), (32, 96), (64, 192)])
def test_a_product_reads_all_that_it_copies(m: int, n: int) -> None:
    copied = Copies(problem(graphc.matmul, (1152, 1024), (1024, 1152)))
    assert copied(tile(m, n)) == every(tile(m, n))


def test_neighbouring_taps_find_their_pixels_in_l1() -> None:
    copied = Copies(problem(three_by_three, (8, 64, 28, 28), (64, 64, 3, 3)))
    t = tile(64, 64)
    weights = t.n * t.k * 4
    assert weights + 1 / 9 * (every(t) - weights) < copied(t) < 0.7 * every(t)


def test_what_does_not_fit_l1_is_read_again() -> None:
    copied = Copies(problem(three_by_three, (8, 64, 28, 28), (32, 64, 3, 3)))
    large, small = tile(128, 32), tile(64, 32)
    assert room_in_l1(large, 4) < 1.1 * 128 * 128 and room_in_l1(small, 4) > 1.1 * 64 * 128
    assert copied(large) > 0.8 * every(large)
    assert copied(small) < 0.6 * every(small)


def test_columns_past_the_end_are_not_read() -> None:
    copied = Copies(problem(graphc.matmul, (512, 1024), (1024, 16)))
    t = tile(64, 32)
    assert copied(t) == (t.m + 16) * t.k * 4


def test_copies_that_begin_anywhere_touch_more_sectors() -> None:
    even, odd = (Copies(problem(unpadded, (8, c, 14, 14), (64, c, 1, 1))) for c in (64, 60))
    assert odd(tile(64, 64)) > 1.1 * even(tile(64, 64))


def test_single_elements_pass_through_l1() -> None:
    copied = Copies(problem(unpadded, (64, 1, 28, 28), (32, 1, 5, 5)))
    t = tile(64, 32)
    assert copied(t) - t.n * t.k * 4 < 0.25 * t.m * t.k * 4


@pytest.mark.parametrize(("m", "n", "k"), [(64, 576, 25088), (128, 1152, 6272), (52, 500, 64000)])
def test_parts_of_k_fill_all_multiprocessors(m: int, n: int, k: int) -> None:
    operand = Operand(4, 4, False)
    found, splits = choose_tile(1, m, n, k, tensor=tensor_tiles("tf32", operand, operand))
    blocks = -(-m // found.m) * -(-n // found.n) * splits
    rounds = -(-blocks // GPU.multiprocessors)
    assert 0.93 * rounds * GPU.multiprocessors <= blocks <= found.blocks * GPU.multiprocessors
