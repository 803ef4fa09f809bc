"""Functions at their edges against PyTorch's: zeros, ties, no elements, no axes, booleans."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from graphc import functions as f
from tests.functions.comparison import Case, Function, compare, normal
from tests.tools import need_module


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


CASES: list[Case] = []


def case(
    name: str, ours: Function, theirs: Function, *inputs: np.ndarray, tolerance: float = 1e-9
) -> None:
    CASES.append(Case(name, ours, theirs, inputs, tolerance))


def _called(torch: ModuleType, name: str, x: object, *args: object) -> object:
    """What PyTorch's function gives: the values alone of `sort`, and axes in a tuple for `flip`."""
    found = getattr(torch, name)(x, *((a,) if name == "flip" else a for a in args))
    return found.values if name == "sort" else found


ZEROS, NUMBER = np.zeros((2, 3)), np.array(0.7)
PARTLY = np.array([[0.0, 1.5, -2.0], [0.0, 0.0, 0.0], [3.0, 0.0, 4.0]])
NOTHING, FLAGS = np.zeros((3, 0, 2)), normal(3, 4) > 0
BYTES = np.array([[0, 3, 255], [7, 7, 0]], np.uint8)

INFINITE = normal(2, 3, 3, 3, 3, seed=2)
INFINITE[0, 1, 1, 0, 2], INFINITE[1, 2, 0, 0, 0] = np.inf, np.nan
case(
    "conv_transpose3d with strides and an infinite weight",
    lambda x, w: f.conv_transpose3d(x, w, None, 2, 1, 1),
    lambda t, x, w: t.nn.functional.conv_transpose3d(x, w, None, 2, 1, 1),
    normal(1, 2, 3, 2, 4),
    INFINITE,
)

# The order of arguments is broadcast first, then the norms are taken.
for shapes in (((3, 1), (3, 5)), ((1, 5), (3, 5)), ((3, 1, 4), (1, 5, 4)), ((5,), (3, 5))):
    a, b = (normal(*s, seed=i) for i, s in enumerate(shapes))
    case(
        f"cosine_similarity of {shapes}",
        lambda x, y: f.cosine_similarity(x, y, axis=1),
        lambda t, x, y: t.cosine_similarity(x, y, dim=1),
        a,
        b,
    )
case(
    "cosine_similarity of vectors shorter than eps",
    lambda x, y: f.cosine_similarity(x, y, axis=0),
    lambda t, x, y: t.cosine_similarity(x, y, dim=0),
    normal(4) * 1e-9,
    normal(4, seed=1),
)
for order in (3, 3.5, 0.5, 1, 2, 1.5, 4, 0, float("inf"), -1, -0.5):
    for name, x in (("zeros", ZEROS), ("some zeros", PARTLY)):
        if order < 0 and name == "some zeros":
            continue
        case(
            f"norm {order} of {name}",
            lambda x, p=order: f.norm(x, p, 1),
            lambda t, x, p=order: t.linalg.vector_norm(x, p, 1),
            x,
        )
for correction in (0, 1):
    case(
        f"std of equal elements, correction {correction}",
        lambda x, c=correction: f.std(x, 1, correction=c),
        lambda t, x, c=correction: t.std(x, 1, correction=c),
        np.array([[2.0, 2.0, 2.0], [1.0, 2.0, 4.0]]),
    )
    case(
        f"std_mean of equal elements, correction {correction}",
        lambda x, c=correction: f.std_mean(x, 1, correction=c),
        lambda t, x, c=correction: t.std_mean(x, 1, correction=c),
        np.full((2, 3), 0.5),
    )
for p in (1.0, 1.5, 2.0, 3.0):
    case(
        f"pairwise_distance of equal rows, p {p}",
        lambda x, y, p=p: f.pairwise_distance(x, y, p, eps=0.0),
        lambda t, x, y, p=p: t.pairwise_distance(x, y, p, eps=0.0),
        ZEROS,
        ZEROS,
    )
    case(
        f"dist of equals, p {p}",
        lambda x, y, p=p: f.dist(x, y, p),
        lambda t, x, y, p=p: t.dist(x, y, p),
        PARTLY,
        PARTLY,
    )
    case(
        f"normalize with zeros, p {p}",
        lambda x, p=p: f.normalize(x, p),
        lambda t, x, p=p: t.nn.functional.normalize(x, p),
        PARTLY,
    )

for name in ("tril", "triu", "diag", "diag_embed", "diagflat"):
    for x in (FLAGS, BYTES):
        case(f"{name} of {x.dtype}", getattr(f, name), lambda t, x, n=name: getattr(t, n)(x), x)
case("diag of a bool vector", f.diag, lambda t, x: t.diag(x), FLAGS[0])
case("prelu of a number", f.prelu, lambda t, x, w: t.prelu(x, w), np.array(-1.5), np.array([0.3]))
case("prelu of a vector", f.prelu, lambda t, x, w: t.prelu(x, w), normal(4), np.array([0.3]))

