"""Random numbers: graphc's own, governed by its seeds; a node's `seed` is not looked at."""

from __future__ import annotations

from typing import Any

from graphc import functions as f
from graphc.onnx.dtypes import dtype_from
from graphc.onnx.operators.rules import operator, wide
from graphc.trace import Tensor


def _dtype(dtype: int | None, like: Tensor | None = None) -> str:
    return dtype_from(dtype or 1) if dtype or like is None else like.dtype


def _uniform(shape: Any, kind: str, low: float, high: float) -> Tensor:
    return f.astype(f.add(f.multiply(f.rand(tuple(shape)), high - low), low), kind)


def _normal(shape: Any, kind: str, mean: float, scale: float) -> Tensor:
    return f.astype(f.add(f.multiply(f.randn(tuple(shape)), scale), mean), kind)


@operator("RandomUniform", draws=True)
def random_uniform(
    shape: Any,
    dtype: int | None = None,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
) -> Tensor:
    return _uniform(shape, _dtype(dtype), low, high)


@operator("RandomUniformLike", draws=True)
def random_uniform_like(
    x: Tensor,
    dtype: int | None = None,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
) -> Tensor:
    return _uniform(x.shape, _dtype(dtype, x), low, high)


@operator("RandomNormal", draws=True)
def random_normal(
    shape: Any,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:
    return _normal(shape, _dtype(dtype), mean, scale)


@operator("RandomNormalLike", draws=True)
def random_normal_like(
    x: Tensor,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:
    return _normal(x.shape, _dtype(dtype, x), mean, scale)


@operator("Multinomial", draws=True)
def multinomial(
    x: Tensor, dtype: int | None = 6, sample_size: int = 1, seed: float | None = None
) -> Tensor:
    """Of the logarithms of probabilities, unnormalised."""
    drawn = f.multinomial(f.softmax(wide(x), -1), sample_size, True)
    return f.astype(drawn, _dtype(dtype))


@operator("Bernoulli", draws=True)
def bernoulli(x: Tensor, dtype: int | None = None, seed: float | None = None) -> Tensor:
    return f.astype(f.less(f.rand(x.shape), wide(x)), _dtype(dtype, x))
