"""Sums of columns beside the reductions of rows, by one kernel: where, and what it gives."""

from __future__ import annotations

import numpy as np
import pytest

import graphc
from graphc import nn, optim

rng = np.random.default_rng(7)


def draw(*shape: int, dtype: str = "float32") -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def gradients(x, scale, shift, d):
    """Of a layer norm: of its input, scale and shift."""
    axes = scale.shape

    def loss(x, scale, shift):
        return graphc.sum(graphc.layer_norm(x, axes, scale, shift) * d)

    return list(graphc.grad(loss, (0, 1, 2))(x, scale, shift))


def compiled(function, *arrays, **options):
    specs = [graphc.spec(a.shape, a.dtype) for a in arrays]
    return graphc.compile(function, *specs, **{"device": "cpu", **options})


SHAPES = {
    "rows of 33": ((70, 33), 1),
    "rows of 16": ((128, 16), 1),
    "two leading axes": ((3, 40, 50), 1),
    "two trailing axes": ((90, 5, 19), 2),
    "square": ((64, 64), 1),
    "an axis of 1": ((80, 1, 7), 2),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", SHAPES)
def test_gradients_of_a_norm_are_one_kernel_and_right(case, dtype):
    shape, trailing = SHAPES[case]
    own = shape[-trailing:]
    arrays = [draw(*s, dtype=dtype) for s in (shape, own, own, shape)]
    program = compiled(gradients, *arrays, threads=1)
    assert len(program.kernels) == 1 + (1 in own)  # an axis of extent 1 is none of the rows'
    assert (1 in own) or "add_columns" in "".join(program.kernels.values())
    found = program(*arrays)
    reference = compiled(gradients, *arrays, device="reference")(*arrays)
    tolerance = 3e-5 if dtype == "float32" else 1e-12
    for mine, right in zip(found, reference, strict=True):
        np.testing.assert_allclose(mine, right, rtol=tolerance, atol=tolerance * 10)
    for threads in (2, 3):
        again = compiled(gradients, *arrays, threads=threads, streams=2)(*arrays)
        assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))


def test_a_batch_in_the_lanes_is_summed_across_them():
    """The batch of a convolution lies in the lanes, whose last ones are empty for a batch of 35."""
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.LayerNorm((3, 6, 5)), nn.Flatten(), nn.Linear(90, 4)
    )
    x, y = draw(67, 2, 6, 5), rng.integers(0, 4, 67)

    def loss(model, x, y):
        return graphc.cross_entropy(model(x), y)

    def all_gradients(model, x, y):
        return graphc.grad(loss)(model, x, y)

    specs = graphc.spec(x.shape), graphc.spec(y.shape, "int64")
    program = graphc.compile(all_gradients, model, *specs, device="cpu")
    reference = graphc.compile(all_gradients, model, *specs, device="reference")
    assert ", false, " in "".join(t for t in program.kernels.values() if "add_columns" in t)
    found, right = program(x, y), reference(x, y)
    assert found.keys() == right.keys()
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, right[name], rtol=1e-3, atol=2e-6, err_msg=name)


def test_a_sum_that_something_reads_stays_a_kernel_of_its_own():
    def function(x):
        rows = x / graphc.sum(x, axis=1, keepdims=True)
        return rows + graphc.sum(x, axis=0) * 2

    x = draw(80, 12) + 9
    program = compiled(function, x)
    assert "add_columns" not in "".join(program.kernels.values())
    expected = x / x.sum(1, keepdims=True) + x.sum(0) * 2
    np.testing.assert_allclose(program(x), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "together"), [((64, 40), True), ((63, 40), False), ((80, 9000), False)], ids=str
)
def test_few_rows_and_long_ones_have_a_kernel_for_their_columns(shape, together):
    def function(x):
        scaled = x * graphc.max(x, axis=1, keepdims=True)
        return scaled, graphc.sum(scaled, axis=0)

    x = draw(*shape)
    program = compiled(function, x)
    assert ("add_columns" in "".join(program.kernels.values())) is together
    scaled, sums = program(x)
    expected = x * x.max(1, keepdims=True)
    np.testing.assert_allclose(scaled, expected, rtol=1e-6)
    np.testing.assert_allclose(sums, expected.sum(0, dtype=np.float64), rtol=1e-4, atol=1e-4)


def test_a_scale_is_not_overwritten_by_its_gradient():
    """Both have one type, and chunks of rows read the scale while others have summed theirs."""
    x = draw(256, 24)

    def loss(model, x):
        return graphc.mean(graphc.square(model(x) - 1))

    results = []
    for device in ("cpu", "reference"):
        model = nn.LayerNorm(24)
        step = graphc.compile(
            loss, model, graphc.spec(x.shape), update=optim.SGD(lr=0.1), device=device
        )
        results.append([float(step(x)) for _ in range(5)])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


def test_nan_in_a_row_reaches_its_column_alone():
    def function(x):
        scaled = x - graphc.max(x, axis=1, keepdims=True)
        return graphc.sum(x * 2, axis=0), scaled

    x = draw(70, 20)
    x[3, 5] = np.nan
    sums, _ = compiled(function, x)(x)
    assert np.isnan(sums[5]) and not np.isnan(np.delete(sums, 5)).any()
