"""Shares that the last block to end adds: the bits of a second launch, on every number of streams;
what the simulator finds where the protocol is broken; and what compilers make of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import PlanError
from graphc.ir import Node
from graphc.kernels.cuda.contract import column_sums, schedules, split_k
from graphc.kernels.cuda.contract.contract_kernel import lower_contract
from graphc.kernels.cuda.contract.options import ContractOptions
from graphc.kernels.cuda.contract.split_k import Partial, SplitK, SplitKOptions
from graphc.kernels.cuda.contract.tiles import tensor_tiles as tiles
from graphc.kernels.cuda.contract.tiles.register_tiles import TILES
from graphc.kernels.cuda.contract.tiles.tensor_tiles import GROUP_TILES, LONG_TILES, SHORT_TILES
from graphc.kernels.cuda.reduce import reduce, stage_text
from graphc.kernels.cuda.reduce.reduction_kernel import lower_reduce
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.lower import candidates, lower
from graphc.kernels.program.kernel import Kernel
from graphc.ops.pointwise.tf32 import ReadTf32
from graphc.ops.pointwise.widen import Widen
from graphc.runtime.proof.verify import verify
from graphc.runtime.sim.errors import LaunchError
from graphc.runtime.sim.native import ORDERS
from tests.kernels.cuda_harness import TARGET, arrays_of, mistaken, traced, usage_of
from tests.sim.playing import Played, simulator
from tests.support.cuda_clusters import operands, product, take
from tests.support.cuda_column_sums import compiled, joined, steps
from tests.support.loop_proof import CELL, SHOW, looped
from tests.tools import need_command

LONG, SHORT = LONG_TILES, SHORT_TILES
DOUBLES = [graphc.spec(s, "float64") for s in [(9, 300), (300, 12)]]
INTEGERS = [graphc.spec(s, "int32") for s in [(9, 300), (300, 12)]]
BATCHES = [graphc.spec(s) for s in [(3, 9, 300), (3, 300, 12)]]
CASES: dict[str, tuple[Node, Any, int]] = {
    "runs": (product(40, 72, 700), TILES[6], 3),
    "columns that are no runs": (product(37, 41, 700), TILES[6], 8),
    "the most sums of a thread": (product(130, 136, 300), TILES[1], 2),
    "tf32": (product(70, 72, 1100, ReadTf32()), LONG[-2], 5),
    "tf32, the most sums of a thread": (product(130, 136, 520, ReadTf32()), LONG[4], 4),
    "bfloat16": (product(40, 72, 1100, Widen(), "bfloat16"), SHORT[-1], 4),
    "batches": (traced("product", graphc.matmul, *BATCHES), TILES[6], 4),
    "integers": (traced("product", graphc.matmul, *INTEGERS), TILES[6], 4),
    "float64": (traced("product", graphc.matmul, *DOUBLES), TILES[6], 4),
}
"""Contractions, each with its tile and parts of k."""


def deviation(x: Any) -> Any:
    centred = x - graphc.mean(x, axis=0, keepdims=True)
    return graphc.sum(centred * centred, axis=0)


REDUCTIONS = {
    "rows": traced("rows", lambda x: graphc.sum(x, axis=1), graphc.spec((3, 40000))),
    "columns": traced(
        "columns",
        lambda x: (graphc.sum(x, axis=0), graphc.max(x, axis=0) * 2),
        graphc.spec((2100, 8)),
    ),
    "two stages": traced("two_stages", deviation, graphc.spec((2100, 8))),
}


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Tickets wherever they can be drawn."""
    need_command("g++", "clang++")
    monkeypatch.setattr(split_k, "GPU", replace(GPU, launch=1e9))
    return monkeypatch


def drawn(node: Node) -> Kernel:
    return lower_contract(
        node, ContractOptions(warp_groups=True, split_k=SplitKOptions(tickets=True))
    )


def launched_twice(node: Node) -> Kernel:
    return lower_contract(node, ContractOptions(warp_groups=True))


def ended(node: Node) -> Kernel:
    return lower_reduce(node, tickets=True)


