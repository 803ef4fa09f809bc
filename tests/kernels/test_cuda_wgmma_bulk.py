"""Contractions by wgmma of tiles that TMA copies: every tile and every way that operands lie, in
the simulator against the reference; what the simulator finds where the protocol is broken; and what
compilers make of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.dtypes import widened
from graphc.ir import Node
from graphc.kernels.cuda.contract import schedules
from graphc.kernels.cuda.contract.contract_kernel import lower_contract
from graphc.kernels.cuda.contract.options import ContractOptions
from graphc.kernels.cuda.contract.tiles import tensor_tiles as tiles
from graphc.kernels.cuda.contract.tiles.bulk_tiles import BULK_TILES, BulkTile
from graphc.kernels.program.kernel import Kernel, TensorMap
from graphc.runtime.sim.errors import LaunchError
from tests.kernels.cuda_harness import mistaken
from tests.sim.playing import Played, simulator
from tests.support.cuda_tensor import of_products, played, products
from tests.support.cuda_wgmma import (
    assert_near,
    assert_spills_nothing,
    kernels,
    operands,
    product_node,
)
from tests.support.cuda_wgmma_bulk import take
from tests.tools import need_command


@pytest.fixture(params=BULK_TILES, ids=lambda tile: f"{tile} in clusters of {tile.cluster}")
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> BulkTile:
    return take(request.param, monkeypatch)


def named(tile: BulkTile) -> str:
    return f"BulkContract<Problem, Tile, {tile.cluster}>"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_tile_is_right_for_ragged_products(tile: BulkTile, dtype: str) -> None:
    """Rows, columns and k fill no tile; three tiles of rows are no whole clusters."""
    need_command("g++")
    program, got, wanted = played(products, of_products(296, 264, 328), dtype)
    taken = [named(tile) in k.source for k in program.plan.kernels.values()]
    assert taken == [True] * 4
    assert all("by wgmma of what TMA copies" in note for note in program.plan.notes)
    for one, want in zip(got, wanted, strict=True):
        assert_near(one, want, dtype, 328)


def test_parts_of_k_leave_the_same_bits_on_every_number_of_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRAPHC_WGMMA", "1")
    monkeypatch.setenv("GRAPHC_TMA", "1")
    for name in ("TILES", "SHORT_TILES", "GROUP_TILES"):
        monkeypatch.setattr(tiles, name, ())
    tile = BULK_TILES[0]
    monkeypatch.setattr(schedules, "BULK_TILES", (tile,))
    results = []
    for streams in (1, 2):
        specs = [graphc.spec(s, "bfloat16") for s in of_products(136, 264, 4104)]
        program = graphc.compile(products, *specs, device="sim", streams=streams)
        cut = [k for k in program.plan.kernels.values() if k.launches[0].grid[1] > 1]
        assert cut and all(named(tile) in k.source for k in cut)
        random = np.random.default_rng(3)
        values = [random.standard_normal(s.shape).astype(np.float32) for s in specs]
        results.append(program(*values))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_no_matrix_is_copied_by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 13 elements are not whole copies; images have borders; batches are several."""
    take(BULK_TILES[0], monkeypatch)

    def mixed(a: Any, b: Any, x: Any, w: Any, c: Any, d: Any) -> Any:
        return graphc.matmul(a, b), graphc.conv2d(x, w, padding=1), graphc.matmul(c, d)

    shapes = [(40, 13), (13, 24), (2, 8, 9, 7), (16, 8, 3, 3), (3, 16, 24), (3, 24, 16)]
    program, got, wanted = played(mixed, shapes, "bfloat16")
    assert not any("TMA" in note for note in program.plan.notes)
    for one, want in zip(got, wanted, strict=True):
        assert_near(one, want, "bfloat16", 72)


def test_without_the_setting_no_kernel_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_TMA", "1")
    specs = [graphc.spec(s, "bfloat16") for s in of_products(1024, 1024, 1024)]
    program = graphc.compile(products, *specs, device="sim")
    assert not any("wgmma" in text for text in program.kernels.values())


def test_maps_say_how_both_operands_lie(tile: BulkTile) -> None:
    maps = [kernel.launches[0].maps for kernel in kernels(bulk=True)]
    row, column = (
        TensorMap(0, "bf16", 0, 1032, 1000, 2064),
        TensorMap(1, "bf16", 0, 520, 1032, 1040),
    )
    turned = TensorMap(0, "bf16", 0, 1000, 1032, 2000), TensorMap(1, "bf16", 0, 1032, 520, 2064)
    assert maps == [(row, column), (row, turned[1]), (turned[0], column), turned]


