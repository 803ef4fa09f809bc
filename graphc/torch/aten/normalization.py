"""Normalisations, with the statistics that their gradients read."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc import functions as f
from graphc.torch.aten.rules import aten, pull
from graphc.trace import Tensor

Maybe = Tensor | None


def _standard(x: Tensor, axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x normalised, mean, 1 / sqrt(variance + eps)), the last two with axes of extent 1."""
    wide = f.astype(x, "f32") if x.dtype in ("f16", "bf16") else x
    mean = f.mean(wide, axes, keepdims=True)
    scale = f.rsqrt(f.add(f.var(wide, axes, keepdims=True), eps))
    return f.multiply(f.subtract(wide, mean), scale), mean, scale


def _mean_of_moments(mean: Tensor, scale: Tensor) -> Tensor:
    """The mean as PyTorch finds it with the variance: NaN where an element is infinite."""
    return f.where(f.isnan(scale), f.as_tensor(math.nan, mean.dtype), mean)


def _affine(y: Tensor, weight: Maybe, bias: Maybe, shape: Sequence[int], dtype: str) -> Tensor:
    if weight is not None:
        y = f.multiply(y, f.reshape(weight, tuple(shape)))
    if bias is not None:
        y = f.add(y, f.reshape(bias, tuple(shape)))
    return f.astype(y, dtype)


@aten("layer_norm")
def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Maybe = None,
    bias: Maybe = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    return f.layer_norm(x, tuple(normalized_shape), weight, bias, eps)


@aten("native_layer_norm")
def native_layer_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Maybe, bias: Maybe, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    y, mean, scale = _standard(x, axes, eps)
    return _affine(y, weight, bias, normalized_shape, x.dtype), _mean_of_moments(mean, scale), scale


@aten("native_group_norm")
def native_group_norm(
    x: Tensor, weight: Maybe, bias: Maybe, n: int, c: int, hw: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, scale = _standard(f.reshape(x, (n, groups, c // groups, hw)), (2, 3), eps)
    shape = (1, c, *[1] * (x.ndim - 2))
    whole = _affine(f.reshape(y, x.shape), weight, bias, shape, x.dtype)
    mean = _mean_of_moments(mean, scale)
    return whole, f.reshape(mean, (n, groups)), f.reshape(scale, (n, groups))


@aten("_native_batch_norm_legit_functional")
def batch_norm(
    x: Tensor,
    weight: Maybe,
    bias: Maybe,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(y, the batch's mean and scale, the running mean and variance afterwards)."""
    if not training:
        y, mean, scale = batch_norm_no_training(
            x, weight, bias, running_mean, running_var, momentum, eps
        )
        return y, mean, scale, running_mean, running_var
    y, mean, scale = batch_norm_no_stats(x, weight, bias, True, momentum, eps)
    axes, count = (0, *range(2, x.ndim)), x.size // x.shape[1]
    # The biased one is what y is scaled by too.
    variance = f.multiply(f.var(x, axes), count / (count - 1) if count > 1 else 1)
    means = f.add(f.multiply(mean, momentum), f.multiply(running_mean, 1 - momentum))
    variances = f.add(f.multiply(variance, momentum), f.multiply(running_var, 1 - momentum))
    return y, mean, scale, f.astype(means, running_mean.dtype), f.astype(
        variances, running_var.dtype
    )  # fmt: skip


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    x: Tensor, weight: Maybe, bias: Maybe, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, scale = _standard(x, (0, *range(2, x.ndim)), eps)
    c = x.shape[1]
    whole = _affine(y, weight, bias, (1, c, *[1] * (x.ndim - 2)), x.dtype)
    return whole, f.reshape(mean, (c,)), f.reshape(scale, (c,))


@aten("_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    x: Tensor,
    weight: Maybe,
    bias: Maybe,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    shape = (1, x.shape[1], *[1] * (x.ndim - 2))
    scale = f.rsqrt(f.add(running_var, eps))
    y = f.multiply(f.subtract(x, f.reshape(running_mean, shape)), f.reshape(scale, shape))
    nothing = f.zeros((0,), x.dtype)
    return _affine(y, weight, bias, shape, x.dtype), nothing, nothing


@aten("_weight_norm_interface_backward")
def weight_norm_backward(
    dw: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, ...]:
    """The gradients by v and g of w = g v / |v|, the norm being over all axes but `dim`."""
    axes = tuple(axis for axis in range(v.ndim) if axis != dim)

    def scaled(v: Tensor, g: Tensor) -> Tensor:
        return f.multiply(v, f.divide(g, f.norm(v, 2, axes, True)))

    return pull(scaled, dw, v, g)
