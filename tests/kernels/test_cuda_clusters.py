"""Parts of k that the blocks of a cluster add: the bits of a second launch, on every number of
streams; what the simulator finds where the protocol is broken; and what compilers make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.ir import Node
from graphc.kernels.cuda.contract import split_k
from graphc.kernels.cuda.contract.contract_kernel import lower_contract
from graphc.kernels.cuda.contract.options import ContractOptions
from graphc.kernels.cuda.contract.split_k import SplitKOptions
from graphc.kernels.cuda.contract.tiles import tensor_tiles as tiles
from graphc.kernels.cuda.contract.tiles.register_tiles import TILES
from graphc.kernels.cuda.contract.tiles.tensor_tiles import (
    GROUP_TILES,
    LONG_TILES,
    SHORT_TILES,
    GeneralTile,
)
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.lower import candidates
from graphc.kernels.program.kernel import Kernel
from graphc.ops.pointwise.tf32 import ReadTf32
from graphc.ops.pointwise.widen import Widen
from graphc.runtime.cuda.compile import compile_cuda
from graphc.runtime.sim.errors import LaunchError
from graphc.runtime.sim.native import ORDERS
from tests.kernels.cuda_harness import (
    TARGET,
    arrays_of,
    assert_close,
    build_device,
    mistaken,
    traced,
)
from tests.sim.playing import Played, simulator
from tests.support.cuda_clusters import operands, product, take
from tests.tools import need_command, need_nvrtc

CLUSTERS = SplitKOptions(clusters=True)


def transposed(x: Any) -> Any:
    return graphc.permute_dims(x, (1, 0))


LONG, SHORT = LONG_TILES, SHORT_TILES
CASES: dict[str, tuple[Node, GeneralTile, int]] = {
    "runs": (product(40, 72, 700), TILES[6], 3),
    "columns that are no runs": (product(37, 41, 700), TILES[6], 8),
    "groups of threads": (product(20, 36, 1500), TILES[10], 4),
    "sums in two parts": (product(130, 136, 300), TILES[0], 2),
    "tf32": (product(70, 72, 1100, ReadTf32()), LONG[-2], 5),
    "tf32, sums in parts": (product(130, 136, 520, ReadTf32()), LONG[0], 4),
    "bfloat16": (product(40, 72, 1100, Widen(), "bfloat16"), SHORT[-1], 4),
    "batches": (
        traced("batches", graphc.matmul, graphc.spec((3, 9, 300)), graphc.spec((3, 300, 12))),
        TILES[6],
        4,
    ),
    "integers": (
        traced(
            "integers", graphc.matmul, *(graphc.spec(s, "int32") for s in [(9, 300), (300, 12)])
        ),
        TILES[6],
        4,
    ),
}


def clustered(node: Node) -> Kernel:
    return lower_contract(node, ContractOptions(warp_groups=True, split_k=CLUSTERS))


def launched_twice(node: Node) -> Kernel:
    return lower_contract(node, ContractOptions(warp_groups=True))


@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_those_of_a_second_launch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_command("g++")
    node, tile, splits = CASES[name]
    take(tile, splits, monkeypatch)
    one, two = clustered(node), launched_twice(node)
    assert str(tile) in one.source and f"ClusterBlock<{splits}>" in one.source
    assert len(one.launches) == 1 and one.workspace == 0 and one.device_functions is None
    assert f"k in {splits} parts added in order within a cluster" in one.choice
    assert len(two.launches) == 2 and two.launches[0].grid[1] == splits
    arrays = operands(node)
    wanted = Played(simulator(check=True), [node], make=launched_twice).run(node, arrays)
    played = Played(simulator(check=True), [node], make=clustered)
    for order in ORDERS:
        for got, want in zip(played.run(node, arrays, order), wanted, strict=True):
            np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


def test_warp_groups_leave_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    need_command("g++")
    node = product(136, 136, 1032, Widen(), "bfloat16")
    take(GROUP_TILES[1], 2, monkeypatch)
    one, two = (Played(simulator(check=True), [node], make=f) for f in (clustered, launched_twice))
    arrays = operands(node)
    assert "WarpGroups" in one.kernels["product"].source
    for got, want in zip(one.run(node, arrays), two.run(node, arrays), strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_a_measurement_may_choose_has_clusters_too() -> None:
    node = product(60, 32, 512)
    found = candidates(node, replace(TARGET, adds_in_clusters=True))
    assert any(len(k.launches) == 1 and "cluster_sums" in k.source for k in found)
    assert not any("cluster_sums" in k.source for k in candidates(node, TARGET))


def test_what_clusters_cannot_add_takes_a_second_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """More parts than a cluster has blocks, sums of eight bytes, and what loops repeat."""
    take(TILES[6], 9, monkeypatch)
    assert len(clustered(product(40, 72, 1000)).launches) == 2
    take(TILES[6], 4, monkeypatch)
    specs = graphc.spec((9, 300), "float64"), graphc.spec((300, 12), "float64")
    assert len(clustered(traced("doubles", graphc.matmul, *specs)).launches) == 2
    looped = lower_contract(product(40, 72, 1000), ContractOptions(split_k=CLUSTERS, looped=True))
    assert "cluster" not in looped.source


def trained(x: Any, y: Any, w: Any) -> Any:
    h = graphc.relu(graphc.matmul(x, w))
    return graphc.matmul(transposed(x), h), graphc.matmul(h, transposed(y))


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_programs_leave_the_same_bits_with_and_without_clusters(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On each number of streams; without the setting no kernel has one."""
    need_command("g++")
    monkeypatch.setenv("GRAPHC_CHECK", "race")
    take(TILES[6], 4, monkeypatch)
    monkeypatch.setattr(tiles, "_parts", lambda tile, count: [1, 4])
    monkeypatch.setattr(split_k, "GPU", replace(GPU, launch=0, cluster=0))
    shapes = [(600, 48), (20, 36), (48, 36)]
    random = np.random.default_rng(0)
    values = [random.standard_normal(s).astype(np.float32) for s in shapes]
    results = []
    for clusters, streams in (("0", 1), ("1", 1), ("1", 2)):
        monkeypatch.setenv("GRAPHC_CLUSTERS", clusters)
        specs = [graphc.spec(s) for s in shapes]
        options: dict[str, Any] = {"device": "sim", "streams": streams, "precision": precision}
        program = graphc.compile(trained, *specs, **options, disable="fuse_products")
        assert any("cluster_sums" in k for k in program.kernels.values()) == (clusters == "1")
        results.append(program(*values))
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(got, want)


