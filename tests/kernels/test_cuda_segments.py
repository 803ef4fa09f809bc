"""The gradient of a gather on CUDA: few indices are scanned, many are sorted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.ir import Type, Value
from graphc.kernels.cuda.index.index import SCANNED
from graphc.kernels.cuda.index.segments import TILE
from graphc.kernels.lower import lower
from graphc.ops.fused import Fused
from graphc.ops.indexing import TakeGrad
from graphc.runtime.sim.native import BACKWARD, FORWARD
from graphc.trace import emit
from tests.kernels.cuda_harness import TARGET, build_device, single, traced
from tests.sim.playing import Played, simulator
from tests.tools import first_quick, need_command


def gather(
    name: str,
    indices: tuple[int, ...],
    extent: int,
    after: tuple[int, ...] = (),
    before: tuple[int, ...] = (),
    dtype: str = "f32",
    places: str = "i32",
) -> Any:
    inputs = (
        Value("indices", Type(indices, places)),
        Value("dy", Type((*before, *indices, *after), dtype)),
    )
    return single(TakeGrad(len(before), extent), inputs, name)


def of_columns(indices: Any, dy: Any) -> Any:
    """Elements that do not lie as they are added."""
    return emit(TakeGrad(0, 5000), indices, graphc.permute_dims(dy, (1, 0)))


def of_products(indices: Any, dy: Any) -> Any:
    """Every second index, and elements that are no more than broadcast."""
    return emit(TakeGrad(0, 9000), indices[::2], graphc.broadcast_to(dy, (1024, 8)))


SORTED = [
    gather("one_tile", (TILE,), 9000),
    gather("part_of_a_tile", (TILE - 7,), 9000, (3,)),
    gather("two_tiles", (TILE + 1,), 8500, (64,)),
    gather("three_tiles", (3 * TILE - 5,), 3000, (8,)),
    gather("five_tiles", (5, TILE), 1700, (4,)),
    gather("wide", (1300,), 1000, (4, 68)),
    gather("odd", (1300,), 1000, (217,)),
    gather("strips", (1100,), 120, (2100,)),
    gather("before", (2, 600), 2400, (8,), (3,)),
    gather("places", (4000,), 2500, (4,), places="i64"),
    gather("doubles", (1400,), 6500, (12,), dtype="f64"),
    gather("integers", (1400,), 6500, (5,), dtype="i64"),
    traced("of_columns", of_columns, graphc.spec((1800,), "int32"), graphc.spec((8, 1800))),
    traced("of_products", of_products, graphc.spec((2048,), "int32"), graphc.spec((8,))),
]
SCANS = [
    gather("few", (100,), 60, (40,)),
    gather("least", (1024,), SCANNED // 1024),
    gather("none", (0,), 60, (40,)),
]
NODES = [*SORTED, *SCANS]


def name_of(node: Any) -> str:
    assert isinstance(node.op, Fused)
    return node.op.kernel


def arrays_for(node: Any, seed: int) -> list[Any]:
    """Indices of which a third is one, some are out of range, and numbers."""
    random = np.random.default_rng(seed)
    indices, dy = node.inputs
    extent = max(v.type.shape[node.op.body.nodes[-1].op.axis] for v in node.outputs)
    places = random.integers(-3, extent + 3, indices.type.shape)
    places[random.random(places.shape) < 0.3] = extent // 2
    if seed == 2:
        places[...] = extent + 1
    numbers = 4 * random.standard_normal(dy.type.shape)
    return [places.astype(indices.type.numpy_dtype), numbers.astype(dy.type.numpy_dtype)]


@pytest.mark.parametrize("seed", first_quick(2, [0, 2, 1]))
def test_sums_are_those_of_ascending_order_in_any_order_of_threads(seed: int):
    need_command("g++", "clang++")
    played = Played(simulator(check=True), NODES)
    for node in NODES:
        arrays = arrays_for(node, seed)
        ahead, back = (played.run(node, arrays, order) for order in (FORWARD, BACKWARD))
        (want,) = node.op.reference(*arrays)
        np.testing.assert_array_equal(ahead[0], want, err_msg=name_of(node))
        np.testing.assert_array_equal(ahead[0], back[0])


def test_many_indices_are_sorted_in_tiles_that_are_merged():
    for node in SORTED:
        kernel, count = lower(node, TARGET), node.inputs[0].type.size
        tiles = -(-(count if "products" not in name_of(node) else 1024) // TILE)
        assert len(kernel.launches) == 2 + (tiles - 1).bit_length()
        assert kernel.launches[0].grid == (tiles, 1, 1)
    for node in SCANS:
        assert len(lower(node, TARGET).launches) == 1


def test_whole_aligned_rows_are_added_and_stored_in_runs():
    runs = {name_of(n) for n in SORTED if ", 4, " in settings_of(n)[:12]}
    assert runs == {
        "two_tiles",
        "three_tiles",
        "five_tiles",
        "wide",
        "strips",
        "before",
        "places",
        "doubles",
        "of_products",
    }


def settings_of(node: Any) -> str:
    return lower(node, TARGET).source.partition("add_segments<")[2]


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_nvcc_takes_them_and_spills_nothing(arch: str, tmp_path: Any):
    usage = build_device([lower(n, TARGET) for n in NODES], tmp_path, need_command("nvcc"), arch)
    assert usage
    assert {symbol for symbol, u in usage.items() if u.spilled} == set()
