"""Contractions by wgmma: every tile and every way that operands lie, in the simulator against the
reference; what the simulator finds where the protocol is broken; and what compilers make of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import graphc
from graphc.base.dtypes import widened
from graphc.base.errors import CompileError
from graphc.ir import Node
from graphc.kernels.cuda.contract.contract_kernel import lower_contract
from graphc.kernels.cuda.contract.options import ContractOptions
from graphc.kernels.cuda.contract.tiles.tensor_tiles import GROUP_TILES, GroupTile
from graphc.kernels.program.kernel import Kernel
from graphc.ops.pointwise.widen import Widen
from graphc.runtime.cuda.compile import compile_cuda
from graphc.runtime.sim.errors import LaunchError
from graphc.trace import emit
from tests.kernels.cuda_harness import build_device, mistaken, traced
from tests.sim.playing import Played, simulator
from tests.support.cuda_tensor import (
    CASES,
    everything,
    of_products,
    played,
    prefer,
    products,
    transposed,
)
from tests.support.cuda_wgmma import assert_near, operands
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


def kernels(*sizes: int) -> list[Kernel]:
    """Of both operands in both orders, with the tile that is taken."""
    m, n, k = sizes
    found = []
    for turned in ((a, b) for a in (False, True) for b in (False, True)):

        def product(a: Any, b: Any, turned: tuple[bool, bool] = turned) -> Any:
            views = (transposed(x) if t else x for x, t in zip((a, b), turned, strict=True))
            return graphc.matmul(*(emit(Widen(), x) for x in views))

        shapes = (k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n)
        specs = [graphc.spec(s, "bfloat16") for s in shapes]
        node = traced(f"product_{turned[0]:d}{turned[1]:d}", product, *specs)
        found.append(lower_contract(node, ContractOptions(warp_groups=True)))
    return found


@pytest.mark.parametrize("nvrtc", [True, False], ids=["NVRTC", "nvcc"])
def test_every_tile_compiles_and_spills_nothing(
    nvrtc: bool, tile: GroupTile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = kernels(1000, 520, 1032)
    if not nvrtc:
        usage = build_device(found, tmp_path, need_command("nvcc"), "sm_90a")
        assert [u.spilled for u in usage.values()] == [0] * len(usage)
        return
    need_nvrtc()
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    for kernel in found:
        usage = compile_cuda(kernel.source, kernel.name, "sm_90a").usage
        assert all(u.spilled == 0 for u in usage.values())
    logs = [path.read_text() for path in tmp_path.rglob("*.log")]
    assert len(logs) == len(found) and not any("serialized" in log for log in logs)


def test_another_gpu_is_named_in_the_error(tile: GroupTile) -> None:
    need_nvrtc()
    kernel = kernels(1000, 520, 1032)[0]
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


def node() -> Node:
    def product(a: Any, b: Any) -> Any:
        return graphc.matmul(emit(Widen(), a), emit(Widen(), b))

    specs = graphc.spec((70, 400), "bfloat16"), graphc.spec((400, 130), "bfloat16")
    return traced("product", product, *specs)


def test_the_protocol_as_it_is_computes_the_product(tile: GroupTile) -> None:
    """And what the mistakes below change is what they are to change."""
    product = node()
    whole = mistaken("wgmma")
    kernel = Played(
        simulator(check=True),
        [product],
        whole,
        lambda n: lower_contract(n, ContractOptions(warp_groups=True)),
    )
    arrays = operands(product)
    a, b = (widened(x) for x in arrays)
    (got,) = kernel.run(product, arrays)
    assert_near(got, a @ b, "bfloat16", 400)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_broken_protocol_is_found(mistake: str, tile: GroupTile) -> None:
    header, right, wrong = MISTAKES[mistake]
    product = node()
    changed = mistaken(header, (right, wrong))
    device = simulator(check=True)
    kernel = Played(
        device, [product], changed, lambda n: lower_contract(n, ContractOptions(warp_groups=True))
    )
    with pytest.raises(LaunchError):
        kernel.run(product, operands(product))
