"""Losses and normalisations against PyTorch's: values and gradients."""

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


def case(name: str, ours: Function, theirs: Function, *inputs: np.ndarray) -> None:
    CASES.append(Case(name, ours, theirs, inputs))


X, Y = normal(4, 5) * 2, normal(4, 5, seed=1)
SHARES = 1 / (1 + np.exp(-normal(4, 5, seed=2)))
SIGNS = labels(2, 4, 5) * 2.0 - 1
FLAGS = labels(2, 4, 5).astype(np.float64)
IMAGE = normal(2, 4, 3, 5)

PAIRS: dict[str, tuple[np.ndarray, np.ndarray, dict[str, Any]]] = {
    "smooth_l1_loss": (X, Y, {"beta": 0.7}),
    "huber_loss": (X, Y, {"delta": 0.7}),
    "binary_cross_entropy": (SHARES, FLAGS, {}),
    "kl_div": (X, SHARES, {}),
    "hinge_embedding_loss": (X, SIGNS, {"margin": 0.5}),
    "poisson_nll_loss": (X, SHARES, {}),
}
for name, (a, b, settings) in PAIRS.items():
    for reduction in ("batchmean" if name == "kl_div" else "mean", "sum", "none"):
        case(
            f"{name} {reduction}",
            lambda a, b, n=name, s=settings, r=reduction: getattr(f, n)(a, b, reduction=r, **s),
            lambda t, a, b, n=name, s=settings, r=reduction: getattr(t.nn.functional, n)(
                a, b, reduction=r, **s
            ),
            a,
            b,
        )
case(
    "smooth_l1_loss without a curve",
    lambda a, b: f.smooth_l1_loss(a, b, beta=0.0),
    lambda t, a, b: t.nn.functional.smooth_l1_loss(a, b, beta=0.0),
    X,
    Y,
)
case(
    "kl_div of logarithms",
    lambda a, b: f.kl_div(a, b, "batchmean", log_target=True),
    lambda t, a, b: t.nn.functional.kl_div(a, b, reduction="batchmean", log_target=True),
    X,
    Y,
)
case(
    "poisson_nll_loss of a rate",
    lambda a, b: f.poisson_nll_loss(a, b, log_input=False),
    lambda t, a, b: t.nn.functional.poisson_nll_loss(a, b, log_input=False),
    SHARES,
    Y,
)
case(
    "poisson_nll_loss in full",
    lambda a, b: f.poisson_nll_loss(a, b, full=True),
    lambda t, a, b: t.nn.functional.poisson_nll_loss(a, b, full=True),
    X,
    3 * SHARES,
)
case(
    "soft_margin_loss",
    lambda a: f.soft_margin_loss(a, SIGNS),
    lambda t, a: t.nn.functional.soft_margin_loss(a, t.tensor(SIGNS)),
    X,
)
case(
    "binary_cross_entropy with weights",
    lambda a: f.binary_cross_entropy(a, FLAGS, SHARES),
    lambda t, a: t.nn.functional.binary_cross_entropy(a, t.tensor(FLAGS), t.tensor(SHARES)),
    SHARES[::-1].copy(),
)
for weights in (
    {},
    {"weight": SHARES},
    {"pos_weight": SHARES[0]},
    {"weight": SHARES, "pos_weight": SHARES},
):
    case(
        f"binary_cross_entropy_with_logits {list(weights)}",
        lambda a, w=weights: f.binary_cross_entropy_with_logits(a, FLAGS, **w),
        lambda t, a, w=weights: t.nn.functional.binary_cross_entropy_with_logits(
            a, t.tensor(FLAGS), **{k: t.tensor(v) for k, v in w.items()}
        ),
        X,
    )
