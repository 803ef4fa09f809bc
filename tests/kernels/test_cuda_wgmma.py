"""Contractions by wgmma: every tile and every way that operands lie, in the simulator against the
reference; what the simulator finds where the protocol is broken; and what compilers make of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphc.base.dtypes import widened
from graphc.base.errors import CompileError
from graphc.ir import Node
from graphc.kernels.cuda.contract.contract_kernel import lower_contract
from graphc.kernels.cuda.contract.options import ContractOptions
from graphc.kernels.cuda.contract.tiles.tensor_tiles import GROUP_TILES, GroupTile
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.cuda.compile import compile_cuda
from graphc.runtime.sim.errors import LaunchError
from tests.kernels.cuda_harness import mistaken
from tests.sim.playing import Played, simulator
from tests.support.cuda_tensor import (
    CASES,
    everything,
    of_products,
    played,
    prefer,
    products,
)
from tests.support.cuda_wgmma import (
    assert_near,
    assert_spills_nothing,
    kernels,
    operands,
    product_node,
)
from tests.tools import need_command, need_nvrtc


@pytest.fixture(params=GROUP_TILES, ids=str)
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> GroupTile:
    """The tile that is taken wherever its threads can copy; else the smallest is."""
    monkeypatch.setenv("GRAPHC_WGMMA", "1")
    prefer(request.param, "GROUP_TILES", GROUP_TILES, monkeypatch)
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_tile_is_right_for_ragged_products(tile: GroupTile, dtype: str) -> None:
    need_command("g++")
    shapes = [s for _, _, given in CASES for s in given]
    program, got, wanted = played(everything, shapes, dtype)
    taken = [str(tile) in k.source for k in program.plan.kernels.values()]
    assert sum(taken) >= 6
    assert any("tensor cores by wgmma" in note for note in program.plan.notes)
    for one, want in zip(got, wanted, strict=True):
        assert_near(one, want, dtype, 1031)


def test_without_the_setting_no_kernel_has_it() -> None:
    program, *_ = played(products, of_products(37, 41, 53), "bfloat16")
    assert not any("wgmma" in text for text in program.kernels.values())


@pytest.mark.parametrize("nvrtc", [True, False], ids=["NVRTC", "nvcc"])
def test_every_tile_compiles_and_spills_nothing(
    nvrtc: bool, tile: GroupTile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_spills_nothing(kernels(bulk=False), nvrtc, tmp_path, monkeypatch)


def test_another_gpu_is_named_in_the_error(tile: GroupTile) -> None:
    need_nvrtc()
    kernel = kernels(bulk=False)[0]
    with pytest.raises(CompileError, match=re.escape("need a GPU of compute capability 9.0")):
        compile_cuda(kernel.source, kernel.name, "sm_80")


MISTAKES = {
    "operands are not fenced": ("contract", "fence_async_proxy();", ""),
    "no barrier": ("contract", "      block.sync();  // step", "      // step"),
    "copies come too early": (
        "contract",
        "now < behind ? now + ahead : now - behind",
        "now < 1 ? stages - 1 : now - 1",
    ),
    "copies are not awaited": ("contract", "copy_wait<ahead - 1>();", ""),
    "sums are not given away": ("wgmma", "group_fence();", ""),
    "products are not awaited": ("wgmma", "group_wait<0>();", ""),
    "too many are under way": ("wgmma", "group_wait<1>();", "group_wait<2>();"),
}


def by_groups(node: Node) -> Kernel:
    return lower_contract(node, ContractOptions(warp_groups=True))


def test_the_protocol_as_it_is_computes_the_product(tile: GroupTile) -> None:
    """And what the mistakes below change is what they are to change."""
    product = product_node(70, 400, 130)
    kernel = Played(simulator(check=True), [product], mistaken("wgmma"), by_groups)
    arrays = operands(product)
    a, b = (widened(x) for x in arrays)
    (got,) = kernel.run(product, arrays)
    assert_near(got, a @ b, "bfloat16", 400)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_broken_protocol_is_found(mistake: str, tile: GroupTile) -> None:
    header, right, wrong = MISTAKES[mistake]
    product = product_node(70, 400, 130)
    changed = mistaken(header, (right, wrong))
    kernel = Played(simulator(check=True), [product], changed, by_groups)
    with pytest.raises(LaunchError):
        kernel.run(product, operands(product))
