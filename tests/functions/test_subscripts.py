"""Subscripts by tensors, arrays, lists and masks, against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from tests.functions.comparison import Case, compare, normal
from tests.functions.failing import Failure
from tests.tools import need_module


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


CUBE, MATRIX = normal(3, 4, 5), normal(4, 5)
ROWS, COLUMNS = np.array([2, 0, -1, 0]), np.array([[1, -5], [0, 4]])
FLAGS = np.array([True, False, True])

Key = Callable[..., Any]
TRACED: dict[str, tuple[Key, tuple[np.ndarray, ...]]] = {
    "x[i]": (lambda i: i, (ROWS,)),
    "x[j], j of two axes": (lambda i: i, (COLUMNS % 3,)),
    "x[:, i]": (lambda i: (slice(None), i), (ROWS,)),
    "x[..., i]": (lambda i: (..., i), (COLUMNS,)),
    "x[i, k]": (lambda i, k: (i, k), (ROWS, ROWS)),
    "x[:, i, k]": (lambda i, k: (slice(None), i, k), (ROWS, ROWS)),
    "x[i, :, k]": (lambda i, k: (i, slice(None), k), (ROWS, ROWS)),
    "x[i, 1:, None, k]": (lambda i, k: (i, slice(1, None), None, k), (ROWS, ROWS)),
    "x[1, :, i]": (lambda i: (1, slice(None), i), (ROWS,)),
    "x[i, 1, j]": (lambda i, j: (i, 1, j), (ROWS[:2], COLUMNS)),
    "x[i, j], broadcast": (lambda i, j: (i, j), (ROWS[:3, None], ROWS[None])),
    "x[::2, i]": (lambda i: (slice(None, None, 2), i), (ROWS.astype(np.int32),)),
    "x[i] of no axes": (lambda i: i, (np.array(-1),)),
    "x[i, k, j]": (lambda i, k, j: (i, k, j), (ROWS, ROWS, ROWS)),
}
KNOWN: dict[str, Any] = {
    "a list": [2, 0, -1],
    "lists": ([0, 2, 2], [1, -1, 0]),
    "an array behind a slice": (slice(1, None), COLUMNS % 4),
    "a mask": FLAGS,
    "a list of booleans": [True, False, True],
    "a mask of two axes": CUBE[..., 0] > 0,
    "a mask of everything": CUBE > 0,
    "a mask and an integer": (FLAGS, 1),
    "a mask behind a slice": (slice(None), np.array([True, False, False, True])),
    "a mask and places": (FLAGS, [3, 1]),
    "a mask that selects nothing": ~FLAGS & FLAGS,
}


@pytest.mark.parametrize("name", TRACED)
def test_tensors_take_what_those_of_pytorch_take(torch: ModuleType, name: str) -> None:
    key, indices = TRACED[name]

    def ours(x: Any, *given: Any) -> Any:
        return x[key(*given)]

    def theirs(_: ModuleType, x: Any, *given: Any) -> Any:
        return x[key(*(i.long() for i in given))]

    compare(torch, Case(name, ours, theirs, (CUBE, *indices)))


@pytest.mark.parametrize("name", KNOWN)
def test_arrays_lists_and_masks_take_what_they_take_in_numpy(name: str) -> None:
    key, x = KNOWN[name], CUBE.astype(np.float32)
    program = graphc.compile(lambda x: x[key], graphc.spec(x.shape), device="reference")
    np.testing.assert_array_equal(program(x), x[key])


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_a_loss_that_picks_the_labels_scores_trains_on_devices(device: str) -> None:
    def loss(x: Any, y: Any) -> Any:
        return -graphc.mean(graphc.log_softmax(x)[graphc.arange(x.shape[0]), y])

    x, y = MATRIX.astype(np.float32), np.array([1, 4, 0, -1])
    specs = graphc.spec(x.shape), graphc.spec(y.shape, "int64")
    program = graphc.compile(graphc.value_and_grad(loss), *specs, device=device)
    value, slope = program(x, y)
    scores = np.exp(x - x.max(1, keepdims=True))
    scores /= scores.sum(1, keepdims=True)
    np.testing.assert_allclose(value, -np.mean(np.log(scores[np.arange(4), y])), rtol=1e-5)
    scores[np.arange(4), y] -= 1
    np.testing.assert_allclose(slope, scores / 4, rtol=1e-4, atol=1e-6)


def test_a_place_out_of_range_of_one_axis_is_not_one_of_another_row() -> None:
    program = graphc.compile(
        lambda x, i, j: x[i, j],
        graphc.spec(MATRIX.shape),
        graphc.spec(3, "int64"),
        graphc.spec(3, "int64"),
        device="reference",
    )
    got = program(MATRIX.astype(np.float32), np.array([0, 4, 1]), np.array([7, 0, -6]))
    np.testing.assert_array_equal(got, 0)


MISTAKES = (
    Failure(
        "x[mask]: how many elements the mask bool[2,3] selects is not known when the function is "
        "traced; graphc.where(mask, x, 0) keeps the shape",
        lambda x: x[x > 0],
        ("f32[2,3]",),
    ),
    Failure("a subscript expected integers, got f32[2,3]", lambda x: x[x], ("f32[2,3]",)),
    Failure(
        'a subscript expected integers, got u8[2] (a mask in PyTorch: use .astype("int64"))',
        lambda x, i: x[i],
        ("f32[2,3]", "u8[2]"),
    ),
    Failure(
        "subscript 5 is out of range for axis 1 of f32[2,3]",
        lambda x: x[:, [0, 5]],
        ("f32[2,3]",),
    ),
    Failure(
        "subscripts of shapes [2] and [3] do not broadcast",
        lambda x: x[[0, 1], [0, 1, 2]],
        ("f32[2,3]",),
    ),
    Failure(
        "a mask of extent 3 does not fit axis 0 of f32[2,3]",
        lambda x: x[[True, False, False]],
        ("f32[2,3]",),
    ),
    Failure("3 subscripts for f32[2,3] of 2 axes", lambda x, i: x[i, i, 0], ("f32[2,3]", "i64[2]")),
)


@pytest.mark.parametrize("failure", MISTAKES, ids=str)
def test_a_subscript_that_is_none_is_named(failure: Failure) -> None:
    failure.check()


def pair_of(name: str) -> str:
    return (
        f"{name} gives the values alone, which PyTorch gives with their places: graphc.arg{name} "
        "gives the places, and graphc.take(values, i, 0) an element of the values"
    )


def unpacked(x: Any) -> Any:
    values, _ = x.max(1)
    return values


PAIRS = (
    Failure(pair_of("max"), lambda x: x.max(1)[0], ("f32[2,3]",)),
    Failure(pair_of("max"), lambda x: f.max(x, axis=0)[1], ("f32[2,3]",)),
    Failure(pair_of("max"), lambda x: f.max(x > 0, 1)[0], ("f32[2,3]",)),
    Failure(pair_of("min"), lambda x: x.min(-1)[0], ("f32[2,3]",)),
    Failure(pair_of("sort"), lambda x: f.sort(x)[0], ("f32[2,3]",)),
    Failure(pair_of("sort"), lambda x: [*f.sort(x, 1)], ("f32[2,3]",)),
)


@pytest.mark.parametrize("failure", PAIRS, ids=str)
def test_values_are_not_taken_for_a_pair_of_values_and_places(failure: Failure) -> None:
    failure.check()


def test_unpacking_two_maxima_is_not_taken_for_values_and_places() -> None:
    with pytest.raises(graphc.GraphError, match="max gives the values alone"):
        graphc.trace(unpacked, graphc.spec((2, 3)))


def test_what_is_made_of_the_values_is_an_ordinary_tensor() -> None:
    def fn(x: Any) -> Any:
        largest = f.max(x, 1)
        return largest[:2], largest[..., 0], f.take(largest, 1, 0), (largest * 2)[0], x.max((0,))[0]

    graph = graphc.trace(fn, graphc.spec((3, 4)))
    assert [v.type.shape for v in graph.outputs] == [(2,), (), (), (), ()]


def test_the_check_of_bounds_finds_a_subscript_out_of_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRAPHC_CHECK", "bounds")
    specs = graphc.spec((4, 5)), graphc.spec(3, "int64")
    program = graphc.compile(lambda x, i: x[:, i], *specs, device="reference")
    x = np.zeros((4, 5), np.float32)
    program(x, np.array([0, 4, -5]))
    with pytest.raises(graphc.GraphError) as error:
        program(x, np.array([0, 7, 1]))
    assert str(error.value).rpartition(" (")[0] == (
        "subscript of axis 1, from the front: expected 0 to 4, got 7 at [1]"
    )
