"""Squared deviations from a mean in the pass that sums for the mean: where, and how exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.kernels.cuda.reduce import reduce
from graphc.kernels.cuda.reduce.one_pass_variance import in_one_pass
from graphc.kernels.lower import lower
from graphc.ops.fused import Fused
from graphc.runtime.sim.native import BACKWARD, FORWARD
from tests.kernels.cuda_harness import TARGET, arrays_of, traced
from tests.sim.playing import Played, simulator
from tests.tools import need_command

ROWS, COLUMNS = 5000, 12


def spec(*shape: int, dtype: str = "float32") -> Any:
    return graphc.spec(shape, dtype)


def statistics(x: Any) -> Any:
    mean = graphc.mean(x, axis=0)
    return mean, graphc.sum(graphc.square(x - mean), axis=0)


def kept(x: Any) -> Any:
    mean = graphc.mean(x, axis=(0, 2), keepdims=True)
    centred = x - mean
    return centred * graphc.mean(centred * centred, axis=(0, 2), keepdims=True)


def along_rows(x: Any) -> Any:
    """A mean of rows that happens to broadcast along columns."""
    return graphc.sum(graphc.square(x - graphc.mean(x, axis=1)), axis=1)


def of_another(x: Any, y: Any) -> Any:
    return graphc.sum(graphc.square(x - graphc.mean(y, axis=0)), axis=0)


def from_twice(x: Any) -> Any:
    return graphc.sum(graphc.square(x - graphc.mean(x, axis=0) * 2), axis=0)


def of_products(x: Any) -> Any:
    centred = x - graphc.mean(x, axis=0)
    return graphc.sum(centred * x, axis=0)


def body_of(function: Any, *specs: Any) -> Any:
    op = traced("body", function, *specs).op
    assert isinstance(op, Fused)
    return op.body


@pytest.mark.parametrize(
    ("function", "shapes"),
    [(statistics, [(ROWS, COLUMNS)]), (kept, [(40, COLUMNS, 50)])],
)
def test_sums_of_squared_deviations_need_no_sum_before_them(function: Any, shapes: Any):
    body = body_of(function, *(spec(*s) for s in shapes))
    moved = in_one_pass(body)
    assert moved is not body
    assert (moved.inputs, moved.outputs) == (body.inputs, body.outputs)
    sums = [n for n in moved.nodes if n.op.name in ("sum", "deviations")]
    reached = {*moved.inputs}
    for node in moved.nodes:
        if node not in sums and reached.issuperset(node.inputs):
            reached.update(node.outputs)
    assert sorted(n.op.name for n in sums) == ["deviations", "sum"]
    assert reached.issuperset(v for n in sums for v in n.inputs)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (along_rows, [(12, 12)]),
        (of_another, [(ROWS, COLUMNS)] * 2),
        (from_twice, [(ROWS, COLUMNS)]),
        (of_products, [(ROWS, COLUMNS)]),
    ],
)
def test_other_sums_are_left_alone(function: Any, shapes: Any):
    body = body_of(function, *(spec(*s) for s in shapes))
    assert in_one_pass(body) is body


def test_rows_that_are_held_stay_as_they_are():
    def normalised(x: Any) -> Any:
        centred = x - graphc.mean(x, axis=1, keepdims=True)
        return graphc.mean(centred * centred, axis=1)

    held = lower(traced("held", normalised, spec(64, 256)), TARGET)
    assert held.source.count("rows.reduce<") == 2


def batch_normalised(x: Any, scale: Any, dy: Any) -> Any:
    centred = x - graphc.mean(x, axis=0)
    root = graphc.rsqrt(graphc.mean(centred * centred, axis=0) + 1e-3)
    return centred * root * scale, dy * graphc.sum(dy * centred, axis=0)


@pytest.mark.parametrize(
    ("rows", "own", "shared"),
    [(1600, 8, 0), (1600, 2, 5), (1537, 2, 5), (1600, 2, 4), (1537, 3, 3)],
)
def test_columns_are_kept_in_registers_and_shared_memory_or_read_again(
    rows: int, own: int, shared: int, monkeypatch: Any
):
    need_command("g++", "clang++")
    monkeypatch.setattr(reduce, "FEW_BLOCKS", 1)
    monkeypatch.setattr(reduce, "KEPT_BYTES", own * 32)
    monkeypatch.setattr(reduce, "KEPT_SHARED", shared * 32 * 512)
    specs = spec(rows, 20), spec(20), spec(rows, 20)
    node = traced(f"kept_{rows}_{own}_{shared}", batch_normalised, *specs)
    kernel = lower(node, TARGET)
    assert f"Held<Loads, {min(own, 7)}, {shared}, " in kernel.source
    (launch,) = kernel.launches
    assert launch.shared_bytes == shared * 32 * 512
    arrays = arrays_of(node)
    played = Played(simulator(check=True), [node])
    ahead, back = (played.run(node, arrays, order) for order in (FORWARD, BACKWARD))
    for got, other, want in zip(ahead, back, node.op.reference(*arrays), strict=True):
        np.testing.assert_array_equal(got, other)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def normalised_back(x: Any, scale: Any, dy: Any) -> Any:
    """The gradients of a batch norm in training for x, the scale and the shift."""
    centred = x - graphc.mean(x, axis=0)
    root = graphc.rsqrt(graphc.mean(graphc.square(centred), axis=0) + 1e-3)
    normal, inner = centred * root, dy * scale * root
    along = graphc.mean(inner * normal, axis=0)
    dx = inner - graphc.mean(inner, axis=0) - normal * along
    return dx, graphc.sum(dy * normal, axis=0), graphc.sum(dy, axis=0)


def test_columns_are_kept_though_deviations_in_one_pass_would_leave_no_room(monkeypatch: Any):
    need_command("g++", "clang++")
    specs = spec(4096, 1024), spec(1024), spec(4096, 1024)
    kernel = lower(traced("of_4096", normalised_back, *specs), TARGET)
    assert len(kernel.launches) == 1 and "Held<" in kernel.source
    monkeypatch.setattr(reduce, "FEW_BLOCKS", 1)
    node = traced("of_1600", normalised_back, spec(1600, 20), spec(20), spec(1600, 20))
    kernel = lower(node, TARGET)
    assert len(kernel.launches) == 1 and "Held<" in kernel.source
    arrays = arrays_of(node)
    played = Played(simulator(check=True), [node])
    for got, want in zip(played.run(node, arrays), node.op.reference(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_what_a_block_keeps_of_its_columns_is_bounded():
    for rows, channels, kept in ((4096, 1024, True), (40960, 1024, False), (1568, 256, True)):
        specs = spec(rows, channels), spec(channels), spec(rows, channels)
        kernel = lower(traced(f"of_{rows}", batch_normalised, *specs), TARGET)
        assert ("Held<" in kernel.source) == kept
        assert all(launch.shared_bytes <= 80 << 10 for launch in kernel.launches)


def normal(mean: float, deviation: float) -> Any:
    numbers = np.random.default_rng(5).normal(mean, deviation, (ROWS, COLUMNS))
    return numbers.astype(np.float32)


def with_first(value: float) -> Any:
    numbers = normal(0, 1)
    numbers[0] = value
    return numbers


CASES = {
    "far from zero": (normal(1e4, 1), 1e-5),
    "far from one another": (normal(0, 1e6), 1e-5),
    "alike": (np.full((ROWS, COLUMNS), 0.1, np.float32), 0),
    "the first far from the others": (with_first(1e5), 8 * ROWS * 2**-24),
}


@pytest.mark.parametrize("name", CASES)
def test_the_spread_is_as_exact_as_it_says(name: str):
    need_command("g++", "clang++")
    numbers, tolerance = CASES[name]
    node = traced("statistics", statistics, spec(ROWS, COLUMNS))
    assert len(lower(node, TARGET).launches) == 2
    _, spread = Played(simulator(check=True), [node]).run(node, [numbers], FORWARD)
    exact = np.square(numbers - numbers.mean(0, dtype=np.float64)).sum(0)
    if tolerance:
        np.testing.assert_allclose(spread, exact, rtol=tolerance)
    else:
        np.testing.assert_array_equal(spread, 0)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 17])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_not_finite_stays_what_it_is(special: float, row: int):
    need_command("g++", "clang++")
    numbers = normal(0, 1)
    numbers[row, 3] = special
    node = traced("statistics", statistics, spec(ROWS, COLUMNS))
    got = Played(simulator(check=True), [node]).run(node, [numbers], FORWARD)
    for own, want in zip(got, node.op.reference(numbers), strict=True):
        np.testing.assert_allclose(own, want, rtol=1e-3, atol=1e-2)
