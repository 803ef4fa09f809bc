"""Where recurrent layers drop, and from where their parameters are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn

KINDS = ("RNN", "LSTM", "GRU")
STEPS, BATCH, FEATURES, HIDDEN = 4, 8, 6, 5


def outputs(layer: Any, training: bool) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=(STEPS, BATCH, FEATURES)).astype(np.float32)
    specs = (graphc.spec(x.shape),)
    program = graphc.compile(layer, *specs, device="reference", training=training, seed=3)
    y: np.ndarray = program(x)[0]
    return y


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_layer_drops_nothing(kind: str) -> None:
    layer = getattr(nn, kind)(FEATURES, HIDDEN, dropout=0.9)
    np.testing.assert_array_equal(outputs(layer, True), outputs(layer, False))


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_layers_outputs_are_not_dropped_and_those_below_are(kind: str) -> None:
    layer = getattr(nn, kind)(FEATURES, HIDDEN, num_layers=2, dropout=0.5)
    kept, trained = outputs(layer, False), outputs(layer, True)
    assert np.all(trained != 0)
    assert np.mean(kept != trained) > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_layer_sees_nothing_of_the_first_if_all_is_dropped(kind: str) -> None:
    layer = getattr(nn, kind)(FEATURES, HIDDEN, num_layers=2, dropout=1.0)
    dropped = outputs(layer, True)
    layer.weight_ih_l1.assign(np.zeros_like(layer.weight_ih_l1.numpy()))
    np.testing.assert_allclose(dropped, outputs(layer, False), rtol=1e-6)
    assert np.all(dropped[:, 0] == dropped[:, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_all_parameters_are_drawn_from_plus_and_minus_the_root_of_one_over_hidden(
    kind: str,
) -> None:
    graphc.seed(5)
    features, hidden = 400, 25
    layer = getattr(nn, kind)(features, hidden, num_layers=2, bidirectional=True)
    cell = getattr(nn, f"{kind}Cell")(features, hidden)
    for name, parameter in (*layer.named_parameters(), *cell.named_parameters()):
        values = parameter.numpy()
        assert np.abs(values).max() <= 0.2, name
        assert values.min() < -0.16 and values.max() > 0.16, name
        if values.size > 1000:  # uniform: a third lies beyond two thirds of the range
            assert abs(np.mean(np.abs(values) > 0.4 / 3) - 1 / 3) < 0.05, name