for name in ("any", "all"):
    for axis in (1, (0, 1), 2):
        case(
            f"{name} over nothing, axis {axis}",
            lambda x, n=name, a=axis: getattr(f, n)(x, a),
            lambda t, x, n=name, a=axis: getattr(t, n)(x, a),
            NOTHING,
        )
for axis in (0, 1, 2):
    for name, theirs in (("mean", "mean"), ("logsumexp", "logsumexp"), ("sum", "sum")):
        case(
            f"{name} over nothing, axis {axis}",
            lambda x, n=name, a=axis: getattr(f, n)(x, a, keepdims=True),
            lambda t, x, n=theirs, a=axis: getattr(t, n)(x, a, keepdim=True),
            NOTHING,
        )
    for name in ("softmax", "log_softmax", "softmin"):
        case(
            f"{name} over nothing, axis {axis}",
            lambda x, n=name, a=axis: getattr(f, n)(x, a),
            lambda t, x, n=name, a=axis: getattr(t.nn.functional, n)(x, a),
            NOTHING,
        )
    for name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "argsort"):
        case(
            f"{name} over nothing, axis {axis}",
            lambda x, n=name, a=axis: getattr(f, n)(x, a),
            lambda t, x, n=name, a=axis: getattr(t, n)(x, a),
            NOTHING,
        )
case("nanmean over nothing", lambda x: f.nanmean(x, 1), lambda t, x: t.nanmean(x, 1), NOTHING)
case("norm over nothing", lambda x: f.norm(x, 3, 1), lambda t, x: t.norm(x, 3, 1), NOTHING)

for name in ("argmax", "argmin"):
    for keep in (False, True):
        case(
            f"{name} of all, keepdims {keep}",
            lambda x, n=name, k=keep: getattr(f, n)(x, keepdims=k),
            lambda t, x, n=name, k=keep: getattr(t, n)(x, keepdim=k),
            normal(3, 4),
        )
case("max of all flags", f.max, lambda t, x: t.max(x), FLAGS)
case("min of flags", lambda x: f.min(x, 1), lambda t, x: t.amin(x, 1), FLAGS)
case("max of flags", lambda x: f.max(x, (0, 1), True), lambda t, x: t.amax(x, (0, 1), True), FLAGS)
case("aminmax of flags", lambda x: f.aminmax(x, 1), lambda t, x: tuple(t.aminmax(x, dim=1)), FLAGS)
for name in ("maximum", "minimum"):
    case(
        f"{name} of flags",
        getattr(f, name),
        lambda t, a, b, n=name: getattr(t, n)(a, b),
        FLAGS,
        ~FLAGS[:1],
    )
case("sign of bytes", f.sign, lambda t, x: t.sign(x), BYTES)
case("sign of flags", f.sign, lambda t, x: t.sign(x), FLAGS)
case("stop_gradient of flags", f.stop_gradient, lambda t, x: x.detach(), FLAGS)
case("stop_gradient of bytes", f.stop_gradient, lambda t, x: x.detach(), BYTES)
for dtype in ("float32", "float64"):
    for name in ("softmax", "log_softmax", "softmin"):
        case(
            f"{name} as {dtype}",
            lambda x, n=name, d=dtype: getattr(f, n)(x, 1, dtype=d),
            lambda t, x, n=name, d=dtype: getattr(t.nn.functional, n)(x, 1, dtype=getattr(t, d)),
            np.array([[1, 2, 3], [0, 0, 5]]),
            tolerance=1e-6 if dtype == "float32" else 1e-9,
        )

REDUCED = ("sum", "prod", "mean", "amax:max", "amin:min", "any", "all", "logsumexp", "argmax",
           "argmin", "nansum", "nanmean", "count_nonzero", "median", "nanmedian", "kthvalue",
           "mode")  # fmt: skip
ALONG = ("softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "sort",
         "argsort", "flip", "topk", "squeeze")  # fmt: skip
for axis in (0, -1):
    for names in (*REDUCED, *ALONG):
        theirs, _, ours = names.partition(":")
        more = (1,) if names in ("kthvalue", "topk") else ()
        case(
            f"{names} of no axes along {axis}",
            lambda x, n=ours or theirs, a=axis, m=more: getattr(f, n)(x, *m, a),
            lambda t, x, n=theirs, a=axis, m=more: _called(t, n, x, *m, a),
            NUMBER,
        )
    case(
        f"var of no axes along {axis}",
        lambda x, a=axis: f.var(x, a),
        lambda t, x, a=axis: t.var(x, a, correction=0),
        NUMBER,
    )
    case(
        f"norm of no axes along {axis}",
        lambda x, a=axis: f.norm(x, 2, a),
        lambda t, x, a=axis: t.linalg.vector_norm(x, 2, a),
        NUMBER,
    )
    case(
        f"quantile of no axes along {axis}",
        lambda x, a=axis: f.quantile(x, 0.3, a),
        lambda t, x, a=axis: t.quantile(x, 0.3, a),
        NUMBER,
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_those_of_pytorch(torch: ModuleType, case: Case) -> None:
    compare(torch, case)
