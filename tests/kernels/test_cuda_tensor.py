"""Contractions by tensor cores: every tile and every way that operands lie, in the simulator
against the reference; and what nvcc makes of the tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.kernels.cuda.contract.tiles.tensor_tiles import (
    LONG_TILES,
    SHORT_TILES,
    Operand,
    TensorTile,
    tensor_tiles,
)
from graphc.ops.base import Array
from tests.kernels.cuda_harness import build_device
from tests.sim.playing import fetch, packed, place, simulator
from tests.support.cuda_tensor import (
    APART,
    CASES,
    EPS,
    arrays,
    convolution,
    everything,
    of_products,
    often,
    played,
    prefer,
    products,
    results_of,
    transposed,
)
from tests.tools import need_command


@pytest.fixture(params=often(SHORT_TILES, 0, 5))
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TensorTile:
    """The tile that is taken wherever its threads can copy; else the smallest is."""
    prefer(request.param, "SHORT_TILES", SHORT_TILES, monkeypatch)
    return request.param  # type: ignore[no-any-return]


def assert_near(got: Array, want: Array, dtype: str, length: int) -> None:
    """Up to the rounding of `length` sums of float32, and of the results to `dtype`."""
    got, want = (np.asarray(x, np.float32) for x in (got, want))
    scale = float(np.abs(want).max())
    tolerance = (8 * np.sqrt(length) * EPS["float32"] + 2 * EPS[dtype]) * scale
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


FEW = [CASES[1], CASES[2], CASES[4]]


def some(*inputs: Any) -> Any:
    """The results of a few cases, each of inputs of its own."""
    return results_of(FEW, inputs)


def test_every_tile_is_right_for_ragged_products(tile: TensorTile):
    shapes = [s for _, _, given in CASES for s in given]
    program, got, wanted = played(everything, shapes, "bfloat16")
    taken = [str(tile) in k.source for k in program.plan.kernels.values()]
    assert sum(taken) >= 6
    for one, want in zip(got, wanted, strict=True):
        assert_near(one, want, "bfloat16", 1031)


SPLIT_TILES = tuple(t for t in LONG_TILES if t.tm * t.tn <= 32 * 32)
"""Those that take floats as sums of two parts."""


@pytest.mark.parametrize("tile", often(LONG_TILES, 0, 1, 2, 3))
def test_every_tile_is_right_for_tf32(tile: TensorTile, monkeypatch: pytest.MonkeyPatch):
    right_for_floats(tile, "tf32", monkeypatch)


@pytest.mark.parametrize("tile", often(SPLIT_TILES, 0))
def test_every_tile_is_right_for_three_products(tile: TensorTile, monkeypatch: pytest.MonkeyPatch):
    right_for_floats(tile, "float32x3", monkeypatch)


def right_for_floats(tile: TensorTile, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(tile, "LONG_TILES", LONG_TILES, monkeypatch)
    shapes = [s for _, _, given in FEW for s in given]
    program, got, wanted = played(some, shapes, "float32", precision=precision)
    assert sum(str(tile) in k.source for k in program.plan.kernels.values()) >= 3
    for one, want in zip(got, wanted, strict=True):
        assert_near(one, want, "float32", 3 * 1031)


def test_halves_are_multiplied_as_halves():
    program, got, wanted = played(products, of_products(37, 41, 53), "float16")
    assert all("element = half" in text for text in program.kernels.values())
    assert program.plan.notes == tuple(
        f"{name}: tensor cores, products of f16, 32 x 32 x 64" for name in program.kernels
    )
    for one, want in zip(got, wanted, strict=True):
        assert_near(one, want, "float16", 53)


def test_gates_meet_in_the_epilogue(tile: TensorTile):
    """Sections whose columns are a tile's, or do not fill it."""

    def gates(x: Any, w: Any) -> Any:
        i, f, o = graphc.split(graphc.matmul(x, transposed(w)), 19, axis=1)
        return graphc.sigmoid(i) * graphc.tanh(o) + f

    program, (got,), (want,) = played(gates, [(21, 40), (3 * 19, 40)], "bfloat16")
    (kernel,) = program.plan.kernels.values()
    assert "sections = 3" in kernel.source
    assert_near(got, want, "bfloat16", 40)


def test_parts_of_k_are_added_in_order():
    """The same bits for every number of streams."""
    results = []
    for streams in (1, 2, 4):
        specs = [graphc.spec(s, "bfloat16") for s in of_products(12, 9, 9001)]
        program = graphc.compile(products, *specs, device="sim", streams=streams, disable=APART)
        assert all(k.launches[0].grid[1] > 1 for k in program.plan.kernels.values())
        results.append(program(*arrays(of_products(12, 9, 9001), "bfloat16")))
    for others in results[1:]:
        for one, other in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_training_step_of_two_bytes_uses_them_forward_and_backward():
    model = nn.Sequential(nn.Linear(40, 24), nn.ReLU(), nn.Linear(24, 10)).to("bfloat16")
    program = graphc.compile(
        lambda m, x, y: graphc.cross_entropy(m(x), y),
        model,
        graphc.spec((24, 40), "bfloat16"),
        graphc.spec((24,), "int32"),
        update=optim.SGD(lr=0.1),
        device="cuda",
        streams=1,
        disable=APART,
    )
    contractions = [k for k in program.plan.kernels.values() if k.template == "contract"]
    assert len(contractions) == 5
    assert all("TensorCores<" in k.source for k in contractions)


def test_operands_of_two_dtypes_are_left_to_registers():
    def mixed(x: Any, w: Any) -> Any:
        return graphc.matmul(graphc.astype(x, "float32"), w)

    specs = graphc.spec((33, 20), "bfloat16"), graphc.spec((20, 12))
    program = graphc.compile(mixed, *specs, device="cuda", streams=1)
    assert program.plan.notes == ("matmul: no tensor cores: its operands are of bfloat and float",)


