"""GRAPHC_CHECK=bounds: indices and labels out of range are found before the call that uses them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError

LINE = r"\(test_bounds\.py:\d+\)"


@pytest.fixture(autouse=True)
def check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_CHECK", "bounds")


def program(fn: Callable[..., Any], *arrays: Any, device: str = "reference") -> Any:
    specs = (graphc.spec(a.shape, a.dtype) for a in arrays)
    return graphc.compile(fn, *specs, device=device)


X = np.arange(12, dtype=np.float32).reshape(3, 4)
# fmt: off
CASES: list[tuple[Callable[..., Any], Any, Any, str]] = [
    (lambda x, i: graphc.take(x, i, axis=1), [0, 3], [0, 4],
     "take: expected 0 to 3, got 4 at [1]"),
    (lambda x, i: graphc.take(x, i, axis=0), 2, -1, "take: expected 0 to 2, got -1"),
    (lambda x, i: graphc.embedding(i, x), [[2], [0]], [[2], [7]],
     "embedding: expected 0 to 2, got 7 at [1, 0]"),
    (lambda x, i: graphc.take_along_axis(x, i, axis=1), [[0], [1], [3]], [[0], [9], [4]],
     "take_along_axis: expected 0 to 3, got 9 at [1, 0]"),
    (lambda x, i: graphc.gather(x, 0, i), [[2, 2]], [[2, 3]],
     "gather: expected 0 to 2, got 3 at [0, 1]"),
    (lambda x, i: graphc.scatter_add(x, 0, i, x[:1, :2]), [[2, 2]], [[-3, 3]],
     "scatter_add: expected 0 to 2, got -3 at [0, 0]"),
    (lambda x, i: graphc.index_add(x, 0, i, x[:1]), [1], [3],
     "index_add: expected 0 to 2, got 3 at [0]"),
    (lambda x, i: graphc.one_hot(i, 5), [4], [5], "one_hot: expected 0 to 4, got 5 at [0]"),
    (lambda x, i: graphc.bincount(i, minlength=2), [1], [2],
     "bincount: expected 0 to 1, got 2 at [0]"),
    (lambda x, i: graphc.cross_entropy(x, i), [0, -100, 3], [0, -100, 4],
     "cross_entropy: expected 0 to 3 or -100, got 4 at [2]"),
    (lambda x, i: graphc.nll_loss(x, i, ignore_index=None), [0, 1, 3], [0, -100, 3],
     "nll_loss: expected 0 to 3, got -100 at [1]"),
    (lambda x, i: graphc.multi_margin_loss(x, i), [0, 1, 3], [0, 1, 4],
     "multi_margin_loss: expected 0 to 3, got 4 at [2]"),
    # Indices that are computed, and those that the functions themselves leave out.
    (lambda x, i: graphc.take(x, graphc.argmax(x * i, axis=1) + i, axis=1), [0], [1],
     "take: expected 0 to 3, got 4 at [0]"),
    (lambda x, i: graphc.index_copy(x, 0, i, x[:1]), [1], [5],
     "index_copy: expected 0 to 2, got 5 at [0]"),
]
# fmt: on


@pytest.mark.parametrize(("fn", "good", "bad", "message"), CASES, ids=[m for *_, m in CASES])
def test_what_is_out_of_range_is_named_with_its_value_place_range_and_line(
    fn: Callable[..., Any], good: Any, bad: Any, message: str
) -> None:
    good, bad = np.array(good, np.int32), np.array(bad, np.int32)
    compiled = program(fn, X, good)
    compiled(X, good)
    with pytest.raises(GraphError, match=f"^{re.escape(message)} {LINE}$"):
        compiled(X, bad)


@pytest.mark.parametrize("device", ["cpu", "sim", "reference"])
def test_a_training_step_with_a_wrong_label_changes_nothing(device: str) -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 4))

    def loss(model: Any, x: Any, y: Any) -> Any:
        return graphc.cross_entropy(model(x), y)

    specs = graphc.spec((6,), "int64"), graphc.spec((6,), "int32")
    step = graphc.compile(loss, model, *specs, update=optim.SGD(lr=0.1), device=device)
    x, y = np.arange(6) % 5, np.arange(6, dtype=np.int32) % 4
    step(x, y)
    before = model.state_dict()
    for wrong, message in (
        ((x + 1, y), "embedding: expected 0 to 4, got 5 at [4]"),
        ((x, y + 1), "cross_entropy: expected 0 to 3 or -100, got 4 at [3]"),
    ):
        with pytest.raises(GraphError, match=f"^{re.escape(message)} {LINE}$"):
            step(*wrong)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    assert np.isfinite(step(x, y))


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_indices_inside_loops_are_found_with_their_iterations(device: str) -> None:
    def fn(table: Any, indices: Any) -> Any:
        def step(carry: Any, i: Any) -> Any:
            def inner(total: Any, j: Any) -> Any:
                return total + graphc.take(table, i + j, axis=0), None

            carry, _ = graphc.scan(inner, carry, graphc.arange(2))
            return carry, graphc.take(carry, i, axis=0)

        return graphc.scan(step, graphc.zeros(4), indices)

    good, bad = np.array([0, 1, 1]), np.array([0, 1, 2])
    compiled = program(fn, X, good, device=device)
    last, stack = compiled(X, good)
    assert last.shape == (4,) and stack.shape == (3,)
    message = "take: expected 0 to 2, got 3 at [2, 1]"
    with pytest.raises(GraphError, match=f"^{re.escape(message)} {LINE}$"):
        compiled(X, bad)


def test_places_that_functions_mark_as_none_are_no_mistake() -> None:
    def fn(x: Any) -> Any:
        grid = graphc.reshape(x, (1, 3, 2, 2)) * 2
        image = graphc.reshape(x, (1, 1, 3, 4))
        return graphc.grid_sample(image, grid), graphc.histc(x, 3, 1.0, 5.0)

    program(fn, X)(X)


def test_off_by_default_out_of_range_gives_what_the_functions_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GRAPHC_CHECK")
    i = np.array([3, -1, 1], np.int32)

    def fn(x: Any, i: Any) -> Any:
        return (
            graphc.take(x, i, axis=0),
            graphc.one_hot(i, 3),
            graphc.index_add(x, 0, i, x),
            graphc.cross_entropy(graphc.zeros((3, 3)), i, reduction="none"),
        )

    for device in ("cpu", "sim", "reference"):
        rows, hot, added, loss = program(fn, X, i, device=device)(X, i)
        np.testing.assert_array_equal(rows, [[0] * 4, [0] * 4, X[1]])
        np.testing.assert_array_equal(hot, [[0, 0, 0], [0, 0, 0], [0, 1, 0]])
        np.testing.assert_array_equal(added, X + [[0], [1], [0]] * X[2])
        np.testing.assert_allclose(loss, np.log(3), rtol=1e-6)


def test_arrays_that_lie_elsewhere_are_refused() -> None:
    from graphc.runtime.checks.bounds import BoundsCheck
    from graphc.trace import Builder

    message = "GRAPHC_CHECK=bounds: expected arrays on the host, got some elsewhere"
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        BoundsCheck(Builder("empty"))([object()])  # type: ignore[list-item]
