"""Helpers of test_cuda_reduce.py and of tests beside it."""

from __future__ import annotations

from typing import Any

import graphc
from graphc.ops.pointwise.elementary import ReluGrad
from graphc.trace import emit
from tests.kernels.cuda_harness import (
    traced,
)


def softmax(x: Any) -> Any:
    shifted = graphc.exp(x - graphc.max(x, axis=1, keepdims=True))
    return shifted / graphc.sum(shifted, axis=1, keepdims=True)


def normalised(x: Any, weight: Any, bias: Any) -> Any:
    """Batch norm with its statistics: two stages per channel, then the elements."""
    axes = (0, 2, 3)
    scale = 1.0 / (x.shape[0] * x.shape[2] * x.shape[3])
    mean = graphc.sum(x, axis=axes, keepdims=True) * scale
    centred = x - mean
    variance = graphc.sum(centred * centred, axis=axes, keepdims=True) * scale
    shape = (1, x.shape[1], 1, 1)
    y = centred * graphc.rsqrt(variance + 1e-5) * graphc.reshape(weight, shape)
    return y + graphc.reshape(bias, shape), graphc.reshape(mean, (-1,)), variance


def relu_and_bias(d: Any, y: Any) -> Any:
    """Activation-backward and the bias gradient in one pass."""
    dx = emit(ReluGrad(), d, y)
    return dx, graphc.sum(dx, axis=(0, 2, 3))


def spec(*shape: int, dtype: str = "float32") -> Any:
    return graphc.spec(shape, dtype)


NODES = [
    traced("softmax_rows", softmax, spec(50, 10)),
    traced("softmax_held", softmax, spec(3, 5000)),
    traced("softmax_long", softmax, spec(3, 40000)),
    traced("softmax_columns", softmax, spec(7, 300, 40)),
    traced("softmax_split", softmax, spec(1, 5000, 12)),
    traced("normalised_small", normalised, spec(4, 3, 5, 5), spec(3), spec(3)),
    traced("normalised_split", normalised, spec(160, 3, 16, 16), spec(3), spec(3)),
    traced("bias_split", relu_and_bias, spec(420, 5, 9, 9), spec(420, 5, 9, 9)),
    traced("columns", lambda x: graphc.sum(x, axis=0), spec(40, 70)),
    traced("columns_split", lambda x: graphc.sum(x, axis=0), spec(3000, 70)),
    traced("few_columns", lambda x: graphc.max(x, axis=1), spec(40, 3, 50)),
    traced("everything", lambda x: graphc.sum(x), spec(61, 997)),
    traced("wide_integers", lambda x: graphc.max(x, axis=1), spec(3, 100, dtype="int64")),
    traced("bytes", lambda x: graphc.min(x, axis=1), spec(3, 100, dtype="uint8")),
    traced("mixed", lambda x, y: (graphc.sum(x, axis=1), graphc.sum(y, axis=1)),
           spec(3, 90), spec(3, 90, dtype="int64")),
]  # fmt: skip
