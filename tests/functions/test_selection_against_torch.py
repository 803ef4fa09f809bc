"""Reductions, running sums, gathers, scatters and orders against PyTorch's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from tests.functions.comparison import Case, Function, compare, labels, normal
from tests.functions.tracing import run
from tests.tools import need_module


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


CASES: list[Case] = []


def case(name: str, ours: Function, theirs: Function, *inputs: np.ndarray) -> None:
    CASES.append(Case(name, ours, theirs, inputs))


X, CUBE = normal(3, 5), normal(2, 3, 4)
ZEROS = np.where(np.abs(normal(4, 5, seed=9)) < 0.5, 0.0, normal(4, 5))
TIES = labels(3, 4, 9).astype(np.float64)

for which, x in (("", X), (" with zeros", ZEROS)):
    case(f"prod{which}", lambda x: f.prod(x, 1), lambda t, x: t.prod(x, 1), x)
    case(f"cumprod{which}", lambda x: f.cumprod(x, 1), lambda t, x: t.cumprod(x, 1), x)
case("prod of all", lambda x: f.prod(x, keepdims=True)[0], lambda t, x: x.prod()[None], X)
case("prod of integers", lambda x: f.prod(x, 0), lambda t, x: t.prod(x, 0), labels(5, 3, 4))
for axis in (0, 1, -1):
    case(
        f"cumsum {axis}",
        lambda x, a=axis: f.cumsum(x, a) ** 2,
        lambda t, x, a=axis: t.cumsum(x, a) ** 2,
        CUBE,
    )
case("cumsum of booleans", lambda x: f.cumsum(x > 0, 1), lambda t, x: t.cumsum(x > 0, 1), X)
case("count_nonzero", lambda x: f.count_nonzero(x, 1), lambda t, x: t.count_nonzero(x, 1), ZEROS)
for order in (2, 1, 3, 0.5, np.inf, -np.inf, 0):
    case(
        f"norm {order}",
        lambda x, p=order: f.norm(x, p, axis=(0, 2)),
        lambda t, x, p=order: t.linalg.vector_norm(x, p, dim=(0, 2)),
        CUBE,
    )
case("norm of nothing", f.norm, lambda t, x: t.linalg.vector_norm(x), X * 0)
case(
    "logsumexp over axes",
    lambda x: f.logsumexp(x, (0, 2)),
    lambda t, x: t.logsumexp(x, (0, 2)),
    CUBE,
)

PLACES = labels(5, 2, 4)
case(
    "gather",
    lambda x, i: f.gather(x, 1, i) ** 2,
    lambda t, x, i: t.gather(x, 1, i) ** 2,
    X,
    PLACES,
)
case(
    "take_along_axis",
    lambda x, i: f.take_along_axis(x, i, 1) ** 2,
    lambda t, x, i: t.take_along_dim(x, i, 1) ** 2,
    X,
    labels(5, 1, 4),
)
case(
    "index_select",
    lambda x, i: f.index_select(x, 1, i) ** 2,
    lambda t, x, i: t.index_select(x, 1, i) ** 2,
    X,
    labels(5, 7),
)
case(
    "scatter_add",
    lambda x, i, s: f.scatter_add(x, 1, i, s) ** 2,
    lambda t, x, i, s: t.scatter_add(x, 1, i, s) ** 2,
    X,
    labels(5, 2, 6),
    normal(2, 6, seed=8),
)
UNIQUE = np.array([[4, 0, 2], [1, 3, 0]])
for axis, index in ((1, UNIQUE), (0, UNIQUE.T % 3)):
    case(
        f"scatter {axis}",
        lambda x, i, s, a=axis: f.scatter(x, a, i, s) ** 2,
        lambda t, x, i, s, a=axis: t.scatter(x, a, i, s) ** 2,
        X,
        np.array([[0, 1], [1, 2], [2, 0]]) if axis == 0 else index,
        normal(3, 2) if axis == 0 else normal(2, 3),
    )
case(
    "scatter of a number",
    lambda x, i: f.scatter(x, 1, i, 7.0),
    lambda t, x, i: t.scatter(x, 1, i, 7.0),
    X,
    PLACES,
)
case(
    "masked_fill",
    lambda x: f.masked_fill(x, x > 0, -1.0) * x,
    lambda t, x: t.masked_fill(x, x > 0, -1.0) * x,
    X,
)

for name, x in (("", X), (" with ties", TIES), (" of NaN", np.where(TIES == 1, np.nan, TIES))):
    for down in (False, True):
        case(
            f"sort{name} {down}",
            lambda x, d=down: f.sort(x, 1, d) + f.sort(x, 1, d) ** 2,
            lambda t, x, d=down: (lambda y: y + y**2)(
                t.sort(x, dim=1, descending=d, stable=True)[0]
            ),
            x,
        )
        case(
            f"argsort{name} {down}",
            lambda x, d=down: f.argsort(x, 0, d),
            lambda t, x, d=down: t.argsort(x, dim=0, descending=d, stable=True),
            x,
        )
for largest in (True, False):
    case(
        f"topk {largest}",
        lambda x, m=largest: f.topk(x, 3, 1, m),
        lambda t, x, m=largest: tuple(t.topk(x, 3, 1, m)),
        normal(4, 9),
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_equal_torchs(torch: ModuleType, case: Case) -> None:
    compare(torch, case)


def test_the_last_of_several_elements_for_one_place_is_kept() -> None:
    index = np.array([[0, 2, 0, 2, 2]])
    (y,) = run(
        lambda x, i, s: f.scatter(x, 1, i, s), np.zeros((1, 3)), index, np.arange(1.0, 6)[None]
    )
    np.testing.assert_array_equal(y, [[3, 0, 5]])


def test_the_cpu_computes_what_numpy_does() -> None:
    """All of them in one program: running sums, orders, gathers, scatters."""

    def every(x: Any, i: Any) -> tuple[Any, ...]:
        values, places = f.topk(x, 4, 1)
        return (
            f.cumsum(x, 0),
            f.cumprod(x, 1),
            f.prod(x, 0),
            f.sort(x, 1),
            f.argsort(x, 0, descending=True),
            values,
            places,
            f.take_along_axis(x, i, 1),
            f.scatter_add(x, 1, i, f.take_along_axis(x, i, 1)),
            f.scatter(x, 1, i, f.take_along_axis(x, i, 1) * 2),
            f.norm(x, 3, axis=1),
        )

    x = normal(37, 45).astype(np.float32)
    arrays = x, labels(45, 37, 18)
    specs = [graphc.spec(a.shape, a.dtype) for a in arrays]
    expected = graphc.compile(every, *specs, device="reference")(*arrays)
    found = graphc.compile(every, *specs, device="cpu")(*arrays)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, strict=True)