@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_those_of_a_second_launch(name: str, cheap: pytest.MonkeyPatch) -> None:
    """In every order of blocks, and again: a launch leaves its counters as it found them."""
    node, tile, splits = CASES[name]
    take(tile, splits, cheap)
    one, two = drawn(node), launched_twice(node)
    assert one.draws_tickets and not two.draws_tickets
    assert one.device_functions is not None and len(one.joined_launches) == 2
    assert len(one.launches) == 1 and one.launches[0].grid[1] == splits
    assert f"k in {splits} parts added in order by the last block of a tile" in one.choice
    assert len(two.launches) == 2
    arrays = operands(node)
    wanted = Played(simulator(check=True), [node], make=launched_twice).run(node, arrays)
    played = Played(simulator(check=True), [node], make=drawn)
    for order in (*ORDERS, ORDERS[0]):
        for got, want in zip(played.run(node, arrays, order), wanted, strict=True):
            np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_the_last_block_of_a_reduction_stores_its_results(name: str) -> None:
    need_command("g++", "clang++")
    node = REDUCTIONS[name]
    one, two = ended(node), lower_reduce(node)
    assert one.draws_tickets and not two.draws_tickets
    assert len(one.launches) == len(two.launches) - 1
    arrays = arrays_of(node)
    wanted = Played(simulator(check=True), [node], make=lower_reduce).run(node, arrays)
    played = Played(simulator(check=True), [node], make=ended)
    for order in (*ORDERS, ORDERS[0]):
        for got, want in zip(played.run(node, arrays, order), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_elements_behind_a_split_reduction_take_a_launch() -> None:
    """All blocks have some, not the last alone."""
    node = traced(
        "kept", lambda x: x - graphc.sum(x, axis=1, keepdims=True), graphc.spec((3, 40000))
    )
    assert not ended(node).draws_tickets
    assert len(ended(node).launches) == len(lower_reduce(node).launches) == 2


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_partial_sums_of_columns_are_joined_by_tiles(
    precision: str, clean_environment: pytest.MonkeyPatch
) -> None:
    need_command("g++", "clang++")
    clean_environment.setenv("GRAPHC_CHECK", "race")
    clean_environment.setattr(reduce, "ALONE_BYTES", 0)
    clean_environment.setattr(column_sums, "JOINED", 4)
    clean_environment.setattr(stage_text, "GATHERED_BYTES", 200 << 10)
    here = compiled("sim", precision=precision, streams=1)
    kernels = [here.plan.kernels[name] for name in joined(here)]
    for kernel in kernels:
        parts = kernel.launches[0].grid[0]
        assert kernel.device_functions is None  # no other launch joins sums as groups of tiles do
        assert kernel.draws_tickets and f"int together = {parts // 4};" in kernel.source
        assert re.search(r"combine_partial<.*>\(workspace \+ \d+, 4\)", kernel.source)
        assert not any(launch.symbol.endswith("gather") for launch in kernel.launches)
    got, want = steps(here), steps(compiled("reference", precision=precision))
    tolerance = 1e-4 if precision == "float32" else 2e-2
    for key, array in got.items():
        scale = np.abs(want[key]).max()
        np.testing.assert_allclose(array, want[key], rtol=0, atol=tolerance * scale, err_msg=key)


def test_who_adds_parts_is_who_takes_least() -> None:
    both = SplitKOptions(tickets=True)
    few = Partial(
        parts=2, sums=4096, itemsize=4, tiles=4, tile_sums=1024, draws=True, clusters=True
    )
    assert both.best(few) == (few.by_block(), SplitK.BLOCK)
    many = replace(few, parts=64)
    assert both.best(many) == (many.by_launch(), SplitK.LAUNCH)
    assert SplitKOptions().best(few) == (few.by_launch(), SplitK.LAUNCH)
    assert both.best(replace(few, draws=False))[1] is SplitK.LAUNCH
    assert replace(both, clusters=True).best(few) == (few.by_cluster(), SplitK.CLUSTER)
    assert few.workspace == 2 * 4 * 1024 * 4


def test_what_cannot_draw_takes_a_second_launch(cheap: pytest.MonkeyPatch) -> None:
    """Threads that share sums, or have many; wgmma; what loops repeat."""
    for tile, node in (
        (TILES[0], product(130, 136, 300)),
        (LONG[0], product(130, 136, 520, ReadTf32())),
        (TILES[10], product(20, 36, 1500)),
        (GROUP_TILES[1], product(136, 136, 1032, Widen(), "bfloat16")),
    ):
        with pytest.MonkeyPatch.context() as patch:
            take(tile, 2, patch)
            assert len(drawn(node).launches) == 2 and not drawn(node).draws_tickets
    take(TILES[6], 4, cheap)
    # Blocks that hold weights are another matter.
    cheap.setattr(schedules, "_resident", lambda problem, options: None)
    looped = lower_contract(
        product(40, 72, 1000), ContractOptions(split_k=SplitKOptions(True), looped=True)
    )
    assert len(looped.launches) == 2 and not looped.draws_tickets
    target = replace(TARGET, draws_tickets=True)
    assert lower(REDUCTIONS["rows"], target).draws_tickets
    assert not lower(REDUCTIONS["rows"], target, in_loop=True).draws_tickets
    assert not lower(REDUCTIONS["rows"], TARGET).draws_tickets
    assert any(k.draws_tickets for k in candidates(product(40, 72, 1000), target))


def transposed(x: Any) -> Any:
    return graphc.permute_dims(x, (1, 0))


def trained(x: Any, y: Any, w: Any) -> Any:
    h = graphc.relu(graphc.matmul(x, w))
    return graphc.matmul(transposed(x), h), graphc.matmul(h, transposed(y)), graphc.sum(h, axis=0)


@pytest.mark.parametrize("check", ["race", ""])
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_programs_leave_the_same_bits_with_and_without_tickets(
    precision: str, check: str, cheap: pytest.MonkeyPatch
) -> None:
    """On each number of streams, in one call after another."""
    cheap.setenv("GRAPHC_CHECK", check)
    take(TILES[6], 4, cheap)
    cheap.setattr(tiles, "_parts", lambda tile, count: [1, 4])
    shapes = [(600, 48), (20, 36), (48, 36)]
    random = np.random.default_rng(0)
    values = [random.standard_normal(s).astype(np.float32) for s in shapes]
    results = []
    for tickets, streams in (("0", 1), ("", 1), ("1", 2), ("1", 4)):
        cheap.setenv("GRAPHC_TICKETS", tickets)
        launch = 0 if tickets == "0" else 1e9
        cheap.setattr(split_k, "GPU", replace(GPU, launch=launch, launch_gap=-1e9))
        specs = [graphc.spec(s) for s in shapes]
        options: dict[str, Any] = {"device": "sim", "streams": streams, "precision": precision}
        program = graphc.compile(trained, *specs, **options, disable="fuse_products")
        assert any(k.draws_tickets for k in program.plan.kernels.values()) == (tickets != "0")
        assert any(len(k.launches) > 1 for k in program.plan.kernels.values()) == (tickets == "0")
        results += [program(*values) for _ in range(3)]
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("streams", [1, 3])
def test_equal_kernels_draw_from_counters_of_their_own(
    streams: int, cheap: pytest.MonkeyPatch
) -> None:
    """Products of one text, which are side by side where there are streams for it."""
    take(TILES[6], 4, cheap)

    def three(a: Any, b: Any, c: Any, w: Any) -> Any:
        return tuple(graphc.matmul(x, w) for x in (a, b, c))

    specs = [graphc.spec((40, 1000))] * 3 + [graphc.spec((1000, 72))]
    program = graphc.compile(three, *specs, device="sim", streams=streams)
    kernels = [k for k in program.plan.kernels.values() if k.draws_tickets]
    assert len(kernels) == 3 and len({k.canonical for k in kernels}) == 1
    functions = program._executable._kept.functions._functions
    modules = {id(functions[k.name, False][0][1]._kernel.module) for k in kernels}
    assert len(modules) == 3
    random = np.random.default_rng(0)
    arrays = [random.integers(-3, 4, s.shape).astype(np.float32) for s in specs]
    for _ in range(3):
        for got, x in zip(program(*arrays), arrays, strict=False):
            np.testing.assert_array_equal(got, x @ arrays[3])


def test_tickets_are_not_drawn_in_loops() -> None:
    plan = looped(CELL, SHOW)
    kernels = {**plan.kernels, "show": replace(plan.kernels["show"], draws_tickets=True)}
    with pytest.raises(PlanError) as error:
        verify(replace(plan, kernels=kernels))
    assert str(error.value) == (
        "plan p: step 3 (s0 launch show) draws tickets in a loop, whose iterations would share the "
        "counters"
    )


FENCED = "device_fence();\n    last"
COUNTED = "atomicInc(counter, blocks - 1) == blocks - 1"
BROKEN = {
    "nothing is fenced before": (FENCED, "last"),
    "nothing is fenced behind": ("blocks - 1;\n    device_fence();", "blocks - 1;"),
    "a ticket before the others have stored": ("__syncthreads();  // what", "// what"),
    "counters are not set back": (COUNTED, "atomicAdd(counter, 1u) == blocks - 1"),
    "a counter is no atomic one": (COUNTED, "++*counter == blocks"),
    "all but the first go on": (COUNTED, "atomicInc(counter, blocks - 1) != 0"),
    "the last but one goes on too": (COUNTED, "atomicInc(counter, blocks - 1) >= blocks - 2"),
    "the thread that draws goes on alone": ("__syncthreads_or(last)", "last"),
}
"""Of `draws_last` in tickets.cuh."""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_found_in_every_order(
    name: str, order: int, cheap: pytest.MonkeyPatch
) -> None:
    node, tile, splits = CASES["runs"]
    take(tile, splits, cheap)
    played = Played(simulator(check=True), [node], mistaken("tickets", BROKEN[name]), drawn)
    with pytest.raises(LaunchError):
        played.run(node, arrays_of(node), order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", [n for n in BROKEN if n != "the thread that draws goes on alone"])
def test_a_broken_protocol_of_a_reduction_is_found(name: str, order: int) -> None:
    need_command("g++", "clang++")
    node = REDUCTIONS["columns"]
    played = Played(simulator(check=True), [node], mistaken("tickets", BROKEN[name]), ended)
    with pytest.raises(LaunchError):
        played.run(node, arrays_of(node), order)


def test_the_headers_as_they_are_break_nothing(cheap: pytest.MonkeyPatch) -> None:
    """The control of the two tests above."""
    node, tile, splits = CASES["runs"]
    take(tile, splits, cheap)
    Played(simulator(check=True), [node], mistaken("tickets"), drawn).run(node, arrays_of(node))
    node = REDUCTIONS["columns"]
    Played(simulator(check=True), [node], mistaken("tickets"), ended).run(node, arrays_of(node))


def test_counters_of_a_launch_that_failed_are_set_back(cheap: pytest.MonkeyPatch) -> None:
    node, tile, splits = CASES["runs"]
    take(tile, splits, cheap)
    broken = mistaken("tickets", BROKEN["counters are not set back"])
    played = Played(simulator(check=True), [node], broken, drawn)
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"leaves 3 in a variable that was 0, with which the"):
            played.run(node, arrays_of(node))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("nvrtc", [True, False], ids=["NVRTC", "nvcc"])
@pytest.mark.parametrize("name", ["runs", "tf32", "bfloat16", "columns"])
def test_kernels_compile_and_spill_nothing(
    name: str, nvrtc: bool, arch: str, tmp_path: Path, cheap: pytest.MonkeyPatch
) -> None:
    if name in CASES:
        node, tile, splits = CASES[name]
        take(tile, splits, cheap)
        kernel = drawn(node)
    else:
        kernel = ended(REDUCTIONS[name])
    assert kernel.draws_tickets
    cheap.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    usage = usage_of(kernel, nvrtc, arch, tmp_path)
    assert [u.spilled for u in usage.values()] == [0]
