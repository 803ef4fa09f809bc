"""Grouped products are those of each group's rows, whatever its size, and so their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import GraphError
from tests.tools import need_module, need_nvrtc

TWO = (
    "grouped_mm: expected two matrices, or stacks of one per group, and "
    "offs unless both are stacks, got f32"
)
ENDS = [
    [3, 3, 7, 12],  # all rows, one group empty
    [0, 0, 0, 0],
    [12, 12, 12, 12],
    [1, 2, 3, 4],  # rows behind the last group are in none
    [0, 5, 5, 11],
]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def by_rows(x: np.ndarray, w: np.ndarray, ends: Any) -> np.ndarray:
    """[rows, k] and [experts, k, n], in float64."""
    y, start = np.zeros((len(x), w.shape[2])), 0
    for matrix, end in zip(w.astype(np.float64), ends, strict=True):
        y[start:end] = x[start:end] @ matrix
        start = end
    return y


def over_groups(a: np.ndarray, b: np.ndarray, ends: Any) -> np.ndarray:
    """[m, k] and [k, n] with groups of k, in float64."""
    starts = [0, *ends[:-1]]
    parts = [a[:, s:e].astype(np.float64) @ b[s:e] for s, e in zip(starts, ends, strict=True)]
    return np.stack(parts)


@pytest.mark.parametrize("device", ["cpu", "sim", "reference"])
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_rows_times_the_matrix_of_their_group(ends: list[int], dtype: str, device: str) -> None:
    if device == "sim":
        need_nvrtc()
    x, w = numbers(12, 5), numbers(4, 5, 7, seed=1)
    offs = np.array(ends, dtype)

    def run(x: Any, w: Any, offs: Any) -> Any:
        swapped = graphc.matrix_transpose
        y = graphc.grouped_mm(x, w, offs=offs)
        return y, graphc.grouped_mm(swapped(w), swapped(x), offs=offs)

    specs = graphc.spec(x.shape), graphc.spec(w.shape), graphc.spec((4,), dtype)
    y, turned = graphc.compile(run, *specs, device=device)(x, w, offs)
    np.testing.assert_allclose(y, by_rows(x, w, ends), 1e-5, 1e-5)
    np.testing.assert_allclose(turned.T, by_rows(x, w, ends), 1e-5, 1e-5)


@pytest.mark.parametrize("ends", ENDS)
def test_groups_of_what_is_summed(ends: list[int]) -> None:
    a, b = numbers(3, 12), numbers(12, 6, seed=1)
    run = graphc.compile(
        lambda a, b, offs: graphc.grouped_mm(a, b, offs=offs),
        graphc.spec(a.shape),
        graphc.spec(b.shape),
        graphc.spec((4,), "int32"),
    )
    got = run(a, b, np.array(ends, np.int32))
    np.testing.assert_allclose(got, over_groups(a, b, ends), 1e-5, 1e-5)


@pytest.mark.parametrize("rows, experts", [(1, 1), (1, 6), (5, 40), (130, 2), (700, 3), (64, 64)])
def test_any_number_of_rows_and_groups(rows: int, experts: int) -> None:
    x, w = numbers(rows, 8), numbers(experts, 8, 4, seed=1)
    run = graphc.compile(
        lambda x, w, offs: graphc.grouped_mm(x, w, offs=offs),
        graphc.spec(x.shape),
        graphc.spec(w.shape),
        graphc.spec((experts,), "int64"),
    )
    for seed in range(5):
        ends = np.sort(np.random.default_rng(seed).integers(0, rows + 1, experts))
        np.testing.assert_allclose(run(x, w, ends), by_rows(x, w, ends), 1e-5, 1e-5)


def test_gradients_are_products_of_the_groups() -> None:
    x, w, dy = numbers(12, 5), numbers(4, 5, 7, seed=1), numbers(12, 7, seed=2)

    def loss(x: Any, w: Any, offs: Any) -> Any:
        return graphc.sum(graphc.grouped_mm(x, w, offs=offs) * dy)

    specs = graphc.spec(x.shape), graphc.spec(w.shape), graphc.spec((4,), "int64")
    run = graphc.compile(graphc.grad(loss, (0, 1)), *specs)
    for ends in ENDS:
        dx, dw = run(x, w, np.array(ends))
        np.testing.assert_allclose(dx, by_rows(dy, w.swapaxes(1, 2), ends), 1e-5, 1e-5)
        np.testing.assert_allclose(dw, over_groups(x.T, dy, ends), 1e-5, 1e-5)


def test_stacks_are_multiplied_one_by_one_and_the_result_has_the_dtype_that_is_asked() -> None:
    a, b = numbers(3, 4, 5), numbers(3, 5, 2, seed=1)
    y = graphc.compile(
        lambda a, b: graphc.grouped_mm(a, b, out_dtype="float64"),
        graphc.spec(a.shape),
        graphc.spec(b.shape),
    )(a, b)
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, a @ b, 1e-5, 1e-6)


@pytest.mark.parametrize(
    "shapes, options, told",
    [
        (((4, 5), (3, 5, 2)), {}, TWO),
        (((4, 5), (3, 6, 2)), {"offs": [1, 2, 3]}, "differ in what is summed"),
        (((4, 5), (3, 5, 2)), {"offs": [1, 2]}, "expected one end for each group of f32[4,5]"),
        (
            ((4, 5), (3, 5, 2)),
            {"offs": [1, 2, 3], "bias": 1.0},
            "grouped_mm: bias expected None: add it to the result",
        ),
        (((4, 5), (3, 5, 2)), {"offs": [1.0, 2.0, 3.0]}, "expected integer indices, got f64[3]"),
        (((3, 4, 5), (3, 5, 2)), {"offs": [1, 2, 3]}, TWO),
    ],
)
def test_what_does_not_fit_is_refused(shapes: Any, options: dict[str, Any], told: str) -> None:
    given = {k: np.array(v) if k == "offs" else v for k, v in options.items()}
    with pytest.raises(GraphError) as caught:
        graphc.trace(
            lambda a, b: graphc.grouped_mm(a, b, **given), *(graphc.spec(s) for s in shapes)
        )
    assert told in str(caught.value)


def test_it_is_that_of_pytorch() -> None:
    torch = need_module("torch")
    x, w = numbers(12, 8), numbers(4, 8, 16, seed=1)
    offs = torch.tensor([3, 3, 7, 12], dtype=torch.int32)
    theirs = torch.nn.functional.grouped_mm(torch.tensor(x), torch.tensor(w), offs=offs)
    run = graphc.compile(
        lambda x, w, offs: graphc.grouped_mm(x, w, offs=offs),
        graphc.spec(x.shape),
        graphc.spec(w.shape),
        graphc.spec((4,), "int32"),
    )
    np.testing.assert_allclose(run(x, w, offs.numpy()), theirs.numpy(), 1e-5, 1e-5)
