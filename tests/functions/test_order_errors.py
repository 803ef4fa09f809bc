"""Each message that a wrong argument of running results, orders and searches gives, whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graphc import functions as f
from tests.functions.failing import Failure

MATRIX = "f32[2,3]"
CASES: list[Failure] = []


def case(message: str, function: Callable[..., Any], *inputs: str) -> None:
    CASES.append(Failure(message, function, inputs))


for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "argsort", "sort", "mode"):
    case(
        f"{name}: axis 2 is out of range for x f32[2,3]",
        lambda x, n=name: getattr(f, n)(x, 2),
        MATRIX,
    )
case("cumulative_sum: an axis is an integer, got None", f.cumulative_sum, MATRIX)
case(
    "kthvalue: k expected an integer from 1 to 3 for axis 1 of f32[2,3], got 0",
    lambda x: f.kthvalue(x, 0),
    MATRIX,
)
for name in ("median", "nanmedian", "mode"):
    case(
        f"{name}: no elements along axis 1 of f32[2,0]",
        lambda x, n=name: getattr(f, n)(x, 1),
        "f32[2,0]",
    )
case(
    "quantile: no elements along axis 0 of f32[0]",
    lambda x: f.quantile(x, 0.5),
    "f32[2,0]",
)
case(
    "quantile: expected floats and q of one axis or none, got i32[6] and f64[]",
    lambda x: f.quantile(x, 0.5),
    "i32[2,3]",
)
case(
    "nanquantile: interpolation expected linear, lower, higher, nearest, midpoint, got 'best'",
    lambda x: f.nanquantile(x, 0.5, interpolation="best"),
    MATRIX,
)
for reduction in ("sum", "amax", "amin"):
    case(
        "scatter: expected numbers, got bool[2] and i64[2] and bool[2]",
        lambda x, r=reduction: f.scatter_reduce(x > 0, 0, f.argsort(x), x > 0, r, False),
        "f32[2]",
    )
case(
    "searchsorted: side expected left or right, as right=True, got 'left'",
    lambda x: f.searchsorted(x, x, right=True, side="left"),
    MATRIX,
)
case(
    "searchsorted: f32[2,3] and values f32[3,3] differ in more than the last axis",
    f.searchsorted,
    MATRIX,
    "f32[3,3]",
)
case(
    "searchsorted: expected numbers, got bool[3] and bool[3]", f.searchsorted, "bool[3]", "bool[3]"
)
case(
    "scatter_reduce: reduce expected sum, prod, amax, amin, mean, got 'max'",
    lambda x, i: f.scatter_reduce(x, 1, i, x, "max"),
    MATRIX,
    "i64[2,3]",
)
case(
    "scatter_reduce: index i64[3,2] does not fit x f32[2,3]",
    lambda x, i: f.scatter_reduce(x, 1, i, 1.0, "sum"),
    MATRIX,
    "i64[3,2]",
)
case(
    "scatter: expected numbers, got bool[2,3] and i64[2,3] and bool[2,3]",
    lambda x, i: f.scatter_add(x, 1, i, x),
    "bool[2,3]",
    "i64[2,3]",
)


@pytest.mark.parametrize("failure", CASES, ids=str)
def test_the_message_says_what_was_expected_and_where(failure: Failure) -> None:
    failure.check()
