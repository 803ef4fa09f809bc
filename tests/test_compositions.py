"""Small programs whose kernels are easily right alone and wrong together, beside NumPy's reference.

Each is compiled for the CPU, at a batch that fills its lanes but for a rest and at one that does
not, and for the simulated GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.ir.interpret import evaluate
from tests.tools import first_quick

BATCHES = {"cpu": (19, 3), "sim": (3,)}


def assert_same(
    function: Callable[..., Any], device: str, *arrays: np.ndarray, **options: Any
) -> None:
    """Outputs as those of the traced graph, before any pass: floats to rounding, the rest
    exactly."""
    specs = [graphc.spec(a.shape, str(a.dtype)) for a in arrays]
    program = graphc.compile(function, *specs, device=device, **options)
    found = program(*arrays)
    wanted, _ = evaluate(program.stages["trace"], arrays)
    for a, b in zip(found if isinstance(found, tuple) else [found], wanted, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.fixture(params=["cpu", "sim"])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("padding", [0, 1])
def test_an_activation_that_is_pooled_is_also_an_output(device: str, padding: int) -> None:
    """Relu may not go behind the pooling, nor the pooling alone into the convolution's epilogue."""

    def both(x: Any, weight: Any) -> Any:
        y = graphc.relu(graphc.conv2d(x, weight, padding=1))
        return y, graphc.max_pool2d(y, 2, padding=padding)

    for n in BATCHES[device]:
        assert_same(both, device, normal(n, 2, 6, 7), normal(3, 2, 3, 3))


@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 2), (3, 1)])
def test_padded_windows_pool_what_a_convolution_activates(
    device: str, size: int, stride: int
) -> None:
    """All of it negative at some places: the padding never wins over an activation of 0."""

    def pooled(x: Any, weight: Any) -> Any:
        y = graphc.max_pool2d(graphc.conv2d(x, weight, padding=1), size, stride, padding=1)
        z = graphc.max_pool2d(graphc.relu(graphc.conv2d(x, weight)), size, stride, padding=1)
        return y, z

    for n in BATCHES[device]:
        assert_same(pooled, device, normal(n, 2, 6, 7), -np.abs(normal(3, 2, 3, 3)))


def test_pads_hold_the_value_they_are_given(device: str) -> None:
    """Read by ops, sums and pooling of their own, and around a concat."""

    def padded(x: Any) -> Any:
        wide = graphc.pad(x, ((0, 0), (1, 2), (0, 3)), value=2.5)
        holes = graphc.pad(x, ((0, 1), (0, 0), (2, 0)), value=-np.inf)
        joined = graphc.concat([wide, graphc.pad(x, ((0, 0), (2, 1), (3, 0)), value=-1.0)], axis=2)
        return wide * 2, graphc.sum(wide, axis=1), graphc.max(holes, axis=0), joined

    for n in BATCHES[device]:
        assert_same(padded, device, normal(n, 5, 6))


@pytest.mark.parametrize(
    "axes", first_quick(3, [(1, 2, 0), (2, 1, 0), (1, 0, 2), (2, 0, 1), (0, 2, 1)])
)
def test_axes_of_unequal_extents_change_places(device: str, axes: tuple[int, ...]) -> None:
    """A permutation and its inverse differ only where three axes move and no extents are equal."""

    def turned(x: Any, y: Any) -> Any:
        z = graphc.permute_dims(x, axes)
        return z + y, graphc.sum(z, axis=1), graphc.permute_dims(graphc.tanh(x), axes)

    for n in BATCHES[device]:
        shape = (n, 5, 37)
        assert_same(turned, device, normal(*shape), normal(*(shape[a] for a in axes)))


@pytest.mark.parametrize("start", first_quick(2, [1, 7, 3, 13]))
def test_slices_begin_anywhere(device: str, start: int) -> None:
    """At elements that begin no register, read by ops, sums, products and a concat."""

    def parts(x: Any, w: Any) -> Any:
        a, b = x[:, start : start + 17], x[1:, start:]
        joined = graphc.concat([b, x[:-1, : 50 - start]], axis=1)
        return a * 2, graphc.sum(b, axis=1), a @ w[start : start + 17], joined, x[:, start::3] + 1

    for n in BATCHES[device]:
        assert_same(parts, device, normal(n, 50), normal(50, 9))


