"""Sorting on the CPU: all shapes of rows and axis, every vector width, special values, views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from graphc.base.target import Target
from graphc.ir import Type, Value
from graphc.ir.interpret import evaluate
from graphc.kernels.lower import lower
from graphc.ops import Sort
from tests.kernels import cuda_harness
from tests.kernels.harness import Built, build, single, traced
from tests.ops.samples_order import ORDERS
from tests.sim.playing import Played, simulator

SAMPLES = [s for s in ORDERS if isinstance(s.op, Sort)]


@pytest.fixture(scope="module")
def samples() -> list[Built]:
    return build([single(s.op, s.inputs, "sort") for s in SAMPLES])


@pytest.mark.parametrize("which", range(len(SAMPLES)), ids=lambda i: f"{SAMPLES[i]} {i}")
def test_sorted_elements_and_their_places_equal_their_reference(
    samples: list[Built], which: int
) -> None:
    sample, built = SAMPLES[which], samples[which]
    arrays = sample.arrays()
    assert built.kernel.template == "sort"
    for got, want in zip(built.run(arrays), sample.op.reference(*arrays), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("lanes", [4, 8])
def test_narrow_vectors_sort_alike(lanes: int) -> None:
    some = SAMPLES[::3]
    built = build([single(s.op, s.inputs, "sort") for s in some], Target("cpu", lanes))
    for sample, kernel in zip(some, built, strict=True):
        arrays = sample.arrays()
        for got, want in zip(kernel.run(arrays), sample.op.reference(*arrays), strict=True):
            np.testing.assert_array_equal(got, want)


SHAPES = [((40, 9), 1), ((9, 40), 0), ((3, 700), 1), ((700, 3), 0), ((2, 5000), 1), ((400, 70), 0)]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_nan_infinities_and_zeros_of_both_signs_have_their_places(
    shape: tuple[int, ...], axis: int, dtype: str
) -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, -1.0, 1e-45, -1e-45]
    random = np.random.default_rng(0)
    x = random.choice(special, shape).astype(Type(shape, dtype).numpy_dtype)
    ops = [Sort(axis, shape[axis], d) for d in (False, True)] + [Sort(axis, 2, True)]
    for op, built in zip(ops, build([single(o, [Type(shape, dtype)]) for o in ops]), strict=True):
        values, places = built.run([x])
        expected, expected_places = op.reference(x)
        np.testing.assert_array_equal(places, expected_places)
        np.testing.assert_array_equal(values, expected)
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(values[zero]), np.signbit(expected[zero]))


VIEWS: dict[str, tuple[Callable[..., Any], Type]] = {
    "backwards": (lambda x: f.sort(f.flip(x, 1), 1), Type((3, 37))),
    "every second": (lambda x: f.argsort(x[:, ::2], 1), Type((35, 71))),
    "transposed": (lambda x: f.sort(x.T, 1), Type((37, 21))),
    "broadcast": (lambda x: f.topk(f.broadcast_to(x, (20, 7)), 2, 0)[1], Type((7,))),
    "of places": (lambda x: f.sort(f.arange(40), 0, descending=True), Type(())),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_sort_reads_its_input_through_views(name: str) -> None:
    function, type = VIEWS[name]
    (built,) = build([traced("viewed", function, [type])])
    x = np.random.default_rng(0).integers(0, 9, type.shape).astype(np.float32)
    expected, _ = evaluate(built.node.op.body, [x])  # type: ignore[attr-defined]
    for got, want in zip(built.run([x]), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("count", [9, 700])
def test_long_rows_that_are_neighbours_in_memory_are_read_together(count: int) -> None:
    x = np.random.default_rng(0).normal(size=(700, 75)).astype(np.float32)
    (built,) = build([single(Sort(0, count), [Type(x.shape)], "sort")])
    assert "sort_apart<" in built.kernel.source
    for got, want in zip(built.run([x]), Sort(0, count).reference(x), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_many_short_rows_are_cut_into_chunks_and_few_are_not(lanes: int) -> None:
    few, many = (single(Sort(0, 16), [Type((16, n * lanes))]) for n in (8, 4096))
    assert lower(few, Target("cpu", lanes)).phases == (1,)
    assert lower(many, Target("cpu", lanes)).phases[0] > 64


@pytest.mark.parametrize("kind", ["ascending", "descending", "equal", "nan"])
def test_a_selection_of_few_from_many_meets_its_worst_cases(kind: str) -> None:
    n = 20000
    ramp = np.arange(n, dtype=np.float32)
    x = {"ascending": ramp, "descending": -ramp, "equal": 0 * ramp, "nan": ramp * np.nan}[kind]
    for op in (Sort(0, 300), Sort(0, 300, True), Sort(0, 1)):
        (built,) = build([single(op, [Type((n,))], "select")])
        assert built.kernel.workspace < 8 * n
        for got, want in zip(built.run([x]), op.reference(x), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("dtype", "extent"), [("f32", 5000), ("f64", 2600)])
def test_a_gpu_merges_the_runs_of_any_number_of_tiles(dtype: str, extent: int) -> None:
    """Three tiles: the third run is merged with none, whole or as the few that are kept; and five,
    of which the last is alone twice."""
    x = np.random.default_rng(0).integers(-99, 99, (2, extent))
    some = {"all": (extent, extent), "few": (extent, 300), "most": (extent, extent * 3 // 4)}
    some["five"] = (extent * 8 // 5, extent * 8 // 5)
    for name, (length, count) in some.items():
        rows = np.resize(x, (2, length)).astype(Type((), dtype).numpy_dtype)
        op = Sort(1, count, name == "few")
        node = cuda_harness.single(op, [Value("x", Type(rows.shape, dtype))], f"sort_{name}")
        got = Played(simulator(check=True), [node]).run(node, [rows])
        for a, b in zip(got, op.reference(rows), strict=True):
            np.testing.assert_array_equal(a, b)


def test_an_entry_of_two_words_moves_as_one_behind_those_of_one_word() -> None:
    types = [Type((1,)), Type((4, 9), "f64"), Type((1,)), Type((4, 9), "i64")]
    nodes = [
        cuda_harness.single(Sort(t.rank - 1, t.shape[-1], True), [Value("x", t)], f"sort{i}")
        for i, t in enumerate(types)
    ]
    played = Played(simulator(check=True), nodes)
    for node, type in zip(nodes, types, strict=True):
        x = np.random.default_rng(0).normal(size=type.shape).astype(type.numpy_dtype)
        for got, want in zip(played.run(node, [x]), node.op.reference(x), strict=True):
            np.testing.assert_array_equal(got, want)