def test_a_tile_is_taken_where_its_threads_can_copy():
    lines, long = Operand(2, 1, True), Operand(2, 8, True)
    assert {(t.m, t.n) for t in tensor_tiles("bfloat", long, long)} == {
        (t.m, t.n) for t in SHORT_TILES
    }
    assert all(t.m <= 32 or t.threads > 64 for t in tensor_tiles("bfloat", lines, lines))
    assert (128, 128) not in {(t.m, t.n) for t in tensor_tiles("bfloat", lines, long)}


def test_half_a_step_is_unrolled_where_both_parts_and_borders_leave_no_registers_for_places():
    image, weight = Operand(4, 4, True, False, True), Operand(4, 4, False, True, False)
    tiles = {(t.m, t.n): t.unrolled for t in tensor_tiles("float", image, weight)}
    assert tiles[128, 64] == tiles[64, 128] == 16 and tiles[64, 64] == 0
    along_k = replace(weight, along_k=True)
    assert all(t.unrolled == 0 for t in tensor_tiles("float", image, along_k))
    assert all(t.unrolled == 0 for t in tensor_tiles("float", weight, weight))


LARGE = {
    "nn": (graphc.matmul, [(2048, 2048), (2048, 2048)]),
    "nt": (lambda a, b: graphc.matmul(a, transposed(b)), [(2048, 2048), (2048, 2048)]),
    "tn": (lambda a, b: graphc.matmul(transposed(a), b), [(4096, 4096), (4096, 4096)]),
    "conv": (convolution, [(32, 128, 28, 28), (128, 128, 3, 3), (128,)]),
    "odd": (products, of_products(2047, 2049, 2051)),
    "some": (lambda a, b: graphc.matmul(transposed(a), b), [(256, 512), (256, 512)]),
}
ASKED = [("bfloat16", "nn"), ("bfloat16", "conv"), ("tf32", "nt"), ("tf32", "conv")]
ASKED += [("tf32", "tn"), ("tf32", "some"), ("tf32", "odd"), ("float32x3", "nn")]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_tiles_of_tensor_cores_stay_in_registers(arch: str, tmp_path):
    kernels = []
    for precision, name in ASKED:
        fn, shapes = LARGE[name]
        specs = [graphc.spec(s) for s in shapes]
        plan = graphc.compile(fn, *specs, device="cuda", streams=1, precision=precision).plan
        made = [k for k in plan.kernels.values() if k.template == "contract"]
        own = f"{precision}_{name}"
        kernels += [
            replace(k, text=k.source.replace(k.name, f"{own}_{k.name}"), origin="") for k in made
        ]
    used = [line for k in kernels for line in k.source.splitlines() if "using Tile" in line]
    assert len(set(used)) > 2 and all("TensorCores" in line for line in used)
    usage = build_device(kernels, tmp_path, need_command("nvcc"), arch)
    assert len(usage) >= len(ASKED)
    assert all(u.spilled == 0 for u in usage.values()), usage


PLACES = """
#include "cuda/contract/tiles/tensor.cuh"
template <class T, bool AlongK> struct Access {
  using element = T;
  static constexpr bool along_k = AlongK;
};
template <class T, bool AlongK, int Outer, int BK>
__device__ void tell(int* y) {
  using Tile = graphc::SwizzledTile<Access<T, AlongK>, Outer, BK>;
  for (int i = threadIdx.x; i < Outer * BK; i += 32) y[i] = Tile::at(i / BK, i % BK) * sizeof(T);
}
"""
TOLD = """
extern "C" __global__ void tile_%d(int* y) { tell<%s, %s, %d, %d>(y); }
"""
LAID = [
    (element, along_k, outer, k)
    for element, k, some in (("graphc::half", 64, ()), ("float", 32, (96, 192)))
    for along_k in (True, False)
    for outer in (32, 64, 128, *some)
]
LANES = np.arange(32)
GROUP, PLACE = LANES // 4, LANES % 4


def reads(element: str, along_k: bool) -> list[tuple[Array, Array, int]]:
    """Outer, k and bytes of what the lanes read together: at most 128 bytes."""
    eight, quad = np.arange(8), 8 if element == "graphc::half" else 4
    if along_k:
        return [(eight, np.full(8, c * quad), 16) for c in range(8)]
    if quad == 8:
        return [(np.full(8, c * quad), eight, 16) for c in range(4)]
    halves = [(GROUP[h] * 2, PLACE[h], 8) for h in (slice(0, 16), slice(16, 32))]
    return [*halves, (GROUP, PLACE, 4), (GROUP + 8, PLACE + 4, 4)]


def test_no_two_lanes_read_the_same_bank():
    device = simulator(check=False)
    words = {True: "true", False: "false"}
    told = [TOLD % (i, e, words[a], o, k) for i, (e, a, o, k) in enumerate(LAID)]
    module = device.module_from_buffer(device.compile("".join([PLACES, *told]), "places"))
    for i, (element, along_k, outer, k) in enumerate(LAID):
        places, stream = place(device, np.empty(outer * k, np.int32)), device.Stream(1)
        function = module.get_function(f"tile_{i}")
        function._launch_kernel((1, 1, 1), (32, 1, 1), packed(places), 0, stream)
        stream.synchronize()
        at = fetch(device, places, np.empty((outer, k), np.int32))
        assert len(np.unique(at)) == outer * k
        for rows, depths, size in reads(element, along_k):
            banks = (at[rows, depths][:, None] // 4 + np.arange(size // 4)) % 32
            assert len(np.unique(banks)) == banks.size, (element, along_k, outer)
