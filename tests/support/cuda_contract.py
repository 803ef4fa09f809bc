"""Helpers of test_cuda_contract.py and of tests beside it."""

from __future__ import annotations

from typing import Any

import graphc
from tests.kernels.cuda_harness import (
    traced,
)


def transposed(x: Any) -> Any:
    return graphc.permute_dims(x, (1, 0))


def relu_bias(x: Any, w: Any, b: Any) -> Any:
    return graphc.relu(graphc.conv2d(x, w, b, padding=1))


def two_outputs(x: Any, w: Any, b: Any, r: Any) -> Any:
    y = graphc.matmul(x, transposed(w)) + b
    return graphc.tanh(y) + r, y


def spec(*shape: int, dtype: str = "float32") -> Any:
    return graphc.spec(shape, dtype)


NODES = [
    traced("nn", graphc.matmul, spec(66, 40), spec(40, 72)),
    traced("nt", lambda a, b: graphc.matmul(a, transposed(b)), spec(66, 40), spec(72, 40)),
    traced("tn", lambda a, b: graphc.matmul(transposed(a), b), spec(40, 66), spec(40, 72)),
    traced(
        "tt", lambda a, b: graphc.matmul(transposed(a), transposed(b)), spec(40, 66), spec(7, 40)
    ),
    traced("long_sum", graphc.matmul, spec(12, 1000), spec(1000, 9)),
    traced("wide", graphc.matmul, spec(3, 20), spec(20, 700)),
    traced("batched", graphc.matmul, spec(3, 2, 9, 20), spec(2, 20, 12)),
    traced("doubles", graphc.matmul, spec(9, 20, dtype="float64"), spec(20, 12, dtype="float64")),
    traced("integers", graphc.matmul, spec(9, 20, dtype="int32"), spec(20, 12, dtype="int32")),
    traced("bytes", graphc.matmul, spec(9, 21, dtype="uint8"), spec(21, 12, dtype="uint8")),
    traced("two_outputs", two_outputs, spec(33, 20), spec(12, 20), spec(12), spec(33, 12)),
    traced("conv_bias_relu", relu_bias, spec(2, 4, 8, 8), spec(6, 4, 3, 3), spec(6)),
    traced("sliced", lambda x, w: graphc.matmul(x[:, 4:24:2], w[::-1]), spec(9, 30), spec(10, 8)),
]
