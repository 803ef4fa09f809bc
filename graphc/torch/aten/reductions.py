"""Sums and extrema along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from graphc import functions as f
from graphc.torch.aten.rules import aten, axes_of, dtype_of
from graphc.trace import Tensor

Dims = int | Sequence[int] | None


def _summed(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """`x` in the dtype that a sum or product of it has."""
    exact = x.dtype in ("bool", "u8", "i8", "i32")
    return f.astype(x, dtype_of(dtype, "i64" if exact else x.dtype))


@aten("sum", "sum.dim_IntList")
def sum_(
    x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Tensor:
    return f.sum(_summed(x, dtype), axes_of(dim), keepdims=keepdim)


@aten("mean", "mean.dim")
def mean(
    x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Tensor:
    return f.mean(f.astype(x, dtype_of(dtype, x.dtype)), axes_of(dim), keepdims=keepdim)


@aten("prod")
def prod(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return f.prod(_summed(x, dtype))


@aten("prod.dim_int")
def prod_dim(
    x: Tensor, dim: int, keepdim: bool = False, dtype: torch.dtype | None = None
) -> Tensor:
    return f.prod(_summed(x, dtype), dim, keepdims=keepdim)


@aten("var.correction")
def var(x: Tensor, dim: Dims = None, correction: float | None = None, keepdim: bool = False) -> Any:
    return f.var(x, axes_of(dim), 1 if correction is None else correction, keepdim)


@aten("var_mean.correction")
def var_mean(
    x: Tensor, dim: Dims = None, correction: float | None = None, keepdim: bool = False
) -> Any:
    return var(x, dim, correction, keepdim), f.mean(x, axes_of(dim), keepdims=keepdim)


@aten("amax")
def amax(x: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Tensor:
    return f.max(x, axes_of(dim), keepdim)


@aten("amin")
def amin(x: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Tensor:
    return f.min(x, axes_of(dim), keepdim)


@aten("max.dim")
def max_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return f.max(x, (dim,), keepdim), argmax(x, dim, keepdim)


@aten("min.dim")
def min_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return f.min(x, (dim,), keepdim), argmin(x, dim, keepdim)


@aten("max")
def max_(x: Tensor) -> Tensor:
    return f.max(x)


@aten("min")
def min_(x: Tensor) -> Tensor:
    return f.min(x)


@aten("argmax")
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return f.argmax(x, dim, keepdim)


@aten("argmin")
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return f.argmin(x, dim, keepdim)


@aten("any", "any.dim", "any.dims")
def any_(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return f.any(x, axes_of(dim), keepdim)


@aten("all", "all.dim", "all.dims")
def all_(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return f.all(x, axes_of(dim), keepdim)


@aten("cumsum")
def cumsum(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    return f.cumsum(_summed(x, dtype), dim)


@aten("cumprod")
def cumprod(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    return f.cumprod(_summed(x, dtype), dim)


@aten("logcumsumexp")
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return f.logcumsumexp(x, dim)


@aten("_softmax")
def softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    return f.softmax(x, dim)


@aten("_log_softmax")
def log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    return f.log_softmax(x, dim)


@aten("logsumexp")
def logsumexp(x: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    return f.logsumexp(x, axes_of(dim), keepdim)


@aten("linalg_vector_norm")
def vector_norm(
    x: Tensor,
    order: float = 2,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    return f.norm(f.astype(x, dtype_of(dtype, x.dtype)), order, axes_of(dim), keepdim)


@aten("dist")
def dist(x: Tensor, y: Tensor, order: float = 2) -> Tensor:
    return f.dist(x, y, order)


@aten("histc")
def histc(x: Tensor, bins: int = 100, low: float = 0, high: float = 0) -> Tensor:
    return f.histc(x, bins, low, high)
