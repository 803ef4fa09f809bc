"""Dropout as a layer: only in training programs, other elements at each step, the same mean."""

from __future__ import annotations

import numpy as np

from graphc import nn
from tests.nn.running import play, run, traced

ONES = np.ones((64, 64), np.float32)


def test_training_drops_a_share_and_scales_the_rest() -> None:
    y = run(nn.Dropout(0.25), ONES, training=True)
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    share = (y == 0).mean()
    deviation = (0.25 * 0.75 / ONES.size) ** 0.5
    assert abs(share - 0.25) < 4 * deviation


def test_each_step_and_each_layer_drops_other_elements() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    graph, builder = traced(lambda x: (model[0](x), model[1](x)), ONES, training=True)
    first, second = play(graph, builder, ONES), play(graph, builder, ONES)
    masks = [y == 0 for y in (*first, *second)]
    for i, mask in enumerate(masks):
        for other in masks[:i]:
            assert abs((mask == other).mean() - 0.5) < 0.05


def test_other_programs_keep_everything() -> None:
    np.testing.assert_array_equal(run(nn.Dropout(0.25), ONES), ONES)


def test_a_probability_of_one_drops_everything() -> None:
    np.testing.assert_array_equal(run(nn.Dropout(1.0), ONES, training=True), 0 * ONES)


def test_dropout_of_channels_drops_or_keeps_them_whole() -> None:
    for layer, shape in (
        (nn.Dropout1d(0.25), (40, 20, 3)),
        (nn.Dropout2d(0.25), (40, 20, 3, 2)),
        (nn.Dropout3d(0.25), (40, 20, 1, 3, 2)),
    ):
        ones = np.ones(shape, np.float32)
        y = run(layer, ones, training=True).reshape(800, -1)
        assert (y == y[:, :1]).all()
        assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
        assert abs((y[:, 0] == 0).mean() - 0.25) < 4 * (0.25 * 0.75 / 800) ** 0.5
        np.testing.assert_array_equal(run(layer, ones), ones)


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    x = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    y = run(nn.AlphaDropout(0.25), x, training=True)
    counts = np.unique(y, return_counts=True)[1]
    share = counts.max() / x.size
    assert abs(share - 0.25) < 4 * (0.25 * 0.75 / x.size) ** 0.5
    assert abs(y.mean()) < 4 / 64 and abs(y.var() - 1) < 0.1
    np.testing.assert_array_equal(run(nn.AlphaDropout(0.25), x), x)
    np.testing.assert_array_equal(run(nn.AlphaDropout(1.0), x, training=True), 0 * x)


def test_alpha_dropout_of_channels_drops_or_keeps_them_whole() -> None:
    ones = np.ones((40, 20, 3), np.float32)
    y = run(nn.FeatureAlphaDropout(0.25), ones, training=True).reshape(800, -1)
    assert (y == y[:, :1]).all() and len(np.unique(y)) == 2
    assert abs((y[:, 0] < 0).mean() - 0.25) < 4 * (0.25 * 0.75 / 800) ** 0.5
