"""On a real GPU: every op and the three models against the reference; PyTorch beside them.

`pytest -m gpu` runs these. Most run on the simulated GPU too, so that they work where a GPU is.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.ir import Graph
from graphc.kernels.cuda.contract import split_k
from graphc.kernels.cuda.contract.tiles import tensor_tiles as tiles
from graphc.kernels.cuda.contract.tiles.bulk_tiles import BULK_TILES, BulkTile
from graphc.kernels.cuda.contract.tiles.tensor_tiles import GROUP_TILES, GroupTile
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.lower import lower
from graphc.ops.fused import Fused
from graphc.runtime.cuda import CudaExecutable, find_device, gpu_found, trial
from graphc.runtime.planner.planner import make_plan
from graphc.runtime.tuning import kernel_autotuner
from tests.kernels.cuda_harness import TARGET, assert_close
from tests.ops.samples import CORE
from tests.small_models import MODELS
from tests.support.cuda_tensor import of_products, prefer, products
from tests.support.cuda_wgmma_bulk import take
from tests.support.executable import batch, trainer
from tests.support.sweep import node_of
from tests.tools import need_command

DEVICES = ["sim", pytest.param("cuda", marks=pytest.mark.gpu)]
EVERY = 12
"""Of the samples, those that are played on the simulated GPU, which has tests of its own."""

CASES = [pytest.param("cuda", n, marks=pytest.mark.gpu) for n in range(len(CORE))]
CASES += [pytest.param("sim", n) for n in range(0, len(CORE), EVERY)]


def need_device(name: str) -> str:
    if name == "sim":
        need_command("g++", "clang++")
    elif not gpu_found():
        pytest.skip("there is no GPU")
    return name


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return need_device(request.param)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_an_op_means_what_its_reference_means(name: str, number: int):
    need_device(name)
    sample, node = CORE[number], node_of(CORE[number], number)
    assert isinstance(node.op, Fused)
    graph = Graph(node.op.kernel, node.inputs, (), (node,), node.outputs)
    plan = make_plan(graph, {node.outputs[0].name: lower(node, TARGET)}, device="cuda")
    executable = CudaExecutable(plan, {}, find_device(name))
    arrays = sample.arrays()
    with np.errstate(all="ignore"):
        expected = sample.op.reference(*arrays)
    length = max([1, *(a.size for a in arrays)])
    for _ in range(2):  # launch by launch, then as a graph
        for got, want in zip(executable.run(arrays), expected, strict=True):
            assert_close(got, want, length)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_as_on_the_reference(device: str, name: str):
    train, reference = trainer(name, device, streams=2), trainer(name, "reference")
    x, y = batch(name)
    for _ in range(20 if device == "cuda" else 5):
        expected = float(reference(x, y))
        assert float(train(x, y)) == pytest.approx(expected, rel=2e-4)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_the_same_bits_for_every_number_of_streams(device: str, name: str):
    found = [trained(name, device, streams) for streams in (1, 2, 4, 8)]
    for other in found[1:]:
        for key, array in other.items():
            np.testing.assert_array_equal(array, found[0][key], err_msg=key)


def trained(name: str, device: str, streams: int) -> dict[str, Any]:
    program = trainer(name, device, streams)
    for _ in range(3):
        program(*batch(name))
    return program.state_dict()


@pytest.mark.parametrize(
    ("device", "tune"),
    [("sim", "libraries")]
    + [pytest.param("cuda", tune, marks=pytest.mark.gpu) for tune in (1, "libraries")],
)
def test_a_tuned_model_trains_as_on_the_reference(
    device: str, tune: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    need_device(device)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("GRAPHC_TUNE", str(tune))
    if device == "sim":  # whose times say nothing, and are not asked for
        found = trial.CudaTrial(find_device("sim"), "simulated")
        monkeypatch.setattr(trial, "trial_on", lambda device: found)
        monkeypatch.setattr(kernel_autotuner, "SECONDS", 0.01)
        monkeypatch.setattr(trial, "MOST_REPEATS", 1)
    train = trainer("mlp", device, streams=2)
    notes = [note for note in train.plan.notes if "takes candidate" in note]
    assert notes, "something was measured"
    monkeypatch.delenv("GRAPHC_TUNE")
    reference = trainer("mlp", "reference")
    x, y = batch("mlp")
    for _ in range(5):
        assert float(train(x, y)) == pytest.approx(float(reference(x, y)), rel=2e-4)


def convolved(x: Any, w: Any, y: Any, **settings: Any) -> Any:
    """A convolution, and the gradients of its images and weights for `y`."""

    def weighed(x: Any, w: Any) -> Any:
        return graphc.sum(graphc.conv2d(x, w, **settings) * y)

    return graphc.conv2d(x, w, **settings), *graphc.grad(weighed, (0, 1))(x, w)


CONVOLUTIONS = {
    "whole": {"padding": 1},
    "strided": {"stride": 2, "padding": 1},
    "dilated": {"dilation": 2},
    "grouped": {"groups": 4},
}


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_parts_that_a_cluster_adds_are_exact(
    device: str, precision: str, monkeypatch: pytest.MonkeyPatch
):
    """Of small integers."""
    if device == "cuda" and not find_device(device).driver.begins_early:
        pytest.skip("not applicable: clusters need compute capability 9.0")
    monkeypatch.setenv("GRAPHC_CLUSTERS", "1")
    random = np.random.default_rng(0)
    arrays = [random.integers(-4, 5, s).astype(np.float32) for s in ((256, 1024), (1024, 192))]
    specs = [graphc.spec(a.shape) for a in arrays]
    monkeypatch.setattr(tiles, "_parts", lambda tile, count: [8, 4])
    program = graphc.compile(graphc.matmul, *specs, device=device, precision=precision, streams=1)
    assert any("ClusterBlock<" in kernel.source for kernel in program.plan.kernels.values())
    np.testing.assert_array_equal(program(*arrays), arrays[0] @ arrays[1])


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_what_the_last_block_adds_is_exact(
    device: str, precision: str, streams: int, monkeypatch: pytest.MonkeyPatch
):
    """Of small integers, in call after call: products whose k is cut, and sums of long columns;
    what second launches add is the same."""
    random = np.random.default_rng(0)
    shapes = (256, 1024), (1024, 192), (256, 1024)
    arrays = [random.integers(-4, 5, s).astype(np.float32) for s in shapes]
    x, w, y = arrays
    monkeypatch.setattr(tiles, "_parts", lambda tile, count: [4, 3])

    def fn(x: Any, w: Any, y: Any) -> Any:
        return graphc.matmul(x, w), graphc.matmul(y, w), graphc.sum(x * 0.5, axis=1)

    for tickets in ("1", "0"):
        monkeypatch.setenv("GRAPHC_TICKETS", tickets)
        launch = 1e9 if tickets == "1" else 0
        monkeypatch.setattr(split_k, "GPU", replace(GPU, launch=launch))
        specs = [graphc.spec(a.shape) for a in arrays]
        options: dict[str, Any] = {"precision": precision, "disable": "fuse_products"}
        program = graphc.compile(fn, *specs, device=device, streams=streams, **options)
        assert any(k.draws_tickets for k in program.plan.kernels.values()) == (tickets == "1")
        for _ in range(5):
            for got, want in zip(program(*arrays), (x @ w, y @ w, x.sum(1) / 2), strict=True):
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("streams", [1, 4])
def test_products_of_one_launch_are_exact(device: str, streams: int):
    """Of small integers, in call after call, with a reduction beside them."""
    random = np.random.default_rng(0)
    shapes = (256, 1024), (1024, 192), (40, 256)
    arrays = [random.integers(-4, 5, s).astype(np.float32) for s in shapes]
    x, w, y = arrays

    def fn(x: Any, w: Any, y: Any) -> Any:
        return graphc.matmul(x, w), graphc.matmul(y, x), graphc.sum(x * 0.5, axis=0)

    specs = [graphc.spec(a.shape) for a in arrays]
    program = graphc.compile(fn, *specs, device=device, precision="tf32", streams=streams)
    (kernel,) = program.plan.kernels.values()
    assert kernel.template == "group" and kernel.source.count("::run_in(block, ") == 2
    for _ in range(5):
        for got, want in zip(program(*arrays), (x @ w, y @ x, x.sum(0) / 2), strict=True):
            np.testing.assert_array_equal(got, want)


PRECISIONS = ["float32", "tf32", "bfloat16"]


@pytest.mark.parametrize(
    ("device", "name", "precision"),
    [("sim", name, PRECISIONS[n % 3]) for n, name in enumerate(CONVOLUTIONS)]
    + [
        pytest.param("cuda", name, precision, marks=pytest.mark.gpu)
        for name in CONVOLUTIONS
        for precision in PRECISIONS
    ],
)
def test_an_op_means_the_same_by_a_library(
    device: str, name: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Every plan that the library has, in the layouts that convolutions have here; tf32 within the
    two bits that it may round otherwise."""
    need_device(device)
    settings = CONVOLUTIONS[name]
    channels = 32 // settings.get("groups", 1)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    found = trial.CudaTrial(find_device(device), "as many as there are")
    monkeypatch.setattr(trial, "trial_on", lambda device: found)
    if find_device(device).driver.convolutions is None:
        pytest.skip("cuDNN is not installed")
    random = np.random.default_rng(0)
    specs = [graphc.spec((4, 32, 9, 10)), graphc.spec((48, channels, 3, 3))]
    specs += [v.type for v in graphc.trace(partial(graphc.conv2d, **settings), *specs).outputs]
    arrays = [random.standard_normal(t.shape).astype(np.float32) for t in specs]
    fn = partial(convolved, **settings)
    expected = graphc.compile(fn, *specs, device="reference", precision=precision)(*arrays)
    for last in range(1, 4):
        monkeypatch.setattr(
            kernel_autotuner, "measure", lambda plays, clock, n=last: (-n % len(plays), "")
        )
        options: dict[str, Any] = {"device": device, "precision": precision, "tune": "libraries"}
        program = graphc.compile(fn, *specs, **options)
        assert program.plan is not None
        assert device == "cuda" or sum(k.call is not None for k in program.plan.kernels.values())
        for got, want in zip(program(*arrays), expected, strict=True):
            error = np.abs(got - want).max() / np.abs(want).max()
            assert error < (2**-8 if precision == "tf32" else 2**-15)


