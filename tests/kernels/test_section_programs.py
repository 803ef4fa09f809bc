"""Gates that users write otherwise, compiled: one kernel on the CPU and on the simulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.ir.interpret import evaluate
from graphc.ops.fused import Fused
from tests.kernels.cells import sections


def convolutional_lstm(h: Any, c: Any, xw: Any, weight: Any) -> Any:
    """Gates are runs of channels."""
    z = graphc.conv2d(h, weight, padding=1) + xw
    i, f, g, o = sections(z, h.shape[1])
    new = graphc.sigmoid(f) * c + graphc.sigmoid(i) * graphc.tanh(g)
    return graphc.sigmoid(o) * graphc.tanh(new), new


def units_first(h: Any, weight: Any, bias: Any) -> Any:
    """Gates are runs of rows, and the outputs a concat of two."""
    z = graphc.matmul(weight, h) + bias
    a, b, c = sections(z, weight.shape[0] // 3, axis=0)
    return graphc.tanh(a) * b + c, graphc.concat([a, c], axis=0)


def gated_linear_unit(x: Any, weight: Any) -> Any:
    """A batch of products, cut in two."""
    a, b = sections(graphc.matmul(x, weight), weight.shape[2] // 2, axis=2)
    return graphc.sigmoid(a) * b


CASES = [
    (convolutional_lstm, [(32, 3, 6, 6), (32, 3, 6, 6), (32, 12, 6, 6), (12, 3, 3, 3)]),
    (convolutional_lstm, [(2, 3, 6, 6), (2, 3, 6, 6), (2, 12, 6, 6), (12, 3, 3, 3)]),
    (units_first, [(9, 20), (15, 9), (15, 1)]),
    (gated_linear_unit, [(3, 4, 7), (3, 7, 12)]),
]


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize(("function", "shapes"), CASES)
def test_gates_of_any_contraction_are_one_kernel(function: Any, shapes: Any, device: str) -> None:
    specs = [graphc.spec(shape) for shape in shapes]
    program = graphc.compile(function, *specs, device=device)
    kernels = [n.op.template for n in program.graph.nodes if isinstance(n.op, Fused)]
    assert kernels == ["contract"]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    got = program(*arrays)
    want, _ = evaluate(program.stages["trace"], arrays)
    for a, b in zip(got if isinstance(got, tuple) else [got], want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def halves(z: Any, axis: int) -> Any:
    a, b = sections(z, z.shape[axis] // 2, axis=axis)
    return graphc.tanh(a) * graphc.sigmoid(b)


def of_an_image(x: Any, weight: Any, axis: int) -> Any:
    return halves(graphc.conv2d(x, weight, padding=1), axis)


def of_one_weight(x: Any, weight: Any, axis: int) -> Any:
    return halves(graphc.matmul(x, graphc.broadcast_to(weight, (7, 12))), axis)


def of_one_row(x: Any, weight: Any, axis: int) -> Any:
    return halves(graphc.matmul(graphc.broadcast_to(x, (6, 7)), weight), axis)


def of_a_batch(x: Any, weight: Any, axis: int) -> Any:
    return halves(graphc.matmul(x, weight), axis)


OTHER_AXES = [
    (of_a_batch, 0, [(4, 5, 7), (4, 7, 6)]),
    (of_a_batch, 1, [(4, 6, 7), (4, 7, 5)]),
    (of_an_image, 0, [(2, 3, 6, 6), (4, 3, 3, 3)]),
    (of_an_image, 2, [(2, 3, 6, 6), (4, 3, 3, 3)]),
    (of_an_image, 3, [(2, 3, 6, 6), (4, 3, 3, 3)]),
    (of_one_weight, 1, [(5, 7), ()]),
    (of_one_weight, 1, [(5, 7), (7, 1)]),
    (of_one_row, 0, [(1, 7), (7, 12)]),
]


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize(("function", "axis", "shapes"), OTHER_AXES)
def test_sections_of_axes_that_a_tile_does_not_have_for_itself_are_right(
    function: Any, axis: int, shapes: Any, device: str
) -> None:
    specs = [graphc.spec(shape) for shape in shapes]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]

    def cut(*operands: Any) -> Any:
        return function(*operands, axis)

    program = graphc.compile(cut, *specs, device=device)
    (want,), _ = evaluate(program.stages["trace"], arrays)
    np.testing.assert_allclose(program(*arrays), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_parts_of_other_extents_are_joined_as_they_are(device: str) -> None:
    def function(x: Any, y: Any) -> Any:
        return graphc.relu(graphc.concat([graphc.exp(x), graphc.tanh(y)], axis=1)) + 1

    arrays = [np.random.default_rng(n).standard_normal((4, n), np.float32) for n in (3, 5)]
    program = graphc.compile(function, *(graphc.spec(a.shape) for a in arrays), device=device)
    (want,), _ = evaluate(program.stages["trace"], arrays)
    np.testing.assert_allclose(program(*arrays), want, rtol=1e-5)