case(
    "gaussian_nll_loss",
    lambda a, b, v: f.gaussian_nll_loss(a, b, v, full=True),
    lambda t, a, b, v: t.nn.functional.gaussian_nll_loss(a, b, v, full=True),
    X,
    Y,
    SHARES,
)
case(
    "cosine_similarity",
    f.cosine_similarity,
    lambda t, a, b: t.nn.functional.cosine_similarity(a, b),
    X,
    Y,
)
case(
    "cosine_embedding_loss",
    lambda a, b: f.cosine_embedding_loss(a, b, np.array([1, -1, -1, 1]), 0.1),
    lambda t, a, b: t.nn.functional.cosine_embedding_loss(a, b, t.tensor([1, -1, -1, 1]), 0.1),
    X,
    Y,
)
case(
    "margin_ranking_loss",
    lambda a, b: f.margin_ranking_loss(a, b, SIGNS, 0.3),
    lambda t, a, b: t.nn.functional.margin_ranking_loss(a, b, t.tensor(SIGNS), 0.3),
    X,
    Y,
)
case(
    "triplet_margin_loss",
    lambda a, b, c: f.triplet_margin_loss(a, b, c, 0.5),
    lambda t, a, b, c: t.nn.functional.triplet_margin_loss(a, b, c, 0.5),
    X,
    Y,
    normal(4, 5, seed=3),
)
case(
    "triplet_margin_loss with swap",
    lambda a, b, c: f.triplet_margin_loss(a, b, c, 0.5, swap=True),
    lambda t, a, b, c: t.nn.functional.triplet_margin_loss(a, b, c, 0.5, swap=True),
    X,
    Y,
    normal(4, 5, seed=3),
)
case(
    "pairwise_distance",
    lambda a, b: f.pairwise_distance(a, b, 3.0, keepdims=True),
    lambda t, a, b: t.nn.functional.pairwise_distance(a, b, 3.0, keepdim=True),
    X,
    Y,
)
case(
    "cross_entropy leaves out -100",
    lambda x: f.cross_entropy(x, np.array([1, -100, 0, 2])),
    lambda t, x: t.nn.functional.cross_entropy(x, t.tensor([1, -100, 0, 2])),
    X,
)
case(
    "cross_entropy with everything",
    lambda x: f.cross_entropy(x, np.array([1, -100, 0, 2]), SHARES[0], -100, "mean", 0.2),
    lambda t, x: t.nn.functional.cross_entropy(
        x,
        t.tensor([1, -100, 0, 2]),
        t.tensor(SHARES[0]),
        ignore_index=-100,
        label_smoothing=0.2,
    ),
    X,
)

SCALE, SHIFT = normal(4, seed=4), normal(4, seed=5)
case(
    "instance_norm",
    lambda x, w, b: f.instance_norm(x, None, None, w, b),
    lambda t, x, w, b: t.nn.functional.instance_norm(x, weight=w, bias=b),
    IMAGE,
    SCALE,
    SHIFT,
)
case(
    "rms_norm",
    lambda x, w: f.rms_norm(x, (3, 5), w, 1e-3),
    lambda t, x, w: t.nn.functional.rms_norm(x, (3, 5), w, 1e-3),
    IMAGE,
    normal(3, 5),
)
case(
    "rms_norm by default",
    lambda x: f.rms_norm(x, 5),
    lambda t, x: t.nn.functional.rms_norm(x, (5,)),
    IMAGE * 1e-8,
)
for p in (2.0, 1.0):
    case(
        f"normalize {p}",
        lambda x, p=p: f.normalize(x, p, 2),
        lambda t, x, p=p: t.nn.functional.normalize(x, p, 2),
        IMAGE,
    )
case("normalize nothing", f.normalize, lambda t, x: t.nn.functional.normalize(x), IMAGE * 0)
for size in (1, 2, 3):
    case(
        f"local_response_norm {size}",
        lambda x, s=size: f.local_response_norm(x, s, 0.1),
        lambda t, x, s=size: t.nn.functional.local_response_norm(x, s, 0.1),
        IMAGE,
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_equal_torchs(torch: ModuleType, case: Case) -> None:
    compare(torch, case)