@pytest.mark.parametrize(
    ("device", "name"),
    [("sim", "mlp"), *(pytest.param("cuda", name, marks=pytest.mark.gpu) for name in MODELS)],
)
def test_launches_that_begin_early_leave_the_same_bits(
    device: str, name: str, monkeypatch: pytest.MonkeyPatch
):
    need_device(device)
    expected = trained(name, device, 2)
    monkeypatch.setenv("GRAPHC_EARLY_LAUNCH", "1")
    for streams in (1, 2):
        found = trained(name, device, streams)
        for key, array in found.items():
            np.testing.assert_array_equal(array, expected[key], err_msg=key)


@pytest.mark.parametrize("tile", [*GROUP_TILES, *BULK_TILES], ids=repr)
def test_warp_groups_multiply_as_the_reference_does(
    device: str, tile: GroupTile, monkeypatch: pytest.MonkeyPatch
):
    """Integers, so that every way of adding gives the same: both operands in both orders."""
    if device == "cuda" and find_device(device).driver.arch != "sm_90a":
        pytest.skip("not applicable: wgmma needs compute capability 9.0")
    monkeypatch.setenv("GRAPHC_WGMMA", "1")
    if isinstance(tile, BulkTile):
        take(tile, monkeypatch)
    else:
        prefer(tile, "GROUP_TILES", GROUP_TILES, monkeypatch)
    random = np.random.default_rng(0)
    shapes = of_products(*((1000, 520, 1032) if device == "cuda" else (136, 264, 200)))
    arrays = [random.integers(-4, 5, s).astype(np.float32) for s in shapes]
    specs = [graphc.spec(a.shape) for a in arrays]
    program = graphc.compile(products, *specs, device=device, precision="bfloat16", streams=1)
    text = f"BulkContract<Problem, Tile, {tile.cluster}>" * isinstance(tile, BulkTile)
    sources = [kernel.source for kernel in program.plan.kernels.values()]
    assert sum(str(tile) in source and text in source for source in sources) >= 4
    a, b, c, d = arrays
    wanted = a @ b, np.maximum(a @ d.T, 0), c.T @ b * 0.5, c.T @ d.T
    for got, want in zip(program(*arrays), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_program_goes_on_where_a_larger_one_moved_its_memory(device: str):
    train, whole = trainer("mlp", device, streams=2), trainer("mlp", device, streams=2)
    x, y = batch("mlp")
    losses = [float(train(x, y)) for _ in range(2)]
    size = find_device(device).arena.nbytes // 4 + 1000
    large = graphc.compile(lambda x: graphc.exp(x), graphc.spec((size,)), device=device)
    assert float(large(np.zeros(size, np.float32)).sum()) == size
    losses += [float(train(x, y)) for _ in range(2)]
    assert losses == [float(whole(x, y)) for _ in range(4)]


def test_programs_of_two_models_and_rules_take_turns(device: str):
    programs = [trainer(name, device, streams=2) for name in ("mlp", "lenet", "mlp")]
    names = ["mlp", "lenet", "mlp"]
    losses: list[list[float]] = [[], [], []]
    for _ in range(3):
        for program, name, found in zip(programs, names, losses, strict=True):
            found.append(float(program(*batch(name))))
    assert losses[0] == losses[2]
    assert all(found[0] > found[-1] for found in losses)


def test_a_profile_counts_microseconds(device: str):
    train = trainer("mlp", device)
    begin = time.perf_counter()
    rows = train._executable.profile(batch("mlp"), repeats=10)
    spent = time.perf_counter() - begin
    assert 0 < sum(t.microseconds for t in rows) < 1e6 * spent


@pytest.mark.gpu
def test_a_replayed_step_costs_the_host_little():
    need_device("cuda")
    train = trainer("mlp", "cuda")
    x, y = batch("mlp")
    executable = train._executable
    executable.run([x, y])
    begin = time.perf_counter()
    for _ in range(200):
        executable.submit([x, y])
    per_step = (time.perf_counter() - begin) / 200
    assert per_step < 1e-3
