"""Operators that draw random numbers from graphc's seed, for models from `from_torch` only.

Under torch.compile, PyTorch draws them from its own generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from graphc import functions as f
from graphc.torch.aten.rules import Rule, aten, dtype_of
from graphc.trace import Tensor


@aten("native_dropout", draws=True)
def native_dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(y, where elements stay); nobody reads the places but PyTorch's own gradient."""
    return f.dropout(x, float(p), train is not False), f.ones(x.shape, "bool")


@aten("bernoulli", draws=True)
def bernoulli(x: Tensor, generator: object = None) -> Tensor:
    return f.bernoulli(x)


@aten("bernoulli.p", draws=True)
def bernoulli_of(x: Tensor, p: float = 0.5, generator: object = None) -> Tensor:
    return f.bernoulli(f.full(x.shape, p, x.dtype))


def _of_shape(draw: Callable[..., Tensor]) -> Rule:
    def rule(shape: Sequence[int], dtype: torch.dtype | None = None, **placed: Any) -> Tensor:
        return draw(tuple(shape), dtype_of(dtype))

    return rule


def _like(draw: Callable[..., Tensor]) -> Rule:
    def rule(x: Tensor, dtype: torch.dtype | None = None, **placed: Any) -> Tensor:
        return draw(x.shape, dtype_of(dtype, x.dtype))

    return rule


for _name, _draw in (("rand", f.rand), ("randn", f.randn)):
    aten(_name, draws=True)(_of_shape(_draw))
    aten(f"{_name}_like", draws=True)(_like(_draw))


@aten("randint", "randint.low", draws=True)
def randint(*given: Any, dtype: torch.dtype | None = None, **placed: Any) -> Tensor:
    """`given`: the lowest number unless it is 0, the end, the shape."""
    *low, high, shape = given
    return f.randint(low[0] if low else 0, high, tuple(shape), dtype_of(dtype, "i64"))


@aten("randperm", draws=True)
def randperm(n: int, dtype: torch.dtype | None = None, **placed: Any) -> Tensor:
    return f.randperm(n, dtype_of(dtype, "i64"))


@aten("normal_functional", draws=True)
def normal(x: Tensor, mean: float = 0.0, std: float = 1.0, generator: object = None) -> Tensor:
    return f.astype(f.normal(mean, std, x.shape), x.dtype)


@aten("uniform", draws=True)
def uniform(x: Tensor, low: float = 0.0, high: float = 1.0, generator: object = None) -> Tensor:
    return f.add(f.multiply(f.rand(x.shape, x.dtype), high - low), low)


@aten("exponential", draws=True)
def exponential(x: Tensor, rate: float = 1.0, generator: object = None) -> Tensor:
    """-log(1 - u) / rate of uniform u in [0, 1)."""
    return f.divide(f.negative(f.log1p(f.negative(f.rand(x.shape, x.dtype)))), rate)


@aten("rrelu_with_noise_functional", draws=True)
def rrelu(
    x: Tensor, noise: Tensor, lower: float, upper: float, train: bool, generator: object = None
) -> tuple[Tensor, Tensor]:
    """(y, the slopes, which nobody reads but PyTorch's own gradient)."""
    return f.rrelu(x, lower, upper, train), noise


@aten("scaled_dot_product_attention", draws=True)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    return f.scaled_dot_product_attention(
        query, key, value, attn_mask, float(dropout_p), is_causal, scale, enable_gqa
    )