def test_stacks_of_a_scan_are_reshaped(device: str) -> None:
    """Time merged with the batch, the batch with the features, features cut in two; and gradients
    that come back through the same reshapes."""

    def stacked(x: Any, w: Any) -> Any:
        def step(h: Any, e: Any) -> Any:
            h = graphc.tanh(h @ w + e)
            return h, h

        t, n, f = x.shape
        _, y = graphc.scan(step, graphc.zeros((n, f)), x)
        merged = graphc.reshape(y, (t * n, f)) @ w
        flat = graphc.reshape(y, (t, n * f)) * 2
        cut = graphc.sum(graphc.reshape(y, (t, n, 2, f // 2)), axis=2)
        return merged, flat, cut

    def loss(x: Any, w: Any) -> Any:
        return sum(graphc.sum(graphc.square(y)) for y in stacked(x, w))

    for n in (32, *BATCHES[device]):
        arrays = normal(4, n, 6) / 4, normal(6, 6) / 4
        assert_same(stacked, device, *arrays)
        assert_same(graphc.grad(loss, argnums=(0, 1)), device, *arrays)


@pytest.mark.parametrize("value", [0.0, 2.5])
def test_terms_that_a_scan_adds_up(device: str, value: float) -> None:
    """The sum of padded ones over time is padded by as many times the value, that of one that all
    iterations share is as many times it."""

    def total(x: Any, w: Any) -> Any:
        def step(carry: Any, e: Any) -> Any:
            h, padded, shared = carry
            h = graphc.tanh(h @ w + e)
            padded = padded + graphc.pad(h @ w, ((0, 1), (2, 0)), value=value)
            return (h, padded, shared + w), None

        _, n, f = x.shape
        first = graphc.zeros((n, f)), graphc.ones((n + 1, f + 2)), np.eye(f, dtype=np.float32)
        return graphc.scan(step, first, x)[0][1:]

    for n in BATCHES[device]:
        assert_same(total, device, normal(4, n, 6), normal(6, 6))


def test_windows_of_nothing_but_minus_infinity(device: str) -> None:
    """The largest is -inf, the gradient goes to the first place of each window that exists."""

    def pooled(x: Any) -> Any:
        return graphc.max_pool2d(x, 2), graphc.max_pool2d(x, 3, stride=2, padding=1)

    def loss(x: Any) -> Any:
        whole, padded = pooled(x)
        return graphc.sum(whole * 2) + graphc.sum(padded)

    for n in BATCHES[device]:
        x = np.full((n, 2, 6, 6), -np.inf, np.float32)
        x[0, 0, 2, 3] = 1.0
        assert_same(pooled, device, x)
        assert_same(graphc.grad(loss), device, x)


def test_a_nan_wins_the_windows_that_hold_it(device: str) -> None:
    """And takes their gradient, wherever it stands among larger and smaller elements."""

    def pooled(x: Any) -> Any:
        return graphc.max_pool2d(x, 2), graphc.max_pool2d(x, 3, stride=2, padding=1)

    def loss(x: Any) -> Any:
        whole, padded = pooled(x)
        return graphc.sum(whole * 2) + graphc.sum(padded)

    for n in BATCHES[device]:
        x = normal(n, 2, 6, 6)
        x[0, 0, 2, 3] = x[0, 1, 0, 0] = x[n - 1, 0, 5, 5] = np.nan
        assert_same(pooled, device, x)
        assert_same(graphc.grad(loss), device, x)


def test_averages_of_windows_that_overlap(device: str) -> None:
    """And their gradients, by rows and columns of different strides."""

    def average(x: Any) -> Any:
        y = graphc.avg_pool2d(x, (3, 2), stride=(2, 1), padding=1)
        return y, graphc.avg_pool2d(x, 3, 2, 1, count_include_pad=False)

    def loss(x: Any) -> Any:
        return sum(graphc.sum(graphc.square(y)) for y in average(x))

    for n in BATCHES[device]:
        assert_same(average, device, normal(n, 2, 7, 6))
        assert_same(graphc.grad(loss), device, normal(n, 2, 7, 6))


def test_dropout_in_a_scan_drops_the_same_backward(device: str) -> None:
    """The gradient of x is not 0 exactly where y took x in; each iteration draws its own."""

    def both(x: Any, w: Any) -> Any:
        def step(h: Any, e: Any) -> Any:
            z = graphc.dropout(e, 0.5) * w
            return h + z, z

        def loss(x: Any) -> Any:
            last, y = graphc.scan(step, graphc.zeros(w.shape), x)
            return graphc.sum(last), y

        (_, y), gradient = graphc.value_and_grad(loss)(x)
        return y, gradient

    n = BATCHES[device][0]
    x, w = np.abs(normal(5, n, 8)) + 0.5, np.abs(normal(n, 8)) + 0.5
    specs = [graphc.spec(a.shape) for a in (x, w)]
    y, gradient = graphc.compile(both, *specs, device=device, training=True)(x, w)
    np.testing.assert_array_equal(gradient != 0, y != 0)
    np.testing.assert_allclose(gradient * x, y, rtol=1e-5)
    assert 0.3 < np.mean(y != 0) < 0.7 and len({row.tobytes() for row in y != 0}) == len(y)


def test_what_is_read_behind_a_guard_is_overwritten(device: str) -> None:
    """The row that is left out becomes twos in the same memory."""

    def without_first_row(x: Any, w: Any) -> Any:
        h = graphc.exp(x @ w)
        for _ in range(3):
            h = graphc.tanh(graphc.pad(h[1:], ((1, 0), (0, 0)), value=2.0) @ w)
        return h

    for n in BATCHES[device]:
        assert_same(without_first_row, device, normal(n, 6) / 4, normal(6, 6) / 4)


def test_results_of_rows_stand_side_by_side_along_the_axis_that_was_reduced(device: str) -> None:
    """As many of them as the rows had elements, so that loops over rows look made for both."""

    def pooled(x: Any, weight: Any) -> Any:
        y = graphc.relu(graphc.silu(graphc.adaptive_max_pool2d(x, (3, 3))))
        return graphc.conv2d(y, weight, stride=(1, 2))

    def padded(x: Any, weight: Any) -> Any:
        total = graphc.sum(graphc.tanh(x), axis=2, keepdims=True)
        before = graphc.pad(total, ((0, 0), (0, 0), (1, 1), (0, 0)))
        return graphc.conv2d(x + graphc.sigmoid(before), weight)

    for n in BATCHES[device]:
        assert_same(pooled, device, normal(n, 3, 9, 7), normal(5, 3, 3, 1))
        assert_same(padded, device, normal(n, 3, 3, 5), normal(4, 3, 1, 1))


def test_columns_are_summed_beside_rows_whose_elements_were_multiplied_elsewhere(
    device: str,
) -> None:
    """The gradients of a scale before a layer norm: what is multiplied for the norm's sums over
    rows comes from another kernel, what is summed over columns follows from those sums."""

    def scaled(*inputs: Any) -> Any:
        def loss(table: Any, scale: Any, shift: Any, weight: Any, bias: Any) -> Any:
            y = graphc.take(table, inputs[0], axis=0) * scale + shift - 1.0
            y = graphc.relu(graphc.layer_norm(y, (16,), weight, bias))
            return graphc.mean(graphc.abs(y - 0.3)), y

        (value, y), found = graphc.value_and_grad(loss, (0, 1, 2, 3, 4))(*inputs[1:])
        return value, y, *found

    index = np.arange(93, dtype=np.int64).reshape(31, 3) % 7
    weights = [np.linspace(0.5, 1.5, 16, dtype=np.float32)] * 4
    assert_same(scaled, device, index, normal(7, 16), *weights)
