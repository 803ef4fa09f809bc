"""Normalisations and losses."""

from __future__ import annotations

from typing import Any

from graphc import functions as f
from graphc.onnx.operators.products import windowed_sum
from graphc.onnx.operators.rules import operator, wide
from graphc.trace import Tensor


def _of_channels(value: Tensor, x: Tensor) -> Tensor:
    return f.reshape(value, (1, -1, *[1] * (x.ndim - 2)))


def _scaled(normal: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """`normal` with a scale and a bias for each channel."""
    return f.add(f.multiply(normal, _of_channels(scale, normal)), _of_channels(bias, normal))


@operator("BatchNormalization")
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
    is_test: int = 1,
    consumed_inputs: Any = None,
    outputs: int = 1,
) -> Any:
    """With the new running statistics where it trains."""
    if not training_mode:
        normal = f.multiply(
            f.subtract(x, _of_channels(mean, x)), _of_channels(f.rsqrt(f.add(var, epsilon)), x)
        )
        return f.astype(_scaled(normal, scale, bias), x.dtype)
    axes = (0, *range(2, x.ndim))
    own, spread = f.mean(x, axes), f.var(x, axes)
    y = batch_normalization(x, scale, bias, own, spread, epsilon)
    running = [
        f.add(f.multiply(old, momentum), f.multiply(new, 1 - momentum))
        for old, new in ((mean, own), (var, spread))
    ]
    return (y, *running)[:outputs]


@operator("InstanceNormalization")
def instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Tensor:
    y, _, _ = standard(x, tuple(range(2, x.ndim)), epsilon)
    return f.astype(_scaled(y, scale, bias), x.dtype)


def standard(x: Tensor, axes: tuple[int, ...], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x normalised, mean, 1 / sqrt(variance + epsilon)), the last two with axes of extent 1."""
    x = wide(x)
    mean = f.mean(x, axes, keepdims=True)
    scale = f.rsqrt(f.add(f.var(x, axes, keepdims=True), epsilon))
    return f.multiply(f.subtract(x, mean), scale), mean, scale


@operator("LayerNormalization")
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> Any:
    y, mean, spread = standard(x, tuple(range(axis % x.ndim, x.ndim)), epsilon)
    y = f.multiply(f.astype(y, x.dtype), scale)
    y = y if bias is None else f.add(y, bias)
    return (y, mean, spread)[:outputs]


@operator("RMSNormalization")
def rms_normalization(
    x: Tensor, scale: Tensor, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    floats = wide(x)
    axes = tuple(range(axis % x.ndim, x.ndim))
    spread = f.rsqrt(f.add(f.mean(f.square(floats), axes, keepdims=True), epsilon))
    return f.multiply(f.astype(f.multiply(floats, spread), x.dtype), scale)


@operator("GroupNormalization")
def group_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    opset: int = 21,
) -> Tensor:
    """Before version 21 scale and bias had an element for each group."""
    n, c = x.shape[:2]
    grouped = f.reshape(x, (n, num_groups, -1))
    y = f.reshape(f.astype(standard(grouped, (2,), epsilon)[0], x.dtype), x.shape)
    if opset < 21:
        scale, bias = (f.repeat(t, c // num_groups, 0) for t in (scale, bias))
    return _scaled(y, scale, bias)


@operator("LRN")
def local_response_normalization(
    x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """The sum goes over (size - 1) // 2 channels before, and the rest behind."""
    n, c = x.shape[:2]
    rows = f.reshape(f.square(x), (n, 1, c, -1))
    before = (size - 1) // 2
    padded = f.pad(rows, [(0, 0), (0, 0), (before, size - 1 - before), (0, 0)])
    total = f.reshape(windowed_sum(padded, (size, 1), (1, 1), (1, 1)), x.shape)
    return f.divide(x, f.pow(f.add(f.multiply(total, alpha / size), bias), beta))


@operator("LpNormalization")
def lp_normalization(x: Tensor, axis: int = -1, p: int = 2) -> Tensor:
    """Zeros where the norm is zero."""
    length = f.norm(x, p, axis, keepdims=True)
    return f.divide(x, f.where(f.equal(length, 0), f.as_tensor(1, x.dtype), length))


@operator("MeanVarianceNormalization")
def mean_variance_normalization(x: Tensor, axes: Any = (0, 2, 3)) -> Tensor:
    places = tuple(sorted(a % x.ndim for a in axes))
    mean = f.mean(x, places, keepdims=True)
    spread = f.sqrt(f.var(x, places, keepdims=True))
    return f.divide(f.subtract(x, mean), f.add(spread, 1e-9))


def _picked(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None,
    ignore_index: int | None,
    reduction: str,
) -> Tensor:
    """Minus the score [n, c, ...] of each label [n, ...], weighed by its class."""
    ignored = None if ignore_index is None else f.equal(labels, ignore_index)
    inside = labels if ignored is None else f.where(ignored, f.as_tensor(0, labels.dtype), labels)
    found = f.take_along_axis(scores, f.expand_dims(inside, 1), 1)
    loss = f.negative(f.squeeze(found, 1))
    shares = None if weights is None else f.take(weights, inside, 0)
    if ignored is not None:
        shares = f.ones(loss.shape, loss.dtype) if shares is None else shares
        shares = f.where(ignored, f.as_tensor(0, shares.dtype), shares)
    if shares is not None:
        loss = f.multiply(loss, shares)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return f.sum(loss)
    return f.mean(loss) if shares is None else f.divide(f.sum(loss), f.sum(shares))


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    return _picked(scores, labels, weights, ignore_index, reduction)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
    outputs: int = 1,
) -> Any:
    """With the logarithms of the shares."""
    logarithms = f.log_softmax(scores, 1)
    loss = _picked(logarithms, labels, weights, ignore_index, reduction)
    return (loss, logarithms)[:outputs]
