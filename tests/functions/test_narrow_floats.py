"""Functions on f16 and bf16: what f32 gives for the same numbers, but for roundings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from graphc.base.dtypes import convert, shown
from graphc.ir import DTYPES, NARROW

EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7}
LABELS = np.array([1, 0, 3])
PLACES = np.array([2, 0])
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "adaptive_avg_pool2d": (lambda x: f.adaptive_avg_pool2d(x, (3, 2)), ((2, 3, 7, 5),)),
    "affine_grid": (lambda t: f.affine_grid(t, (2, 1, 3, 4)), ((2, 2, 3),)),
    "argsort": (lambda x: f.argsort(x, axis=1), ((3, 7),)),
    "attention": (f.scaled_dot_product_attention, ((2, 5, 4), (2, 6, 4), (2, 6, 4))),
    "avg_pool2d": (lambda x: f.avg_pool2d(x, 3, 2, 1, count_include_pad=False), ((2, 3, 7, 5),)),
    "batch_norm": (lambda x, w: f.batch_norm(x, weight=w), ((4, 3, 5), (3,))),
    "clip": (lambda x: f.clip(x, -0.5, 0.7), ((3, 7),)),
    "conv_transpose2d": (
        lambda x, w: f.conv_transpose2d(x, w, stride=2),
        ((1, 2, 3, 4), (2, 3, 2, 2)),
    ),
    "cosine_similarity": (f.cosine_similarity, ((3, 7), (3, 7))),
    "cross_entropy": (lambda x: f.cross_entropy(x, LABELS, label_smoothing=0.1), ((3, 7),)),
    "cumsum": (lambda x: f.cumsum(x, axis=1), ((3, 7),)),
    "einsum": (lambda x, y: f.einsum("ij,kj->ik", x, y), ((3, 7), (4, 7))),
    "gelu": (lambda x: f.gelu(x, approximate="tanh"), ((3, 7),)),
    "group_norm": (lambda x: f.group_norm(x, 2), ((3, 4, 5),)),
    "huber_loss": (f.huber_loss, ((3, 7), (3, 7))),
    "interpolate": (lambda x: f.interpolate(x, size=(5, 9), mode="bilinear"), ((1, 2, 3, 4),)),
    "layer_norm": (lambda x, w, b: f.layer_norm(x, (7,), w, b), ((3, 7), (7,), (7,))),
    "linear": (f.linear, ((3, 7), (4, 7), (4,))),
    "logsumexp": (lambda x: f.logsumexp(x, axis=0), ((3, 7),)),
    "max_pool2d": (lambda x: f.max_pool2d(x, 2), ((2, 3, 6, 5),)),
    "nan_to_num": (lambda x: f.nan_to_num(f.log(x)), ((3, 7),)),
    "norm": (lambda x: f.norm(x, axis=1), ((3, 7),)),
    "one_row": (lambda x: f.take(x, PLACES, axis=0), ((3, 7),)),
    "pad": (lambda x: f.pad(x, ((0, 0), (0, 0), (1, 2)), mode="reflect"), ((2, 3, 7),)),
    "pow": (lambda x: f.abs(x) ** 1.5, ((3, 7),)),
    "rms_norm": (lambda x: f.rms_norm(x, (7,)), ((3, 7),)),
    "silu": (f.silu, ((3, 7),)),
    "softmax": (lambda x: f.softmax(x, axis=1), ((3, 7),)),
    "sort": (lambda x: f.sort(x, axis=1), ((3, 7),)),
    "std": (lambda x: f.std(x, axis=1), ((3, 7),)),
    "topk": (lambda x: f.topk(x, 3, axis=1), ((3, 7),)),
    "tril": (f.tril, ((5, 5),)),
    "unfold": (lambda x: f.unfold(x, 2), ((1, 2, 4, 5),)),
    "where": (lambda x: f.where(x > 0, x, -2.5), ((3, 7),)),
}


def leaves(results: Any) -> list[np.ndarray]:
    return list(results) if isinstance(results, tuple | list) else [results]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_differs_from_float32_by_roundings(name: str, dtype: str) -> None:
    function, shapes = FUNCTIONS[name]
    random = np.random.default_rng(0)
    arrays = [shown(convert(random.normal(size=s), DTYPES[dtype])) for s in shapes]
    with np.errstate(all="ignore"):
        narrow = graphc.compile(
            function, *(graphc.spec(s, dtype) for s in shapes), device="reference"
        )
        wide = graphc.compile(function, *map(graphc.spec, shapes), device="reference")
        exact = leaves(wide(*(a.astype(np.float32) for a in arrays)))
        found = leaves(narrow(*arrays))
    for got, want in zip(found, exact, strict=True):
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
            continue
        assert got.dtype == (np.float16 if dtype == "f16" else np.float32)
        np.testing.assert_array_equal(shown(convert(got, DTYPES[dtype])), got)
        size = np.abs(want[np.isfinite(want) & (np.abs(want) < 1e4)]).max(initial=1e-3)
        np.testing.assert_allclose(
            got.astype(np.float64),
            np.clip(want, -3.4e38, 3.4e38) if dtype == "bf16" else np.clip(want, -65504, 65504),
            rtol=EPSILON[dtype],
            atol=EPSILON[dtype] * size,
        )
