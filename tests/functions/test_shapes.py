"""Indexing and shapes against NumPy, and the types that results have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from graphc.functions.array.tensors import result_dtype
from tests.functions.tracing import run, traced
from tests.tools import need_module

X = np.arange(4 * 5 * 6, dtype=np.float32).reshape(4, 5, 6)
s = np.s_


@pytest.mark.parametrize(
    "key",
    [
        s[1],
        s[-1],
        s[...],
        s[:, 2],
        s[..., 3],
        s[1:3],
        s[::2, ::3, 1::2],
        s[::-1],
        s[3:0:-2, ::-1, -2],
        s[None],
        s[:, None, 1],
        s[..., None],
        s[1, 2, 3],
        s[4:],
        s[2:2, 1],
        s[-3:-1, 10:, ::-4],
        s[::-3, 0:1],
        s[np.int64(2), ..., None, ::2],
        s[:-10:-1],
    ],
    ids=str,
)
def test_subscripts_select_what_numpy_selects(key: Any) -> None:
    (y,) = run(lambda x: x[key], X)
    np.testing.assert_array_equal(y, X[key])
    (slope,) = run(lambda x: x[key] * 1, X, slopes=True)[1:]
    expected = np.zeros_like(X)
    expected[key] += 1
    np.testing.assert_array_equal(slope, expected)


def test_a_full_subscript_adds_no_node() -> None:
    graph, _ = traced(lambda x: x[:, ...], X)
    assert graph.nodes == () and graph.outputs == graph.inputs


def test_tensors_iterate_over_their_first_axis() -> None:
    for got, expected in zip(run(lambda x: list(x), X), X, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda x: x.reshape(2, -1), lambda x: x.reshape(2, -1)),
        (lambda x: x.reshape((6, 20)), lambda x: x.reshape(6, 20)),
        (lambda x: f.flatten(x, 0), lambda x: x.reshape(-1)),
        (lambda x: f.flatten(x, 1, 1), lambda x: x),
        (lambda x: x.transpose(), lambda x: x.transpose()),
        (lambda x: x.transpose((1, 0, 2)), lambda x: x.transpose(1, 0, 2)),
        (lambda x: f.matrix_transpose(x), lambda x: x.swapaxes(1, 2)),
        (lambda x: f.squeeze(x[:1, :, :1]), lambda x: x[0, :, 0]),
        (lambda x: x.expand_dims(3), lambda x: x[..., None]),
        (lambda x: f.flip(x), lambda x: np.flip(x)),
        (lambda x: f.concat([x, x], None), lambda x: np.concatenate([x, x], None)),
        (lambda x: f.concat([x, x], -1), lambda x: np.concatenate([x, x], -1)),
        (lambda x: f.stack([x, x], 1), lambda x: np.stack([x, x], 1)),
        (lambda x: f.any(x > 100, axis=2), lambda x: (x > 100).any(2)),
        (lambda x: f.all(x > 20), lambda x: (x > 20).all()),
        (lambda x: f.take(x, [3, 1], axis=1), lambda x: x[:, [3, 1]]),
        (lambda x: f.isfinite(x / 0), lambda x: np.zeros_like(x, bool)),
        (lambda x: f.isnan(x) ^ (x > 7), lambda x: x > 7),
        (lambda x: ~(x == 3) | (x != x), lambda x: x != 3),
        (lambda x: f.equal(x > 3, x > 5), lambda x: (x > 3) == (x > 5)),
        (lambda x: f.zeros_like(x), np.zeros_like),
        (lambda x: f.full_like(x, 3, "i32"), lambda x: np.full_like(x, 3, np.int32)),
        (lambda x: f.ones((2, 3)) + f.zeros(3), lambda x: np.ones((2, 3), np.float32)),
        (lambda x: f.arange(5), lambda x: np.arange(5)),
        (lambda x: f.arange(7, 1, -2), lambda x: np.arange(7, 1, -2)),
        (lambda x: f.arange(0, 1, 0.25), lambda x: np.arange(0, 1, 0.25, np.float32)),
        (lambda x: f.arange(3, 3), lambda x: np.arange(0)),
        (lambda x: f.arange(2, 5, dtype="float32"), lambda x: np.arange(2, 5, dtype=np.float32)),
    ],
)
def test_functions_of_shapes_equal_numpys(ours: Any, theirs: Any) -> None:
    (got,), expected = run(ours, X), np.asarray(theirs(X))
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def test_one_hot_places_a_one_per_label() -> None:
    y = np.array([[2, 0], [1, 1]], np.int32)
    (got,) = run(lambda y: f.one_hot(y, 3), y)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, np.eye(3, dtype=np.int64)[y])


def test_integers_keep_their_dtype_in_arithmetic_and_become_floats_in_division() -> None:
    i = np.array([7, -7, 3], np.int32)
    for ours, expected in (
        (lambda x: x // 2, i // 2),
        (lambda x: x % 2, i % 2),
        (lambda x: x**3, i**3),
        (lambda x: x / 2, (i / 2).astype(np.float32)),
        (lambda x: f.exp(x), np.exp(i.astype(np.float32))),
        (lambda x: f.sum(x), np.int64(3)),
        (lambda x: f.sum(x, dtype="i32"), np.int32(3)),
        (lambda x: f.sum(x > 0), np.int64(2)),
        (lambda x: 2 - x, 2 - i),
        (lambda x: x.astype("float64") * 2, i * 2.0),
    ):
        (got,) = run(ours, i)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


DTYPES = ("bool", "u8", "i8", "i32", "i64", "f16", "bf16", "f32", "f64")


@pytest.mark.parametrize("a", DTYPES)
def test_promotion_is_that_of_torch(a: str) -> None:
    torch = need_module("torch")
    long = {
        "bool": torch.bool,
        "u8": torch.uint8,
        "i8": torch.int8,
        "i32": torch.int32,
        "i64": torch.int64,
        "f16": torch.float16,
        "bf16": torch.bfloat16,
        "f32": torch.float32,
        "f64": torch.float64,
    }
    short = {v: k for k, v in long.items()} | {torch.int16: "i32"}  # there is no i16
    wide, narrow = torch.zeros(2, dtype=long[a]), torch.zeros((), dtype=long[a])
    for number, dtype in ((True, "bool"), (1, "i64"), (1.5, "f32")):
        assert result_dtype([a], [], [dtype]) == short[torch.result_type(wide, number)]
        assert result_dtype([], [a], [dtype]) == short[torch.result_type(narrow, number)]
    for b in DTYPES:
        other, scalar = torch.zeros(2, dtype=long[b]), torch.zeros((), dtype=long[b])
        assert result_dtype([a, b], [], []) == short[torch.result_type(wide, other)]
        assert result_dtype([a], [b], []) == short[torch.result_type(wide, scalar)]
        assert result_dtype([], [a, b], []) == short[torch.result_type(narrow, scalar)]


def test_numbers_take_the_dtype_of_their_partners() -> None:
    def kinds(x: Any) -> list[Any]:
        return [x + 1, 1.5 * x, x + np.float64(2), x > 0, f.where(x > 0, 1, x), f.maximum(x, 0)]

    graph, _ = traced(kinds, np.zeros(2, np.float16))
    assert [v.type.dtype for v in graph.outputs] == ["f16", "f16", "f16", "bool", "f16", "f16"]
    graph, _ = traced(kinds, np.zeros(2, np.int32))
    assert [v.type.dtype for v in graph.outputs] == ["i32", "f32", "f32", "bool", "i32", "i32"]


def test_arrays_keep_their_dtype_and_lists_of_numbers_are_single_precision() -> None:
    graph, _ = traced(lambda x: [x * np.ones(2), x * [0.5, 1.5]], np.zeros(2, np.float32))
    assert [v.type.dtype for v in graph.outputs] == ["f64", "f32"]
