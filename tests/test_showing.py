"""Values that programs show while they run."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.program.debug_print import Statistics

X = np.array([[1.0, -2.0, np.nan], [4.0, 0.0, 3.0]], "float32")
DEVICES = ("reference", "cpu", "sim")


@pytest.mark.parametrize("device", DEVICES)
def test_show_gives_statistics_and_leaves_results(device: str) -> None:
    told: list[Statistics] = []

    def fn(x, n):
        return graphc.show(x, "x", told.append) * 2, graphc.show(n, "n", told.append)

    program = graphc.compile(fn, graphc.spec((2, 3)), graphc.spec(4, "int32"), device=device)
    for _ in range(2):
        doubled, same = program(X, np.arange(4, dtype="int32"))
        np.testing.assert_array_equal(doubled, 2 * X)
        np.testing.assert_array_equal(same, np.arange(4))
    line = f"test_showing.py:{fn.__code__.co_firstlineno + 1}"
    assert told == 2 * [
        Statistics("x", pytest.approx(1.2), -2.0, 4.0, 1, 6, line),
        Statistics("n", 1.5, 0.0, 3.0, 0, 4, line),
    ]


def test_show_prints_a_line(capsys) -> None:
    def fn(x):
        return graphc.show(x, "x") + 1

    graphc.compile(fn, graphc.spec((2, 3)), device="reference")(X)
    line = fn.__code__.co_firstlineno + 1
    assert capsys.readouterr().out == (
        f"x: mean 1.2, min -2, max 4, 1 NaN of 6 (test_showing.py:{line})\n"
    )


def test_a_value_of_nothing_but_nan_has_no_mean() -> None:
    told: list[Statistics] = []
    fn = lambda x: graphc.show(x, "x", told.append)  # noqa: E731
    graphc.compile(fn, graphc.spec(2), device="reference")(np.full(2, np.nan, "float32"))
    assert np.isnan(told[0].mean)
    assert told[0].nans == told[0].count == 2


@pytest.mark.parametrize("device", DEVICES)
def test_within_scan_and_vmap_all_iterations_and_samples_are_shown(device: str) -> None:
    told: list[Statistics] = []

    def step(carry, x):
        carry = graphc.show(carry + x, "carry", told.append)
        return carry, graphc.tap(carry * 2, "double")

    def fn(x):
        return graphc.vmap(lambda one: graphc.scan(step, graphc.zeros(()), one)[0])(x)

    program = graphc.compile(fn, graphc.spec((2, 3)), device=device)
    x = np.array([[1, 2, 3], [10, 20, 30]], "float32")
    np.testing.assert_array_equal(program(x), [6, 60])
    sums = np.cumsum(x, axis=1)
    (shown,) = told
    assert (shown.min, shown.max, shown.nans, shown.count) == (1.0, 60.0, 0, 6)
    assert shown.mean == pytest.approx(sums.mean())
    np.testing.assert_array_equal(
        np.sort(program.taps["double"].ravel()), np.sort(2 * sums.ravel())
    )


@pytest.mark.parametrize("device", DEVICES)
def test_a_hook_shows_a_layer_of_a_training_step(device: str) -> None:
    told: list[Statistics] = []
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    remove = model[1].register_forward_hook(lambda m, x, y: graphc.show(y, "hidden", told.append))
    stop = model[0].register_forward_hook(lambda m, x, y: graphc.tap(y, "before"))

    def loss(model, x):
        return graphc.mean(model(x) ** 2)

    def train(model):
        rule = optim.SGD(lr=0.1)
        return graphc.compile(loss, model, graphc.spec((2, 3)), update=rule, device=device)

    x = np.ones((2, 3), "float32")
    before = {k: v.copy() for k, v in model.state_dict().items()}
    program = train(model)
    first = program(x)
    y = x @ before["0.weight"].T + before["0.bias"]
    np.testing.assert_allclose(program.taps["before"], y, rtol=1e-5)
    hidden = np.maximum(y, 0)
    assert told[0].mean == pytest.approx(float(hidden.mean()), rel=1e-5)
    assert told[0].max == pytest.approx(float(hidden.max()), rel=1e-5)
    remove()
    stop()
    model.load_state_dict(before)
    plain = train(model)
    assert plain(x) == first  # to the bit
    assert plain.taps == {}
    assert len(told) == 1


def test_a_hook_may_replace_the_outputs() -> None:
    model = nn.Linear(2, 2)
    model.register_forward_hook(lambda m, x, y: y * 0)
    program = graphc.compile(model, graphc.spec((1, 2)), device="reference")
    np.testing.assert_array_equal(program(np.ones((1, 2), "float32")), np.zeros((1, 2)))


def test_without_shows_a_program_is_as_it_would_be() -> None:
    def fn(x):
        return graphc.exp(x)

    def shown(x):
        return graphc.show(graphc.exp(x), "x", lambda s: None)

    plain, looked = (graphc.compile(f, graphc.spec(4), device="cuda") for f in (fn, shown))
    assert len(plain.plan.outputs) == 1
    assert len(looked.plan.outputs) == 2
    assert len(plain.kernels) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: graphc.show(x, 3), "show and tap: expected a name of f32[2], got 3"),
        (lambda x: graphc.tap(x, ""), "show and tap: expected a name of f32[2], got ''"),
        (lambda x: graphc.show(x, "x", 3), "show: callback expected a function, got int"),
        (lambda x: graphc.show(x[:0], "x"), "x: f32[0] has no elements to show"),
    ],
)
def test_mistakes_are_errors(call, message) -> None:
    with pytest.raises(GraphError) as error:
        graphc.trace(call, graphc.spec(2))
    assert re.fullmatch(re.escape(message) + r" \(test_showing.py:\d+\)", str(error.value))


def test_a_hook_that_is_no_function_is_an_error() -> None:
    with pytest.raises(GraphError) as error:
        nn.Linear(2, 2).register_forward_hook(3)
    start = "Linear: register_forward_hook expected a function, got int (test_showing.py:"
    assert str(error.value).startswith(start)
