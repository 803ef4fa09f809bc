"""Each message that a wrong argument of a neural-network function gives, whole."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from graphc.ir.state import StateBuffer
from tests.functions.failing import Failure

IMAGE, MATRIX = "f32[1,4,8,8]", "f32[2,3]"
ZEROS = SimpleNamespace(state=StateBuffer(np.zeros(2, np.float32)))

CASES: list[Failure] = []


def case(message: str, function: Callable[..., Any], *inputs: str) -> None:
    CASES.append(Failure(message, function, inputs))


case(
    "matmul: f32[2,3] and f32[2,3] have no common inner extent",
    lambda x: x @ x,
    MATRIX,
)
case("matmul: expected 1 axis or more, got f32[2,3] and f32[]", lambda x: x @ 2, MATRIX)
case(
    "matmul: leading axes of f32[2,3,4] and f32[3,4,5] do not broadcast",
    f.matmul,
    "f32[2,3,4]",
    "f32[3,4,5]",
)
case(
    "linear: x f32[2,3] has 3 features, weight f32[5,4] expects 4",
    f.linear,
    MATRIX,
    "f32[5,4]",
)
case("linear: x f32[] has no axes, weight f32[5,4] expects 4", f.linear, "f32[]", "f32[5,4]")
case("linear: expected a weight of 2 axes, got f32[3]", f.linear, MATRIX, "f32[3]")
case(
    "linear: bias f32[4] does not fit weight f32[5,3], which expects [5]",
    f.linear,
    MATRIX,
    "f32[5,3]",
    "f32[4]",
)
case(
    "conv2d: x f32[64,1,28,28] has 1 channels, weight f32[20,3,5,5] expects 3",
    f.conv2d,
    "f32[64,1,28,28]",
    "f32[20,3,5,5]",
)
case(
    "conv2d: bias f32[2] does not fit weight f32[6,4,3,3], which expects [6]",
    f.conv2d,
    IMAGE,
    "f32[6,4,3,3]",
    "f32[2]",
)
case(
    "conv2d: stride expected an integer of 1 or more, or two of them, got 0",
    lambda x, w: f.conv2d(x, w, stride=0),
    IMAGE,
    "f32[6,4,3,3]",
)
case(
    "conv2d: padding expected an integer of 0 or more, or two of them, got (1, 2, 3)",
    lambda x, w: f.conv2d(x, w, padding=(1, 2, 3)),
    IMAGE,
    "f32[6,4,3,3]",
)
case(
    "conv2d: groups expected a positive integer, got 0",
    lambda x, w: f.conv2d(x, w, groups=0),
    IMAGE,
    "f32[6,4,3,3]",
)
case(
    'conv2d: padding expected numbers, "same" or "valid", got \'full\'',
    lambda x, w: f.conv2d(x, w, padding="full"),
    IMAGE,
    "f32[6,4,3,3]",
)
case(
    'conv2d: padding="same" expected stride 1, got (2, 2)',
    lambda x, w: f.conv2d(x, w, padding="same", stride=2),
    IMAGE,
    "f32[6,4,3,3]",
)
case(
    "conv2d: x f32[1,4,8,8] and weight f32[6,4,3] must have 4 axes each",
    lambda x, w: f.conv2d(x, w, padding="same"),
    IMAGE,
    "f32[6,4,3]",
)
case(
    "conv1d: x f32[2,3] and weight f32[2,3] must have 3 axes each",
    f.conv1d,
    MATRIX,
    MATRIX,
)
case(
    "conv1d: stride expected an integer of 1 or more, got (1, 1)",
    lambda x, w: f.conv1d(x, w, stride=(1, 1)),
    MATRIX,
    "f32[1,2,3]",
)
case(
    "conv_transpose2d: output_padding (2, 1) is not below stride (1, 1) or dilation (2, 2)",
    lambda x, w: f.conv_transpose2d(x, w, output_padding=(2, 1), dilation=2),
    "f32[1,4,8,8]",
    "f32[4,3,2,2]",
)
case(
    "conv_transpose2d: x f32[1,4,8,8] and weight f32[3,4,2,2] must have 4 axes each and the same "
    "number of channels in axis 1 of x and axis 0 of weight",
    f.conv_transpose2d,
    IMAGE,
    "f32[3,4,2,2]",
)
case(
    "conv_transpose2d: groups expected a divisor of 4 channels, got 3",
    lambda x, w: f.conv_transpose2d(x, w, groups=3),
    IMAGE,
    "f32[4,3,2,2]",
)
case(
    "conv_transpose2d: output_padding (1, 1) is not below stride (1, 1)",
    lambda x, w: f.conv_transpose2d(x, w, output_padding=1),
    IMAGE,
    "f32[4,3,2,2]",
)
case(
    "conv_transpose2d: padding (9, 9) leaves nothing of x f32[1,4,8,8]",
    lambda x, w: f.conv_transpose2d(x, w, padding=9),
    IMAGE,
    "f32[4,3,2,2]",
)
case(
    "conv_transpose2d: bias f32[2] does not fit the 3 output channels",
    f.conv_transpose2d,
    IMAGE,
    "f32[4,3,2,2]",
    "f32[2]",
)
case(
    "scaled_dot_product_attention: expected query [..., t, e], key [..., u, e] and value "
    "[..., u, d], got f32[2,3], f32[2,4] and f32[2,3]",
    f.scaled_dot_product_attention,
    MATRIX,
    "f32[2,4]",
    MATRIX,
)
case(
    "scaled_dot_product_attention: shapes do not broadcast: f32[2,3], f32[2,3], f32[2,3] and "
    "bool[3,2]",
    lambda x: f.scaled_dot_product_attention(x, x, x, np.ones((3, 2), bool)),
    MATRIX,
)
case(
    "scaled_dot_product_attention: dropout_p expected a probability from 0 to 1, got 1.5",
    lambda x: f.scaled_dot_product_attention(x, x, x, dropout_p=1.5),
    MATRIX,
)
case(
    "scaled_dot_product_attention: enable_gqa expected a multiple of equal heads of key and value "
    "for query, got 4, 3 and 3",
    lambda q, k: f.scaled_dot_product_attention(q, k, k, enable_gqa=True),
    "f32[2,4,5,6]",
    "f32[2,3,5,6]",
)
case(
    "max_pool2d: kernel_size expected an integer of 1 or more, or two of them, got 2.0",
    lambda x: f.max_pool2d(x, 2.0),
    IMAGE,
)
case(
    "avg_pool2d: expected x of 4 axes [n, c, h, w], got f32[2,3]",
    lambda x: f.avg_pool2d(x, 2),
    MATRIX,
)
case("softmax: axis 2 is out of range for x f32[2,3]", lambda x: f.softmax(x, 2), MATRIX)
case(
    'gelu: approximate expected "none" or "tanh", got \'erf\'',
    lambda x: f.gelu(x, "erf"),
    MATRIX,
)
case("dropout: p expected a probability from 0 to 1, got 1.5", lambda x: f.dropout(x, 1.5), MATRIX)
case("batch_norm: expected x of 2 axes or more, got f32[3]", f.batch_norm, "f32[3]")
case(
    "batch_norm: running_mean and running_var go together, only one is given",
    lambda x: f.batch_norm(x, np.zeros(3)),
    MATRIX,
)
case(
    "batch_norm: x f32[2,3] has 3 channels, weight f32[4] does not",
    lambda x, w: f.batch_norm(x, weight=w),
    MATRIX,
    "f32[4]",
)
case(
    "batch_norm: running_mean f64[3] is not a parameter, so nothing keeps it",
    lambda x: f.batch_norm(x, np.zeros(3), np.ones(3), training=True),
    MATRIX,
)
case(
    "batch_norm: expected more than 1 element per channel in training, got x f32[1,2]",
    lambda x: f.batch_norm(x, ZEROS, ZEROS, training=True),
    "f32[1,2]",
)
case(
    "layer_norm: x f32[2,3] does not end in normalized_shape [2]",
    lambda x: f.layer_norm(x, 2),
    MATRIX,
)
case(
    "layer_norm: bias f32[2] does not have normalized_shape [3]",
    lambda x, b: f.layer_norm(x, 3, None, b),
    MATRIX,
    "f32[2]",
)
case(
    "group_norm: 3 groups do not divide the channels of x f32[1,4,8,8]",
    lambda x: f.group_norm(x, 3),
    IMAGE,
)
case(
    "cross_entropy: expected integer labels, got bool[2]",
    f.cross_entropy,
    MATRIX,
    "bool[2]",
)
case(
    "cross_entropy: logits f32[2,3] and labels i32[3] do not fit",
    f.cross_entropy,
    MATRIX,
    "i32[3]",
)
case(
    "cross_entropy: logits f32[2,3] and class probabilities f32[2] differ in shape",
    f.cross_entropy,
    MATRIX,
    "f32[2]",
)
case(
    "cross_entropy: logits f32[2,3] have 3 classes, weight f32[4] does not",
    f.cross_entropy,
    MATRIX,
    "i32[2]",
    "f32[4]",
)
case(
    'cross_entropy: reduction expected "mean", "sum" or "none", got \'max\'',
    lambda x, y: f.cross_entropy(x, y, reduction="max"),
    MATRIX,
    "i32[2]",
)
case("nll_loss: expected logits of 1 axis or more, got f32[]", f.nll_loss, "f32[]", "i32[]")
case(
    "mse_loss: input f32[2,3] and target f32[3] differ in shape",
    f.mse_loss,
    MATRIX,
    "f32[3]",
)


@pytest.mark.parametrize("failure", CASES, ids=str)
def test_a_wrong_argument_is_named_with_the_users_line(failure: Failure) -> None:
    failure.check()
