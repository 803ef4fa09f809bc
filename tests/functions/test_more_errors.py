"""Each message that a wrong argument of statistics, matrices, images, scatters, draws and margins
gives, whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc
from graphc import functions as f
from tests.functions.failing import Failure

VECTOR, MATRIX, CUBE, IMAGE = "f32[3]", "f32[2,3]", "f32[2,3,4]", "f32[1,4,5,6]"
CASES: list[Failure] = []


def case(message: str, function: Callable[..., Any], *inputs: str) -> None:
    CASES.append(Failure(message, function, inputs))


# Special functions and integers.
case("polygamma: n expected an integer from 0 to 9, got 10", lambda x: f.polygamma(10, x), MATRIX)
case(
    "multigammaln: p expected a positive integer, got 0",
    lambda x: f.multigammaln(x, 0),
    MATRIX,
)
case("gcd: expected integers, got f32[2,3] and f32[2,3]", f.gcd, MATRIX, MATRIX)
case("lcm: expected integers, got f32[2,3] and f32[]", lambda x: f.lcm(x, 2), MATRIX)

# Statistics.
case(
    "bincount: minlength expected the length of the result, got 0",
    f.bincount,
    "i32[4]",
)
case("bincount: expected integer indices, got f32[3]", lambda x: f.bincount(x, None, 2), VECTOR)
case(
    "bincount: x i32[4] and weights f32[3] must have one axis and one shape",
    lambda x, w: f.bincount(x, w, 3),
    "i32[4]",
    VECTOR,
)
case("histc: expected min below max, got 1 and 1", lambda x: f.histc(x, 3, 1, 1), VECTOR)
case("cov: expected x of 2 axes, got f32[3]", f.cov, VECTOR)
case("diff: axis 2 is out of range for x f32[2,3]", lambda x: f.diff(x, axis=2), MATRIX)
case(
    "trapezoid: axis 2 is out of range for x f32[2,3]",
    lambda y: f.trapezoid(y, axis=2),
    MATRIX,
)

# Matrices.
case(
    "addmm: expected 2 and 2 axes, got f32[2,3] and f32[3]",
    f.addmm,
    VECTOR,
    MATRIX,
    VECTOR,
)
case("cross: expected 3 elements along axis -1, got f32[3] and f32[2,3,4]", f.cross, VECTOR, CUBE)
case("matrix_power: expected square matrices, got f32[2,3]", lambda x: f.matrix_power(x, 2), MATRIX)
case(
    "matrix_power: n expected an integer of 0 or more, got -1",
    lambda x: f.matrix_power(x, -1),
    "f32[3,3]",
)
case("multi_dot: expected 2 matrices or more, got 1", lambda x: f.multi_dot([x]), MATRIX)
case(
    "multi_dot: expected matrices, got f32[2,3,4], f32[2,3]",
    lambda x, y: f.multi_dot([x, y]),
    CUBE,
    MATRIX,
)
case("cdist: rows of x1 f32[2,3] and x2 f32[2,3,4] differ in extent", f.cdist, MATRIX, CUBE)
case("pdist: expected x of 2 axes, got f32[3]", f.pdist, VECTOR)
case("vander: expected x of 1 axis, got f32[2,3]", f.vander, MATRIX)
case("combinations: expected x of 1 axis, got f32[2,3]", f.combinations, MATRIX)

# Parts.
case("chunk: chunks expected a positive integer, got 0", lambda x: f.chunk(x, 0), MATRIX)
case("tensor_split: expected 1 part or more, got 0", lambda x: f.tensor_split(x, 0), MATRIX)
case(
    "narrow: 2 elements from 2 on are not in axis 1 of f32[2,3]",
    lambda x: f.narrow(x, 1, 2, 2),
    MATRIX,
)
case("rot90: expected 2 axes, got (0,)", lambda x: f.rot90(x, 1, (0,)), MATRIX)
case("rot90: expected 2 different axes, got (0, -2)", lambda x: f.rot90(x, 1, (0, -2)), MATRIX)
case(
    "broadcast_arrays: shapes do not broadcast: f32[2,3] and f32[2,3,4]",
    f.broadcast_arrays,
    MATRIX,
    CUBE,
)

# Images.
case(
    "pixel_shuffle: upscale_factor 3 does not fit x f32[1,4,5,6]",
    lambda x: f.pixel_shuffle(x, 3),
    IMAGE,
)
case(
    "pixel_unshuffle: downscale_factor 4 does not fit x f32[1,4,5,6]",
    lambda x: f.pixel_unshuffle(x, 4),
    IMAGE,
)
case(
    "channel_shuffle: 3 groups do not fit x f32[1,4,5,6]",
    lambda x: f.channel_shuffle(x, 3),
    IMAGE,
)
case(
    "affine_grid: expected theta [n, 2, 3] and size (n, c, h, w), got f32[2,3] and (1, 1, 2, 2)",
    lambda x: f.affine_grid(x, (1, 1, 2, 2)),
    MATRIX,
)
case(
    "grid_sample: expected x [n, c, h, w] and grid [n, p, q, 2], got f32[1,4,5,6] and f32[2,3,4]",
    f.grid_sample,
    IMAGE,
    CUBE,
)
case(
    'grid_sample: mode expected "bilinear" or "nearest", got "area"'.replace('"area"', "'area'"),
    lambda x, g: f.grid_sample(x, g, "area"),
    IMAGE,
    "f32[1,2,2,2]",
)
case(
    'grid_sample: padding_mode expected "zeros", "border" or "reflection", got ' + "'edge'",
    lambda x, g: f.grid_sample(x, g, padding_mode="edge"),
    IMAGE,
    "f32[1,2,2,2]",
)

# Slices put into places.
case(
    "index_add: x f32[2,3], index i32[4] and source f32[2,3] do not fit along axis 0",
    lambda x, i, s: f.index_add(x, 0, i, s),
    MATRIX,
    "i32[4]",
    MATRIX,
)
case(
    "index_copy: x f32[2,3], index i32[4] and source f32[2,3] do not fit along axis 1",
    lambda x, i, s: f.index_copy(x, 1, i, s),
    MATRIX,
    "i32[4]",
    MATRIX,
)
case(
    "select_scatter: index 3 is not in axis 1 of f32[2,3]",
    lambda x, s: f.select_scatter(x, s, 1, 3),
    MATRIX,
    "f32[2]",
)
case(
    "select_scatter: src f32[3] does not fit a place of axis 1 of f32[2,3]",
    lambda x, s: f.select_scatter(x, s, 1, 0),
    MATRIX,
    VECTOR,
)
case(
    "slice_scatter: src f32[2,3] does not fit places 0:2:1 of axis 1 of f32[2,3]",
    lambda x, s: f.slice_scatter(x, s, 1, 0, 2),
    MATRIX,
    MATRIX,
)
case(
    "diagonal_scatter: src f32[3] does not fit diagonal 0 of f32[2,3]",
    f.diagonal_scatter,
    MATRIX,
    VECTOR,
)

# Draws.
case(
    "randint: expected low below high, by 2^24 at most, got 3 and 3",
    lambda: f.randint(3, 3, (2,)),
)
case(
    "multinomial: expected weights of 1 axis or more and 1 sample or more, got f32[3] and 0",
    lambda x: f.multinomial(x, 0),
    VECTOR,
)
case(
    "multinomial: 4 different samples of 3 places of f32[3]",
    lambda x: f.multinomial(x, 4),
    VECTOR,
)
case(
    "dropout2d: expected x of 3 or 4 axes, got f32[2,3]",
    lambda x: f.dropout2d(x, training=True),
    MATRIX,
)
case(
    "alpha_dropout: p expected a probability from 0 to 1, got 2",
    lambda x: f.alpha_dropout(x, 2),
    MATRIX,
)
case(
    "feature_alpha_dropout: expected 2 axes or more, got f32[3]",
    lambda x: f.feature_alpha_dropout(x, training=True),
    VECTOR,
)
case("rrelu: lower 1 is above upper 0.5", lambda x: f.rrelu(x, 1, 0.5), MATRIX)

# Margins.
case(
    "multi_margin_loss: p expected 1 or 2, got 3",
    lambda x, t: f.multi_margin_loss(x, t, 3),
    MATRIX,
    "i32[2]",
)
case(
    "multi_margin_loss: input f32[2,3] and target i32[3] do not fit",
    f.multi_margin_loss,
    MATRIX,
    "i32[3]",
)
case(
    "multilabel_margin_loss: input f32[2,3] and target f32[2,3] do not fit",
    f.multilabel_margin_loss,
    MATRIX,
    MATRIX,
)


@pytest.mark.parametrize("failure", CASES, ids=str)
def test_the_message_says_what_was_expected_and_where(failure: Failure) -> None:
    failure.check()


def test_functions_of_random_numbers_need_a_trace() -> None:
    with pytest.raises(graphc.GraphError) as error:
        f.rand((2,))
    assert str(error.value).startswith("graphc functions work on traced tensors: ")
