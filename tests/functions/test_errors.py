"""Each message that a wrong argument of a function gives, whole, with the user's line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from graphc.errors import GraphError
from graphc.ir import Type
from graphc.state import StateBuffer
from graphc.trace import Builder, Tensor

ZEROS = SimpleNamespace(state=StateBuffer(np.zeros(2, np.float32)))

CASES: list[tuple[Callable[..., Any], tuple[Type, ...], str]] = []


def case(message: str, function: Callable[..., Any], *inputs: str) -> None:
    CASES.append((function, tuple(map(_type, inputs)), message))


def _type(text: str) -> Type:
    dtype, _, extents = text.rstrip("]").partition("[")
    return Type(tuple(int(n) for n in extents.split(",") if n), dtype)


IMAGE, MATRIX = "f32[1,4,8,8]", "f32[2,3]"

case(
    "expected a tensor, a parameter, an array or a number, got str",
    lambda x: x + "1",
    MATRIX,
)
case("the number 300 does not fit u8", lambda x: x + 300, "u8[2]")
case(
    "unknown dtype 'float23'; expected one of bool, float16, float32, float64, int32, int64, "
    "int8, uint8",
    lambda x: x.astype("float23"),
    MATRIX,
)
case("add: shapes do not broadcast: f32[2,3] and f32[2]", f.add, MATRIX, "f32[2]")
case("add: expected numbers, got bool[2] and bool[2]", f.add, "bool[2]", "bool[2]")
case(
    "where: expected a condition of dtype bool, got f32[2,3]",
    lambda x: f.where(x, x, 0),
    MATRIX,
)
case(
    "logical_and: expected booleans, got f32[2,3] and f32[2,3]",
    lambda x: x & x,
    MATRIX,
)
case(
    "pow: expected floats, or a Python integer from 1 to 4 as the exponent, got i32[2] and i32[]",
    lambda x: x**5,
    "i32[2]",
)
case("sum: axis 2 is out of range for x f32[2,3]", lambda x: f.sum(x, axis=2), MATRIX)
case("sum: an axis is an integer, got 1.5", lambda x: f.sum(x, axis=1.5), MATRIX)
case(
    "max: axis (0, -2) names an axis of x f32[2,3] twice",
    lambda x: f.max(x, axis=(0, -2)),
    MATRIX,
)
case("max: no elements along axes (1,) of f32[2,0]", lambda x: f.max(x, 1), "f32[2,0]")
case("mean: expected floats, got i32[2]", f.mean, "i32[2]")
case("mean: no elements along axes (0,) of f32[0,2]", lambda x: f.mean(x, 0), "f32[0,2]")
case(
    "var: 1 elements along axes (1,) of f32[2,1] are not more than correction=1",
    lambda x: f.var(x, 1, correction=1),
    "f32[2,1]",
)
case(
    "reshape: f32[2,3] has 6 elements, which shape [4, -1] does not divide",
    lambda x: x.reshape(4, -1),
    MATRIX,
)
case(
    "reshape: f32[2,3] has 6 elements, shape [7] has 7",
    lambda x: x.reshape(7),
    MATRIX,
)
case(
    "reshape: a shape holds non-negative integers, got [-1, -1]",
    lambda x: x.reshape(-1, -1),
    MATRIX,
)
case(
    "flatten: start_axis 1 lies behind end_axis 0",
    lambda x: f.flatten(x, 1, 0),
    MATRIX,
)
case(
    "permute_dims: axes (0, 0) are not a permutation of those of f32[2,3]",
    lambda x: f.permute_dims(x, (0, 0)),
    MATRIX,
)
case("matrix_transpose: expected 2 axes or more, got f32[3]", lambda x: x.T, "f32[3]")
case("squeeze: axis 1 of f32[2,3] has extent 3", lambda x: f.squeeze(x, 1), MATRIX)
case(
    "broadcast_to: f32[2,3] does not broadcast to [3, 3]",
    lambda x: f.broadcast_to(x, (3, 3)),
    MATRIX,
)
case("concat: expected a list or tuple of at least one tensor", f.concat, MATRIX)
case(
    "concat: f32[2,3] and f32[4] differ in more than axis 0",
    lambda a, b: f.concat([a, b]),
    MATRIX,
    "f32[4]",
)
case(
    "stack: f32[2,3] and f32[4] differ in shape",
    lambda a, b: f.stack([a, b]),
    MATRIX,
    "f32[4]",
)
case(
    "pad: expected a pair of non-negative widths for each axis of f32[2,3], got [(1, 2)]",
    lambda x: f.pad(x, [(1, 2)]),
    MATRIX,
)
case("subscript 2 is out of range for axis 0 of f32[2,3]", lambda x: x[2], MATRIX)
case("3 subscripts for f32[2,3] of 2 axes", lambda x: x[0, 0, 0], MATRIX)
case("a slice's step is not 0", lambda x: x[::0], MATRIX)
case(
    "a tensor's subscripts are integers, slices, None and Ellipsis, got Tensor; "
    "use graphc.take for places that a tensor names",
    lambda x, i: x[i],
    MATRIX,
    "i32[2]",
)
case("take: expected an axis for f32[2,3]", f.take, MATRIX, "i32[2]")
case(
    "take: expected integer indices, got f32[2,3]",
    lambda x: f.take(x, x, 0),
    MATRIX,
)
case("arange: step is not 0", lambda: f.arange(0, 5, 0))
case("tril: expected 2 axes or more, got f32[3]", f.tril, "f32[3]")
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


@pytest.mark.parametrize(("function", "types", "message"), CASES, ids=[c[2] for c in CASES])
def test_a_wrong_argument_is_named_with_the_users_line(
    function: Callable[..., Any], types: tuple[Type, ...], message: str
) -> None:
    builder = Builder("errors")
    with builder.building():
        inputs: list[Tensor] = [builder.input(f"x{i}", t) for i, t in enumerate(types)]
        with pytest.raises(GraphError) as error:
            function(*inputs)
    code = getattr(function, "__code__", None)
    own = code is not None and code.co_filename == __file__
    line = code.co_firstlineno if own else CALL_LINE
    suffix = f" (test_errors.py:{line})"
    assert str(error.value) == message + suffix


SOURCE = Path(__file__).read_text().splitlines()
CALL_LINE = 1 + [line.strip() for line in SOURCE].index("function(*inputs)")


def test_functions_outside_a_trace_say_where_they_belong() -> None:
    with pytest.raises(GraphError) as error:
        f.relu(np.ones(2))
    assert str(error.value) == (
        "graphc functions work on traced tensors: call them inside a function that is given "
        "to graphc.compile or graphc.trace"
    )
