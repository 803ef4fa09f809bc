"""Each message that a wrong argument of the less usual functions gives, whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from tests.functions.failing import Failure

MATRIX, CUBE, IMAGE, VOLUME = "f32[2,3]", "f32[2,3,4]", "f32[1,4,5,6]", "f32[1,4,5,6,7]"

CASES: list[Failure] = []


def case(message: str, function: Callable[..., Any], *inputs: str) -> None:
    CASES.append(Failure(message, function, inputs))


case("bitwise_not: expected integers, got f32[2,3]", lambda x: ~x, MATRIX)
case("left_shift: expected integers, got f32[2,3] and f32[]", lambda x: x << 1, MATRIX)
case("hardtanh: min_val 2 is above max_val 1", lambda x: f.hardtanh(x, 2, 1), MATRIX)
case(
    "softshrink: lambd expected a number of 0 or more, got -1",
    lambda x: f.softshrink(x, -1),
    MATRIX,
)
case("glu: axis 1 of x f32[2,3] has no halves", f.glu, MATRIX)
case(
    "prelu: weight f32[2] does not fit the 3 channels of x f32[2,3]",
    f.prelu,
    MATRIX,
    "f32[2]",
)
case("norm: expected floats, got i32[2]", f.norm, "i32[2]")
case("cumsum: axis 2 is out of range for x f32[2,3]", lambda x: f.cumsum(x, 2), MATRIX)
case(
    "topk: k expected an integer from 0 to 3 for axis 1 of f32[2,3], got 4",
    lambda x: f.topk(x, 4),
    MATRIX,
)
case(
    "take_along_axis: f32[2,3] and indices i64[3,2] differ in more than axis 1",
    f.take_along_axis,
    MATRIX,
    "i64[3,2]",
)
case(
    "take_along_axis: expected integer indices, got f32[2,3]",
    f.take_along_axis,
    MATRIX,
    MATRIX,
)
case(
    "gather: index i64[3,2] does not fit x f32[2,3]",
    lambda x, i: f.gather(x, 1, i),
    MATRIX,
    "i64[3,2]",
)
case("gather: index 3 is not in the range 0 to 2", lambda x: f.gather(x, 1, [[3], [0]]), MATRIX)
case(
    "scatter: index i64[2,1] and src f32[2,3] differ in shape",
    lambda x, i: f.scatter(x, 1, i, x),
    MATRIX,
    "i64[2,1]",
)
case("moveaxis: 1 axes do not go to 2 places", lambda x: f.moveaxis(x, 0, (0, 1)), MATRIX)
case("roll: 2 shifts for 1 axes", lambda x: f.roll(x, (1, 2), 0), MATRIX)
case(
    "split: [1, 1] does not add up to axis 1 of f32[2,3]",
    lambda x: f.split(x, [1, 1], 1),
    MATRIX,
)
case("split: split_size expected a positive integer, got 0", lambda x: f.split(x, 0), MATRIX)
case(
    "unflatten: sizes [2, -1] do not make axis 1 of f32[2,3]",
    lambda x: f.unflatten(x, 1, [2, -1]),
    MATRIX,
)
case("diag: expected 1 or 2 axes, got f32[2,3,4]", f.diag, CUBE)
case(
    'meshgrid: indexing expected "xy" or "ij", got \'ab\'',
    lambda x: f.meshgrid(x, indexing="ab"),
    "f32[3]",
)
case(
    'pad: mode expected "constant", "reflect", "replicate" or "circular", got \'edge\'',
    lambda x: f.pad(x, [(0, 0), (1, 1)], mode="edge"),
    MATRIX,
)
case(
    'pad: mode="reflect" adds at most 2 elements to axis 1 of f32[2,3], got (3, 0)',
    lambda x: f.pad(x, [(0, 0), (3, 0)], mode="reflect"),
    MATRIX,
)
case(
    'einsum: "ij,jk" has 2 operands, got 1',
    lambda x: f.einsum("ij,jk", x),
    MATRIX,
)
case('einsum: "ijk" does not name the axes of f32[2,3]', lambda x: f.einsum("ijk->i", x), MATRIX)
case(
    'einsum: "ij->ik" names axes of the result twice or nowhere else',
    lambda x: f.einsum("ij->ik", x),
    MATRIX,
)
case(
    'einsum: "ij,ji->" gives j the extents 3 and 2',
    lambda x: f.einsum("ij,ji->", x, x),
    MATRIX,
)
case(
    "tensordot: axes (1,) of f32[2,3] and (0,) of f32[2,3] differ in extent",
    lambda x: f.tensordot(x, x, 1),
    MATRIX,
)
case("outer: expected 1 axis each, got f32[2,3] and f32[2,3]", lambda x: f.outer(x, x), MATRIX)
case(
    "bilinear: x1 f32[2,3] and x2 f32[2,3] do not fit weight f32[2,3,4]",
    lambda x, w: f.bilinear(x, x, w),
    MATRIX,
    CUBE,
)
case(
    "conv3d: x f32[1,4,5,6] and weight f32[1,4,5,6] must have 5 axes each",
    lambda x: f.conv3d(x, x),
    IMAGE,
)
case(
    "conv3d: 9 taps of weight do not fit the depth of x f32[1,4,5,6,7]",
    f.conv3d,
    VOLUME,
    "f32[2,4,9,1,1]",
)
case(
    "conv3d: stride expected an integer of 1 or more, or three of them, got (1, 2)",
    lambda x: f.conv3d(x, x, stride=(1, 2)),
    VOLUME,
)
case(
    "conv_transpose1d: x f32[2,3] and weight f32[2,3] must have 3 axes each",
    lambda x: f.conv_transpose1d(x, x),
    MATRIX,
)
case(
    "conv_transpose3d: x f32[1,4,5,6,7] and weight f32[3,4,1,1,1] must have 5 axes each and the "
    "same number of channels in axis 1 of x and axis 0 of weight",
    f.conv_transpose3d,
    VOLUME,
    "f32[3,4,1,1,1]",
)
case(
    "conv_transpose3d: groups expected a divisor of 4 channels, got 3",
    lambda x, w: f.conv_transpose3d(x, w, groups=3),
    VOLUME,
    "f32[4,2,1,1,1]",
)
case(
    "conv_transpose3d: bias f32[3] does not fit the 2 output channels",
    f.conv_transpose3d,
    VOLUME,
    "f32[4,2,1,1,1]",
    "f32[3]",
)
case(
    "conv_transpose3d: output_padding (1, 1, 1) is not below stride (1, 1, 1)",
    lambda x, w: f.conv_transpose3d(x, w, output_padding=1),
    VOLUME,
    "f32[4,2,1,1,1]",
)
case("unfold: expected x of 4 axes, got f32[2,3]", lambda x: f.unfold(x, 2), MATRIX)
case("unfold: windows (7, 7) do not fit x f32[1,4,5,6]", lambda x: f.unfold(x, 7), IMAGE)
case(
    "fold: expected x [n, c * 4, 6] for images (3, 4), got f32[1,2,3]",
    lambda x: f.fold(x, (3, 4), 2),
    "f32[1,2,3]",
)
case("max_pool1d: expected x of 3 axes, got f32[3]", lambda x: f.max_pool1d(x, 2), "f32[3]")
case(
    "max_pool1d: kernel_size expected an integer of 1 or more, got (2, 2)",
    lambda x: f.max_pool1d(x, (2, 2)),
    MATRIX,
)
case("avg_pool3d: expected x of 5 axes, got f32[2,3]", lambda x: f.avg_pool3d(x, 2), MATRIX)
case(
    'interpolate: mode expected "nearest", "nearest-exact", "area", "linear" for 3 axes, '
    '"bilinear" for 4 axes, "trilinear" for 5 axes, "bicubic" for 4 axes, got \'linear\' for x '
    "f32[1,4,5,6]",
    lambda x: f.interpolate(x, 2, mode="linear"),
    IMAGE,
)
case("interpolate: expected either size or scale_factor", f.interpolate, IMAGE)
case(
    'interpolate: antialias expected mode "bilinear" or "bicubic", got \'nearest\'',
    lambda x: f.interpolate(x, 2, antialias=True),
    IMAGE,
)
case(
    "embedding: padding_idx expected a row of 2, got 2",
    lambda w: f.embedding(np.array([1]), w, 2),
    MATRIX,
)
case(
    "embedding: max_norm expected None, got 1.0: a lookup changes no weights; assign rows of that "
    "norm between steps",
    lambda w: f.embedding(np.array([1]), w, max_norm=1.0),
    MATRIX,
)
case(
    "interpolate: expected 2 positive numbers for x f32[1,4,5,6], got (2, 2, 2)",
    lambda x: f.interpolate(x, (2, 2, 2)),
    IMAGE,
)
case(
    "adaptive_avg_pool2d: expected x of 4 axes, got f32[2,3]",
    lambda x: f.adaptive_avg_pool2d(x, 1),
    MATRIX,
)
case(
    "adaptive_avg_pool1d: expected x of 3 axes, got f32[3]",
    lambda x: f.adaptive_avg_pool1d(x, 1),
    "f32[3]",
)
case(
    "adaptive_max_pool2d: output_size expected a positive integer or 2 of them, got (3, 0)",
    lambda x: f.adaptive_max_pool2d(x, (3, 0)),
    IMAGE,
)
case(
    "huber_loss: input f32[2,3] and target f32[2,3,4] differ in shape",
    f.huber_loss,
    MATRIX,
    CUBE,
)
case("instance_norm: expected x of 3 axes or more, got f32[2,3]", f.instance_norm, MATRIX)
case(
    "instance_norm: expected more than 1 element per channel in training, got x f32[2,3,1]",
    lambda x, m: f.instance_norm(x, m, m, use_input_stats=True),
    "f32[2,3,1]",
    "f32[3]",
)
case(
    "instance_norm: running_mean f32[3] is not a parameter, so nothing keeps it",
    lambda x, m: f.instance_norm(x, m, m, use_input_stats=True),
    "f32[2,3,4]",
    "f32[3]",
)
case(
    "avg_pool2d: divisor_override expected a positive integer, got 0",
    lambda x: f.avg_pool2d(x, 2, divisor_override=0),
    IMAGE,
)
case(
    "rms_norm: x f32[2,3] does not end in normalized_shape [2]",
    lambda x: f.rms_norm(x, 2),
    MATRIX,
)
case(
    "rms_norm: weight f32[2,3] does not have normalized_shape [3]",
    lambda x: f.rms_norm(x, 3, x),
    MATRIX,
)
case(
    "local_response_norm: expected x of 3 axes or more and a positive size, got f32[2,3] and 2",
    lambda x: f.local_response_norm(x, 2),
    MATRIX,
)


@pytest.mark.parametrize("failure", CASES, ids=str)
def test_the_message_says_what_was_expected_and_where(failure: Failure) -> None:
    failure.check()
