"""Random numbers: their distributions, that calls differ, and that devices and streams do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f

N = 20_000


def drawn(function: Any, *arrays: np.ndarray, calls: int = 1, **options: Any) -> Any:
    """The last result of so many calls of a program of `function`."""
    options = {"device": "cpu", "seed": 3, "training": True} | options
    program = graphc.compile(function, *(graphc.spec(a.shape, a.dtype) for a in arrays), **options)
    for _ in range(calls):
        result = program(*arrays)
    return result


def within(share: float, expected: float, count: int = N) -> None:
    """The share of `count` draws is within 5 standard deviations of what is expected."""
    assert abs(share - expected) <= 5 * np.sqrt(expected * (1 - expected) / count)


def test_uniform_numbers_have_the_moments_of_the_uniform_distribution() -> None:
    x = drawn(lambda: f.rand((N,)))
    assert x.dtype == np.float32 and x.min() >= 0 and x.max() < 1
    assert abs(x.mean() - 1 / 2) < 5 * np.sqrt(1 / 12 / N)
    assert abs(x.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / N)
    counts = np.histogram(x, 16, (0, 1))[0]
    assert np.sum((counts - N / 16) ** 2 / (N / 16)) < 50  # chi squared of 15 degrees


def test_normal_numbers_have_the_moments_of_the_normal_distribution() -> None:
    x = drawn(lambda: f.randn((N,)))
    for power, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(x**power) - expected) < 5 * np.sqrt(variance / N)
    within(np.mean(np.abs(x) < 1), 0.682689)
    within(np.mean(x > 2), 0.022750)


def test_a_normal_number_of_a_mean_and_a_deviation_has_their_gradients() -> None:
    def draw(mean: Any, std: Any) -> Any:
        return graphc.value_and_grad(lambda m, s: (f.normal(m, s) * 2).sum(), argnums=(0, 1))(
            mean, std
        )

    mean, std = np.full(N, 3, np.float32), np.full(N, 2, np.float32)
    total, (to_mean, to_std) = drawn(draw, mean, std)
    assert (to_mean == 2).all()
    assert abs(total / 2 / N - 3) < 5 * 2 / np.sqrt(N)
    np.testing.assert_allclose(np.mean(to_std) / 2 * 2 + 3, total / 2 / N, rtol=1e-4)


def test_integers_are_drawn_equally_often() -> None:
    x = drawn(lambda: f.randint(-2, 5, (N,)))
    assert x.dtype == np.int64
    for number in range(-2, 5):
        within(np.mean(x == number), 1 / 7)
    assert x.min() == -2 and x.max() == 4


def test_bernoulli_draws_ones_by_their_probability() -> None:
    p = np.linspace(0, 1, 5, dtype=np.float32)[:, None].repeat(N, 1)
    x = drawn(f.bernoulli, p)
    assert set(np.unique(x)) == {0, 1}
    assert (x[0] == 0).all() and (x[4] == 1).all()
    for row in (1, 2, 3):
        within(x[row].mean(), row / 4)


def test_a_random_order_holds_each_number_once_and_each_place_equally_often() -> None:
    program = graphc.compile(lambda: f.randperm(6), device="cpu", seed=3)
    x = np.stack([program() for _ in range(400)])
    assert (np.sort(x, 1) == np.arange(6)).all()
    for number in range(6):
        for place in range(6):
            within(np.mean(x[:, place] == number), 1 / 6, 400)


def test_places_are_drawn_by_their_weights() -> None:
    weights = np.array([[1, 0, 3, 4], [5, 1, 1, 1]], np.float32)
    x = drawn(lambda w: f.multinomial(w, N, replacement=True), weights)
    for row, shares in zip(x, weights / 8, strict=True):
        for place in range(4):
            within(np.mean(row == place), shares[place])
    once = drawn(lambda w: f.multinomial(w, 3), np.ones((500, 4), np.float32))
    assert all(len(set(row)) == 3 for row in once.tolist())


def test_gumbel_softmax_draws_by_softmax_and_passes_its_gradient() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.2], np.float32))[None].repeat(N, 0)
    hard = drawn(lambda x: f.gumbel_softmax(x, 0.5, hard=True), logits)
    assert (hard.sum(1) == 1).all() and set(np.unique(hard)) == {0, 1}
    for place, share in enumerate((0.5, 0.3, 0.2)):
        within(hard[:, place].mean(), share)
    slope = drawn(
        graphc.grad(lambda x: (f.gumbel_softmax(x, hard=True) * np.float32([1, 2, 3])).sum()),
        logits,
    )
    assert np.abs(slope).max() > 0.1


def test_dropouts_keep_mean_and_variance() -> None:
    x = np.random.default_rng(0).normal(size=(200, 100)).astype(np.float32)
    y = drawn(lambda x: f.alpha_dropout(x, 0.3), x)
    assert abs(y.mean() - x.mean()) < 0.03 and abs(y.var() - x.var()) < 0.06
    for axes, dropout in ((1, f.dropout1d), (2, f.dropout2d), (3, f.dropout3d)):
        ones = np.ones((100, 20, *(2,) * axes), np.float32)
        z = drawn(lambda x, d=dropout: d(x, 0.25), ones).reshape(2000, -1)
        assert (z == z[:, :1]).all() and set(np.unique(z)) == {0, np.float32(1 / 0.75)}
        within(np.mean(z[:, 0] == 0), 0.25, 2000)
    features = drawn(lambda x: f.feature_alpha_dropout(x, 0.5), np.ones((50, 40, 3), np.float32))
    assert (features == features[:, :, :1]).all() and len(np.unique(features)) == 2
    assert (drawn(f.alpha_dropout, x, training=False) == x).all()


def test_rrelu_draws_slopes_between_its_limits() -> None:
    x = -np.ones(N, np.float32)
    y = -drawn(lambda x: f.rrelu(x, 0.2, 0.4), x)
    assert y.min() >= 0.2 and y.max() <= 0.4 and abs(y.mean() - 0.3) < 0.002
    np.testing.assert_allclose(-drawn(f.rrelu, x, training=False), (1 / 8 + 1 / 3) / 2, rtol=1e-6)


def everything(weights: Any) -> tuple[Any, ...]:
    return (
        f.rand((3, 5)),
        f.rand_like(weights),
        f.randn((17,)),
        f.randn_like(weights),
        f.randint(0, 9, (2, 7)),
        f.randint_like(weights, 0, 9, "i32"),
        f.bernoulli(weights),
        f.randperm(33),
        f.multinomial(weights, 2),
        f.normal(weights, 1.0),
        f.gumbel_softmax(weights),
        f.dropout(weights),
    )


WEIGHTS = np.random.default_rng(1).uniform(0.1, 0.9, (4, 5)).astype(np.float32)


@pytest.mark.parametrize("device", ["reference", "sim"])
def test_draws_are_the_same_on_every_device(device: str) -> None:
    first, other = (drawn(everything, WEIGHTS, device=d, calls=2) for d in ("cpu", device))
    for a, b in zip(first, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{"streams": 4}, {"threads": 1}])
def test_draws_are_the_same_bits_for_all_streams_and_threads(options: dict[str, int]) -> None:
    first, other = drawn(everything, WEIGHTS), drawn(everything, WEIGHTS, **options)
    assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_draws_change_with_the_call_the_seed_and_the_place() -> None:
    def two() -> Any:
        return f.rand((64,)), f.rand((64,))

    first, second, third = drawn(two), drawn(two, calls=2), drawn(two, seed=4)
    different = [first[0], first[1], second[0], second[1], third[0], third[1]]
    for i, a in enumerate(different):
        assert all(not np.array_equal(a, b) for b in different[:i])
    assert np.array_equal(first, drawn(two))