def in_bulk(node: Node) -> Kernel:
    return lower_contract(node, ContractOptions(warp_groups=True, bulk_copies=True))


@pytest.mark.parametrize("nvrtc", [True, False], ids=["NVRTC", "nvcc"])
def test_every_tile_compiles_and_spills_nothing(
    nvrtc: bool, tile: BulkTile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = kernels(bulk=True)
    assert all(named(tile) in kernel.source for kernel in found)
    assert_spills_nothing(found, nvrtc, tmp_path, monkeypatch)


WIDE, ALONE = BULK_TILES[:2]
EMPTY = "phase_wait(empty + now, (turn - 1) & 1)"
EXPECT = "phase_expect(full + now, stage"
RELEASE = "if (i > 0) release(empty + before);"
WARPS = "consumers / 32 * Cluster"
ARRIVE = "if (lane < Cluster) phase_arrive(barrier, lane)"
LEAVE = "if constexpr (Cluster > 1) cluster_"
Changes = Sequence[tuple[str, str]]
BOTH: dict[str, Changes] = {
    "barriers are not fenced": [("phase_fence();", "")],
    "nobody waits until barriers have begun": [("all_sync(block);", "")],
    "too few bytes are expected": [(EXPECT, f"{EXPECT} - panel")],
    "too many bytes are expected": [(EXPECT, f"{EXPECT} + panel")],
    "copies are not awaited": [("phase_wait(full + now, parity);", "")],
    "consumers wait for the phase before": [("parity ^= 1;", "")],
    "consumers wait for the phase behind": [("parity = 0; i < count", "parity = 1; i < count")],
    "a stage is filled while it is read": [(f"if (turn > 0) {EMPTY};", "")],
    "the producer waits for the phase before": [(EMPTY, "phase_wait(empty + now, turn & 1)")],
    "a stage is given back while it is read": [(RELEASE, "release(empty + now);")],
    "no stage is given back": [(RELEASE, "")],
    "too few warps are waited for": [(WARPS, f"{WARPS} - 1")],
    "a panel is copied over another": [("to + i / 64 * panel", "to")],
    "sums leave before all products have ended": [("sums.finish();", "")],
    "sums leave before others have multiplied": [
        ("graphc_sim_part_barrier(consumers, file, line);", "")
    ],
}
SHARED: dict[str, Changes] = {
    "the other block is not waited for": [
        (WARPS, "consumers / 32"),
        (ARRIVE, "if (lane == 0) phase_arrive(barrier, cluster_rank())"),
    ],
    "the other block alone is waited for": [
        (WARPS, "consumers / 32"),
        (ARRIVE, "if (lane == 0) phase_arrive(barrier, 1 - cluster_rank())"),
    ],
    "barriers have begun for one block alone": [
        ("cluster_arrive();\n      cluster_wait();", "block.sync();")
    ],
    "a block ends before the other": [(f"{LEAVE}wait();", ""), (f"{LEAVE}arrive();", "")],
    "both copy the same columns": [("mine = rank * own_columns", "mine = 0")],
    "the other block gets no columns": [("everyone = (1 << Cluster) - 1", "everyone = 1")],
    "bytes of the other block are not expected": [(EXPECT, f"{EXPECT} - own_columns * 128")],
}
BROKEN = [
    *(pytest.param(ALONE, BOTH[name], id=name) for name in BOTH),
    *(pytest.param(WIDE, x, id=f"{name}, in a cluster") for name, x in {**BOTH, **SHARED}.items()),
]


SIZES = (200, 744, 200)
"""Of twelve steps: each stage is used several times."""


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_protocol_as_it_is_computes_the_product(tile: BulkTile, order: int) -> None:
    """And what the mistakes below change is what they are to change."""
    product = product_node(*SIZES)
    kernel = Played(simulator(check=True), [product], mistaken("wgmma_bulk"), in_bulk)
    arrays = operands(product)
    a, b = (widened(x) for x in arrays)
    (got,) = kernel.run(product, arrays, order)
    assert_near(got, a @ b, "bfloat16", 744)


@pytest.mark.parametrize(("tile", "changes"), BROKEN)
def test_a_broken_protocol_is_found_in_every_order(
    tile: BulkTile, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(tile, monkeypatch)
    product = product_node(*SIZES)
    for order in range(3):
        kernel = Played(simulator(check=True), [product], mistaken("wgmma_bulk", *changes), in_bulk)
        with pytest.raises(LaunchError):
            kernel.run(product, operands(product), order)
