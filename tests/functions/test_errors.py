"""Each message that a wrong argument of an array function gives, whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from graphc.base.errors import GraphError
from tests.functions.failing import Failure

MATRIX = "f32[2,3]"

CASES: list[Failure] = []


def case(message: str, function: Callable[..., Any], *inputs: str) -> None:
    CASES.append(Failure(message, function, inputs))


case(
    "expected a tensor, a parameter, an array or a number, got str",
    lambda x: x + "1",
    MATRIX,
)
case("the number 300 does not fit u8", lambda x: x + 300, "u8[2]")
case(
    "unknown dtype 'float23'; expected one of bfloat16, bool, float16, float32, float64, int32, "
    "int64, int8, uint8",
    lambda x: x.astype("float23"),
    MATRIX,
)
case("add: shapes do not broadcast: f32[2,3] and f32[2]", f.add, MATRIX, "f32[2]")
case("add: expected numbers, got bool[2] and bool[2]", f.add, "bool[2]", "bool[2]")
case(
    "matmul: expected numbers, got bool[2,2] and bool[2,2]",
    f.matmul,
    "bool[2,2]",
    "bool[2,2]",
)
case(
    "where: expected a condition of dtype bool, got f32[2,3]",
    lambda x: f.where(x, x, 0),
    MATRIX,
)
case(
    "bitwise_and: expected integers, got f32[2,3] and f32[2,3]",
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
case("argmax: axis 1 is out of range for x f32[]", lambda x: f.argmax(x, 1), "f32[]")
case("cumsum: axis 1 is out of range for x f32[]", lambda x: f.cumsum(x, 1), "f32[]")
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
case(
    "transpose: expected all axes in one tuple, got 0, 1; graphc.swapaxes exchanges two axes",
    lambda x: x.transpose(0, 1),
    MATRIX,
)
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
    "pad: expected a pair of non-negative widths for each axis of f32[2,3], or one number, "
    "got [(1, 2)]",
    lambda x: f.pad(x, [(1, 2)]),
    MATRIX,
)
case("subscript 2 is out of range for axis 0 of f32[2,3]", lambda x: x[2], MATRIX)
case("3 subscripts for f32[2,3] of 2 axes", lambda x: x[0, 0, 0], MATRIX)
case("a slice's step is not 0", lambda x: x[::0], MATRIX)
case(
    "a tensor's subscripts are integers, slices, None, Ellipsis and integer tensors, arrays and "
    "lists, got str",
    lambda x: x["row"],
    MATRIX,
)
case("take: expected an axis for f32[2,3]", f.take, MATRIX, "i32[2]")
case(
    "take: expected integer indices, got f32[2,3]",
    lambda x: f.take(x, x, 0),
    MATRIX,
)
case(
    "take: index 3 is not in the range 0 to 2",
    lambda x: f.take(x, [0, 3], 1),
    MATRIX,
)
case(
    "embedding: index -1 is not in the range 0 to 1",
    lambda w: f.embedding(np.array([-1]), w),
    MATRIX,
)
case("embedding: expected a weight of 2 axes, got f32[3]", f.embedding, "i32[2]", "f32[3]")
case(
    "one_hot: num_classes expected a positive integer, got 0",
    lambda y: f.one_hot(y, 0),
    "i32[2]",
)
case("one_hot: expected integer indices, got f32[2]", lambda y: f.one_hot(y, 3), "f32[2]")
case("sum: graphc says axis=, got dim=", lambda x: x.sum(dim=1), MATRIX)
case("softmax: graphc says axis=, got dim=", lambda x: f.softmax(x, dim=1), MATRIX)
case("mean: graphc says keepdims=, got keepdim=", lambda x: f.mean(x, 1, keepdim=True), MATRIX)
case("flatten: graphc says start_axis=, got start_dim=", lambda x: x.flatten(start_dim=1), MATRIX)
case("permute_dims: graphc says axes=, got dims=", lambda x: f.permute_dims(x, dims=(1, 0)), MATRIX)
case("arange: step is not 0", lambda: f.arange(0, 5, 0))
case("tril: expected 2 axes or more, got f32[3]", f.tril, "f32[3]")


@pytest.mark.parametrize("failure", CASES, ids=str)
def test_a_wrong_argument_is_named_with_the_users_line(failure: Failure) -> None:
    failure.check()


def test_functions_outside_a_trace_say_where_they_belong() -> None:
    message = (
        "graphc functions work on traced tensors: call them inside a function that is given "
        "to graphc.compile or graphc.trace"
    )
    with pytest.raises(GraphError, match=rf"^{re.escape(message)} \(test_errors\.py:\d+\)$"):
        f.relu(np.ones(2))