BEHIND = "meet();  // no block ends"
BROKEN = {
    "others are not waited for": ("      meet();\n      for", "      for"),
    "own threads alone are waited for": ("      meet();\n      for", "      sync();\n      for"),
    "a block ends while others read": (BEHIND, "// no block ends"),
    "nobody waits to have arrived": ("    cluster_wait();\n", ""),
    "nobody arrives": ("    cluster_arrive();\n", ""),
    "a part of no block is read": ("cluster_read(from, p)", "cluster_read(from, p + 1)"),
    "sums are written while others read": ("if (first > 0) meet();", ""),
    "places behind the tile are read": ("row * Tile::pitch + n)", "row * Tile::pitch + n + 65536)"),
}
WRONG = {
    "a part is read twice": ("cluster_read(from, p)", "cluster_read(from, p / 2)"),
    "no part but the first": ("p < Parts", "p < 1"),
    "all blocks add the same share": ("int i = y() *", "int i = 0 *"),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_found_in_every_order(
    name: str, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_command("g++")
    node, tile, splits = CASES["sums in two parts"]
    take(tile, splits, monkeypatch)
    played = Played(
        simulator(check=True), [node], mistaken("cluster_sums", BROKEN[name]), clustered
    )
    with pytest.raises(LaunchError):
        played.run(node, arrays_of(node), order)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_sums_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_command("g++")
    node, tile, splits = CASES["runs"]
    take(tile, splits, monkeypatch)
    arrays = arrays_of(node)
    wanted = node.op.reference(*arrays)
    right = Played(simulator(check=True), [node], mistaken("cluster_sums"), clustered)
    for got, want in zip(right.run(node, arrays), wanted, strict=True):
        assert_close(got, want, 700)
    try:
        played = Played(
            simulator(check=True), [node], mistaken("cluster_sums", WRONG[name]), clustered
        )
        got, *_ = played.run(node, arrays)
    except LaunchError:
        return
    with pytest.raises(AssertionError):
        assert_close(got, wanted[0], 700)


@pytest.mark.parametrize("nvrtc", [True, False], ids=["NVRTC", "nvcc"])
@pytest.mark.parametrize("name", ["runs", "groups of threads", "sums in two parts", "tf32"])
def test_kernels_compile_and_spill_nothing(
    name: str, nvrtc: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, tile, splits = CASES[name]
    take(tile, splits, monkeypatch)
    kernel = clustered(node)
    if nvrtc:
        need_nvrtc()
        monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
        usage = compile_cuda(kernel.source, kernel.name, "sm_90a").usage
        assert [u.spilled for u in usage.values()] == [0]
        return
    found = build_device([kernel], tmp_path, need_command("nvcc"), "sm_90a")
    assert [u.spilled for u in found.values()] == [0]
