"""Contractions as CUDA: tiles, splits, copies of several elements, epilogues in registers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc
from graphc.kernels.cuda.contract.tiles import tensor_tiles as tiles
from graphc.kernels.cuda.contract.tiles.register_tiles import TILES, Tile
from graphc.kernels.lower import candidates, lower
from graphc.kernels.program.kernel import Kernel
from tests.kernels.cuda_harness import (
    TARGET,
    arrays_of,
    assert_close,
    build_device,
    choose_tile,
    mistaken,
    traced,
)
from tests.sim.playing import Played, assert_right_in_any_order, simulator
from tests.support.cuda_contract import NODES, relu_bias, spec, transposed, two_outputs
from tests.tools import need_command


def test_each_form_of_product_is_right_in_any_order_of_threads():
    assert_right_in_any_order(NODES, 1000)


@pytest.mark.parametrize(
    "shift", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))]
)
def test_what_a_measurement_may_choose_is_right_too(shift: int):
    """Of each form another of the candidates behind the first."""
    need_command("g++", "clang++")
    chosen = {}
    for number, node in enumerate(NODES):
        first, *others = candidates(node, TARGET)
        assert first == lower(node, TARGET) and 1 <= len(others) < 5
        assert len({k.canonical for k in (first, *others)}) == 1 + len(others)
        chosen[node.op.kernel] = others[(number + shift) % len(others)]
    played = Played(simulator(check=True), NODES, make=lambda node: chosen[node.op.kernel])
    for node in NODES:
        arrays = arrays_of(node)
        for got, want in zip(played.run(node, arrays), node.op.reference(*arrays), strict=True):
            assert_close(got, want, 1000)


def kernel_of(name: str) -> Kernel:
    return lower(next(n for n in NODES if n.op.kernel == name), TARGET)


def test_a_small_product_over_a_long_axis_is_split_and_finished():
    kernel = kernel_of("long_sum")
    first, second = kernel.launches
    splits = first.grid[1]
    assert splits > 1
    assert kernel.workspace == splits * 12 * 9 * 4
    assert (first.symbol, second.symbol) == ("long_sum_kernel", "long_sum_finish")


def vectors(kernel: Kernel) -> list[str]:
    return re.findall(r"vector = (\d+)", kernel.source)


def test_copies_are_as_wide_as_alignment_allows():
    assert vectors(kernel_of("nn")) == ["4", "4"]
    assert vectors(kernel_of("doubles")) == ["2", "2"]
    assert vectors(kernel_of("bytes")) == ["1", "4"]
    assert vectors(kernel_of("conv_bias_relu")) == ["4", "1"]
    assert vectors(kernel_of("sliced")) == ["1", "4"]


def test_a_residual_may_be_overwritten_but_not_an_operand():
    assert kernel_of("two_outputs").inplace == ((3, 0), (3, 1))
    square = traced("square", lambda x, w: graphc.matmul(x, w) + x, spec(8, 8), spec(8, 8))
    assert lower(square, TARGET).inplace == ()


def test_padding_of_a_tile_costs_more_than_a_slower_tile():
    large, _ = choose_tile(1, 4096, 4096, 4096)
    assert (large.m, large.n) == (128, 128)
    narrow, _ = choose_tile(1, 4096, 10, 512)
    assert narrow.n == 16


def test_the_number_of_splits_depends_on_the_problem_alone():
    assert {choose_tile(1, 20, 25, 57600) for _ in range(3)} == {choose_tile(1, 20, 25, 57600)}
    _, splits = choose_tile(1, 4096, 4096, 64)
    assert splits == 1


LARGE = [
    traced("large_nn", graphc.matmul, spec(4096, 4096), spec(4096, 4096)),
    traced("large_nt", lambda a, b: graphc.matmul(a, transposed(b)), *[spec(4096, 4096)] * 2),
    traced("large_doubles", graphc.matmul, *[spec(1024, 1024, dtype="float64")] * 2),
    traced("large_bytes", graphc.matmul, *[spec(1024, 1024, dtype="uint8")] * 2),
    traced("large_tn", lambda a, b: graphc.matmul(transposed(a), b), *[spec(4096, 4096)] * 2),
    traced("large_conv", relu_bias, spec(32, 128, 28, 28), spec(128, 128, 3, 3), spec(128)),
    traced("many_images", relu_bias, spec(256, 64, 56, 56), spec(64, 64, 3, 3), spec(64)),
]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_large_tiles_stay_in_registers(arch: str, tmp_path):
    kernels = [lower(node, TARGET) for node in LARGE]
    usage = build_device(kernels, tmp_path, need_command("nvcc"), arch)
    assert all(u.spilled == 0 and u.shared <= 48 * 1024 for u in usage.values()), usage
    assert any(str(TILES[0]) in k.source for k in kernels)


FEW = [
    traced("few_nn", graphc.matmul, spec(16, 256), spec(256, 256)),
    traced("few_nt", lambda a, b: graphc.matmul(a, transposed(b)), spec(16, 256), spec(256, 256)),
    traced("few_tn", lambda a, b: graphc.matmul(transposed(a), b), spec(256, 30), spec(256, 30)),
    traced(
        "few_doubles", graphc.matmul, spec(30, 130, dtype="float64"), spec(130, 33, dtype="float64")
    ),
    traced("few_outputs", two_outputs, spec(33, 200), spec(12, 200), spec(12), spec(33, 12)),
    traced("few_images", relu_bias, spec(2, 16, 4, 4), spec(12, 16, 3, 3), spec(12)),
]  # fmt: skip


@pytest.mark.parametrize("tile", [t for t in TILES if t.groups > 1], ids=str)
def test_groups_of_threads_share_steps(tile: Tile, monkeypatch: pytest.MonkeyPatch):
    """The groups' sums are added in one order, whatever that of the threads is."""
    need_command("g++", "clang++")
    monkeypatch.setattr(tiles, "TILES", (tile,))
    nodes = [n for n in FEW if tile.fits(n.outputs[0].type.numpy_dtype.itemsize)]
    assert len(nodes) >= 5
    assert all(str(tile) in lower(node, TARGET).source for node in nodes)
    assert_right_in_any_order(nodes, 1000)


