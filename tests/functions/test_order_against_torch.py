"""Running results, orders, order statistics and searches against PyTorch's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from tests.functions.comparison import Case, Function, compare, labels, normal
from tests.tools import need_module


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


CASES: list[Case] = []


def case(
    name: str, ours: Function, theirs: Function, *inputs: np.ndarray, tolerance: float = 1e-9
) -> None:
    CASES.append(Case(name, ours, theirs, inputs, tolerance))


X, CUBE = normal(3, 5), normal(2, 3, 4)
ONE_ZERO = np.array(
    [[2.0, 3.0, 0.0, 4.0, 5.0], [0.0, 2.0, 3.0, 4.0, 5.0], [2.0, 3.0, 4.0, 5.0, 0.0]]
)
TWO_ZEROS = np.array(
    [[2.0, 0.0, 3.0, 0.0, 5.0], [0.0, 0.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0]]
)
TIES = labels(3, 4, 9).astype(np.float64)
NAN = np.where(TIES == 1, np.nan, TIES)
INFINITE = np.array([[-np.inf, -np.inf, 1.0, np.inf, 2.0], [0.0, -np.inf, 1.0, 2.0, -np.inf]])
WITH_TIES = (("", CUBE), (" with ties", TIES[:, None]), (" of NaN", NAN[:, None]))


def squared(y: Any) -> Any:
    return y + y**2


for axis in (0, 1, -1):
    case(
        f"cumsum {axis}",
        lambda x, a=axis: squared(f.cumsum(x, a)),
        lambda t, x, a=axis: squared(t.cumsum(x, a)),
        CUBE,
    )
    case(
        f"logcumsumexp {axis}",
        lambda x, a=axis: squared(f.logcumsumexp(x, a)),
        lambda t, x, a=axis: squared(t.logcumsumexp(x, a)),
        CUBE,
    )
    for which in ("cummax", "cummin"):
        for name, x in WITH_TIES:
            case(
                f"{which}{name} {axis}",
                lambda x, a=axis, w=which: getattr(f, w)(x, a),
                lambda t, x, a=axis, w=which: tuple(getattr(t, w)(x, a)),
                x,
            )
for name, x in (("", X), (" with a zero", ONE_ZERO), (" with zeros", TWO_ZEROS)):
    case(
        f"cumprod{name}",
        lambda x: squared(f.cumprod(x, 1)),
        lambda t, x: squared(t.cumprod(x, 1)),
        x,
    )
for dtype in ("i1", "u1", "i4", "i8"):
    numbers = labels(5, 3, 7, dtype=dtype)
    for which in ("cumsum", "cumprod"):
        case(
            f"{which} of {dtype}",
            lambda x, w=which: getattr(f, w)(x, 1),
            lambda t, x, w=which: getattr(t, w)(x, 1),
            numbers,
        )
    case(f"cummax of {dtype}", lambda x: f.cummax(x, 1), lambda t, x: tuple(x.cummax(1)), numbers)
case("cumsum of booleans", lambda x: f.cumsum(x > 0, 1), lambda t, x: t.cumsum(x > 0, 1), X)
case("cummax of booleans", lambda x: f.cummax(x > 0, 1), lambda t, x: tuple((x > 0).cummax(1)), X)
case(
    "cumsum as f32",
    lambda x: f.cumsum(x, 0, "f32"),
    lambda t, x: x.cumsum(0, dtype=t.float32),
    X,
    tolerance=1e-6,
)
case(
    "logcumsumexp of infinities",
    lambda x: f.logcumsumexp(f.stop_gradient(x), 1),
    lambda t, x: t.logcumsumexp(x.detach(), 1),
    INFINITE,
)
case(
    "cumulative_sum from 0",
    lambda x: squared(f.cumulative_sum(x, 1, include_initial=True)),
    lambda t, x: squared(t.nn.functional.pad(x.cumsum(1), (1, 0))),
    X,
)
case(
    "cumulative_prod from 1",
    lambda x: squared(f.cumulative_prod(x, include_initial=True)),
    lambda t, x: squared(t.nn.functional.pad(x.cumprod(0), (1, 0), value=1.0)),
    X[0],
)

SOURCE, SPREAD = normal(2, 4, seed=5), labels(5, 2, 4, seed=7)
for reduce in ("sum", "prod", "amax", "amin", "mean"):
    for include in (True, False):
        case(
            f"scatter_reduce {reduce} {include}",
            lambda x, i, s, r=reduce, n=include: squared(f.scatter_reduce(x, 1, i, s, r, n)),
            lambda t, x, i, s, r=reduce, n=include: squared(
                t.scatter_reduce(x, 1, i, s, r, include_self=n)
            ),
            X,
            SPREAD,
            SOURCE,
        )
        case(
            f"scatter_reduce {reduce} {include} of integers",
            lambda x, i, s, r=reduce, n=include: f.scatter_reduce(x, 1, i, s, r, n),
            lambda t, x, i, s, r=reduce, n=include: t.scatter_reduce(x, 1, i, s, r, include_self=n),
            labels(9, 3, 5, seed=2),
            SPREAD,
            labels(9, 2, 4, seed=4),
        )
case(
    "product with zeros",
    lambda x, i, s: f.scatter_reduce(x, 1, i, s, "prod"),
    lambda t, x, i, s: t.scatter_reduce(x, 1, i, s, "prod"),
    X,
    np.array([[0, 0, 1, 1, 1], [2, 2, 2, 3, 4]]),
    np.array([[0.0, 2.0, 0.0, 0.0, 3.0], [1.0, 2.0, 0.0, 5.0, 0.0]]),
)
TIED = np.array([[1.0, 2.0, 3.0]])
case(
    "ties of scatter_reduce",
    lambda x, i, s: f.scatter_reduce(x, 1, i, s, "amax"),
    lambda t, x, i, s: t.scatter_reduce(x, 1, i, s, "amax"),
    TIED,
    np.array([[0, 0, 1, 1, 2]]),
    np.array([[1.0, 0.0, 5.0, 5.0, 1.0]]),
)

NUMBERED = np.random.default_rng(1).permutation(60).astype(np.float64).reshape(3, 5, 4)
HOLES = np.where(labels(4, 3, 5, 4, seed=1) == 0, np.nan, NUMBERED)
for axis in (0, 1, -1):
    case(
        f"kthvalue {axis}",
        lambda x, a=axis: f.kthvalue(x, 2, a),
        lambda t, x, a=axis: tuple(t.kthvalue(x, 2, a)),
        NUMBERED,
    )
    for which in ("median", "nanmedian"):
        for name, x in (("", NUMBERED), (" of NaN", HOLES)):
            case(
                f"{which}{name} {axis}",
                lambda x, a=axis, w=which: getattr(f, w)(f.stop_gradient(x), a),
                lambda t, x, a=axis, w=which: tuple(getattr(t, w)(x.detach(), a)),
                x,
            )
    case(
        f"median's slope {axis}",
        lambda x, a=axis: squared(f.median(x, a, keepdims=True)[0]),
        lambda t, x, a=axis: squared(t.median(x, a, keepdim=True)[0]),
        NUMBERED,
    )
    case(
        f"mode {axis}",
        lambda x, a=axis: f.mode(x, a)[0],
        lambda t, x, a=axis: t.mode(x, a)[0],
        labels(3, 3, 5, 4, dtype="i4"),
    )
case("median of all", f.median, lambda t, x: x.median(), NUMBERED)
case("nanmedian of all", lambda x: f.nanmedian(x) * 1, lambda t, x: x.nanmedian() * 1, HOLES)
case(
    "kthvalue of NaN", lambda x: f.kthvalue(x, 5, 1)[0], lambda t, x: t.kthvalue(x, 5, 1)[0], HOLES
)
case(
    "nanmedian of nothing but NaN",
    lambda x: f.nanmedian(x, 0)[0],
    lambda t, x: t.nanmedian(x, 0)[0],
    X * np.nan,
)
case("msort", f.msort, lambda t, x: t.msort(x), NUMBERED)
FRACTIONS = np.array([0.0, 0.1, 0.5, 0.77, 1.0])
for kind in ("linear", "lower", "higher", "nearest", "midpoint"):
    for name, x in (("", NUMBERED), (" of NaN", HOLES)):
        for which in ("quantile", "nanquantile"):
            for axis, keepdims in ((1, False), (-1, True), (None, False), (None, True)):
                case(
                    f"{which}{name} {kind} {axis} {keepdims}",
                    lambda x, k=kind, a=axis, d=keepdims, w=which: getattr(f, w)(
                        f.stop_gradient(x), FRACTIONS, a, d, k
                    ),
                    lambda t, x, k=kind, a=axis, d=keepdims, w=which: getattr(t, w)(
                        x.detach(), t.from_numpy(FRACTIONS), a, keepdim=d, interpolation=k
                    ),
                    x,
                )
    case(
        f"quantile's slope {kind}",
        lambda x, k=kind: squared(f.quantile(x, 0.3, 1, interpolation=k)),
        lambda t, x, k=kind: squared(t.quantile(x, 0.3, 1, interpolation=k)),
        NUMBERED,
    )
ORDERED = np.sort(labels(20, 3, 9).astype(np.float64))
for right in (False, True):
    case(
        f"searchsorted {right}",
        lambda s, x, r=right: f.searchsorted(s, x, r),
        lambda t, s, x, r=right: t.searchsorted(s, x, right=r),
        ORDERED,
        labels(20, 3, 7, seed=8).astype(np.float64),
    )
    case(
        f"bucketize {right}",
        lambda x, s, r=right: f.bucketize(x, s, r),
        lambda t, x, s, r=right: t.bucketize(x, s, right=r),
        labels(20, 3, 7, seed=8),
        np.sort(labels(20, 9)),
    )
case(
    "searchsorted of what is not in order",
    lambda s, x, o: f.searchsorted(s, x, side="right", sorter=o),
    lambda t, s, x, o: t.searchsorted(s, x, side="right", sorter=o),
    ORDERED[:, ::-1].copy(),
    normal(3, 4) * 20,
    np.tile(np.arange(9)[::-1], (3, 1)),
)
for name, x in (("", X), (" with ties", TIES), (" of NaN", NAN)):
    for largest in (True, False):
        for k in (0, 1, 3):
            case(
                f"topk{name} {k} {largest}",
                lambda x, k=k, m=largest: squared(f.topk(x, k, 1, m)[0]),
                lambda t, x, k=k, m=largest: squared(
                    t.sort(x, dim=1, descending=m, stable=True)[0][:, :k]
                ),
                x,
            )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_equal_torchs(torch: ModuleType, case: Case) -> None:
    compare(torch, case)