def test_half_as_long_reads_of_crowded_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch):
    """As for compute capability 8.0; which tiles are crowded there, the compiler says of others."""
    need_command("g++", "clang++")
    monkeypatch.setattr(tiles, "TILES", TILES[:1])
    nodes = [n for n in NODES if n.op.kernel in ("nn", "nt", "conv_bias_relu")]
    assert len(nodes) == 3 and all(str(TILES[0]) in lower(n, TARGET).source for n in nodes)
    played = Played(simulator(check=True), nodes)
    halved = Played(
        simulator(check=True),
        nodes,
        mistaken("registers", ("most_held = 128", "most_held = 96")),
    )
    for node in nodes:
        arrays = arrays_of(node)
        for got, want in zip(halved.run(node, arrays), played.run(node, arrays), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_tiles_of_few_sums_stay_in_registers(arch: str, tmp_path):
    kernels = [lower(node, TARGET) for node in FEW]
    usage = build_device(kernels, tmp_path, need_command("nvcc"), arch)
    assert all(u.spilled == 0 and u.shared <= 48 * 1024 for u in usage.values()), usage
    assert any(", 8>;" in k.source for k in kernels)


def test_offsets_of_operands_above_two_billion_elements_are_wide():
    node = traced("huge", graphc.matmul, spec(70000, 40000), spec(40000, 8))
    text = lower(node, TARGET).source
    assert "struct Outer { long long offset; };" in text
    assert "struct Depth { long long offset; };" in text
    assert "const int64_t m = " in text


def test_few_rows_take_small_tiles_but_sums_of_one_block_stay_in_it():
    """Unless an order of sums is given that only small tiles have."""
    (small,) = (t for t in TILES if (t.m, t.n) == (8, 8))
    assert choose_tile(1, 16, 256, 256) == (small, 1)
    one, splits = choose_tile(1, 16, 10, 256)
    assert (one.m, one.n, splits) == (16, 16, 1)
    assert choose_tile(1, 16, 10, 256, keeps=lambda tile: tile == small) == (small, 1)
