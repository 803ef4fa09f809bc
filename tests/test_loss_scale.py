"""Loss scaling on the device: steps that overflow are skipped, small gradients are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.ir import Array
from graphc.optim import loss_scale

DEVICES = ("reference", "cpu", "sim")
RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((4, 8)).astype(np.float32) for _ in range(2))
SPECS = graphc.spec((4, 8)), graphc.spec((4, 8))


def net() -> Any:
    graphc.seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))


def error_of(model: Any, x: Any, y: Any) -> Any:
    return graphc.mse_loss(model(x), y)


def compiled(model: Any, rule: Any, device: str = "cpu", **options: Any) -> Any:
    return graphc.compile(
        error_of, model, *SPECS, update=rule, mixed="float16", device=device, **options
    )


def overflowing() -> Array:
    x = X.copy()
    x[0, 0] = np.inf
    return x


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_overflow_changes_nothing_but_the_scale(device: str, accumulate: int) -> None:
    model, rule = net(), optim.Adam(lr=0.01, ema=0.9)
    step = compiled(model, rule, device, accumulate=accumulate)
    first = float(step(X, Y))
    assert (step.loss_scale, step.skipped_steps) == (65536.0, 0)
    before = {**model.state_dict(), **rule.state_dict()}
    for count in (1, 2):
        assert not np.isfinite(step(overflowing(), Y))
        assert (step.loss_scale, step.skipped_steps) == (65536.0 / 2**count, count)
    after = {**model.state_dict(), **rule.state_dict()}
    changed = [n for n, a in before.items() if a.tobytes() != after[n].tobytes()]
    assert sorted(changed) == ["loss_scale", "loss_scale.skipped", "loss_scale.steps"]
    assert float(step(X, Y)) < first
    assert rule.step == 2


def test_only_random_draws_go_on_in_a_skipped_step() -> None:
    model, rule = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), optim.SGD(lr=0.1)
    step = compiled(model, rule)
    before = {**model.state_dict(), **rule.state_dict()}
    step(overflowing(), Y)
    after = {**model.state_dict(), **rule.state_dict()}
    changed = [n for n, a in before.items() if a.tobytes() != after[n].tobytes()]
    assert sorted(changed) == ["loss_scale", "loss_scale.skipped", "random.step"]


def test_the_scale_doubles_after_good_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_scale, "INTERVAL", 3)
    step = compiled(net(), optim.SGD(lr=0.01))
    scales = []
    for x in (X, X, overflowing(), X, X, X, X):
        step(x, Y)
        scales.append(step.loss_scale)
    assert scales == [65536.0, 65536.0, 32768.0, 32768.0, 32768.0, 65536.0, 65536.0]


@pytest.mark.parametrize("device", DEVICES)
def test_small_gradients_do_not_vanish(device: str) -> None:
    """Gradients below 6e-8, the smallest float16, reach the weights."""
    model = nn.Linear(8, 8)

    def loss(model: Any, x: Any) -> Any:
        return graphc.sum(model(x)) * 1e-9

    step = graphc.compile(
        loss, model, SPECS[0], update=optim.SGD(lr=1e6), mixed="float16", device=device
    )
    before = model.weight.numpy()
    step(X)
    expected = np.broadcast_to(X.sum(0) * 1e-3, (8, 8))
    np.testing.assert_allclose(before - model.weight.numpy(), expected, rtol=0.02, atol=2e-6)


def test_clipping_sees_gradients_without_the_scale() -> None:
    moved = []
    for mixed in (None, "float16"):
        model = net()
        before = model[0].weight.numpy()
        step = graphc.compile(
            error_of,
            model,
            *SPECS,
            update=optim.SGD(lr=1.0, clip_grad_norm=0.1),
            mixed=mixed,
        )
        step(X, Y)
        moved.append(model[0].weight.numpy() - before)
    np.testing.assert_allclose(moved[1], moved[0], atol=1e-4)


def test_the_scale_is_saved(tmp_path: Path) -> None:
    model, rule = net(), optim.Adam()
    step = compiled(model, rule)
    step(overflowing(), Y)
    step(X, Y)
    graphc.save_checkpoint(tmp_path / "run", 2, step)
    step.save(tmp_path / "step.graphc")
    state = rule.state_dict()
    losses = [float(step(X, Y)) for _ in range(2)]

    loaded = graphc.load(tmp_path / "step.graphc")
    assert (loaded.loss_scale, loaded.skipped_steps) == (32768.0, 1)
    assert [float(loaded(X, Y)) for _ in range(2)] == losses

    later, again = nn.Sequential(*net()), optim.Adam()
    resumed = compiled(later, again)
    graphc.load_checkpoint(tmp_path / "run", resumed)
    assert (resumed.loss_scale, resumed.skipped_steps) == (32768.0, 1)
    assert [float(resumed(X, Y)) for _ in range(2)] == losses

    early = optim.Adam()
    compiled(net(), early)
    early.load_state_dict(state)
    assert early.state_dict()["loss_scale"] == 32768.0


def test_a_later_compile_finds_the_plan_and_the_scale() -> None:
    model, rule = net(), optim.SGD(lr=0.01)
    step = compiled(model, rule)
    step(overflowing(), Y)
    again = compiled(model, rule)
    assert again.loss_scale == 32768.0
    plain = graphc.compile(error_of, net(), *SPECS, update=optim.SGD(lr=0.01), mixed="bfloat16")
    assert plain.loss_scale is None


@pytest.mark.parametrize("mixed", ["bfloat16", "float16"])
def test_gradients_are_results_and_arguments(mixed: str) -> None:
    """Two programs, one that returns gradients and one that takes them, do what one does."""
    models, rules = [net(), net()], [optim.Adam(lr=0.01), optim.Adam(lr=0.01)]
    whole = graphc.compile(error_of, models[0], *SPECS, update=rules[0], mixed=mixed)
    holder = rules[1] if mixed == "float16" else True
    slopes = graphc.compile(error_of, models[1], *SPECS, gradients=holder, mixed=mixed)
    loss, found = slopes(X, Y)
    assert {n: a.shape for n, a in found.items()} == {
        n: p.shape for n, p in models[1].named_parameters() if p.trainable
    }
    apply = graphc.compile(optim.apply, models[1], found, update=rules[1])
    assert loss == whole(X, Y)
    assert apply(found) is None
    for _ in range(2):
        loss, found = slopes(X, Y)
        assert loss == whole(X, Y)
        apply(found)
    for name, array in models[0].state_dict().items():
        np.testing.assert_array_equal(models[1].state_dict()[name], array, err_msg=name)
    if mixed == "float16":
        slopes_of_inf = slopes(overflowing(), Y)[1]
        before = models[1][0].weight.numpy()
        apply(slopes_of_inf)
        assert (apply.loss_scale, apply.skipped_steps) == (32768.0, 1)
        np.testing.assert_array_equal(models[1][0].weight.numpy(), before)


def test_gradients_of_calls_add_up() -> None:
    models = [nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    whole = graphc.compile(error_of, models[0], *SPECS, update=optim.SGD(lr=0.5))
    whole(X, Y)
    halves = graphc.spec((2, 8)), graphc.spec((2, 8))
    slopes = graphc.compile(error_of, models[1], *halves, gradients=True)
    parts = [slopes(X[i : i + 2], Y[i : i + 2])[1] for i in (0, 2)]
    mean = {name: (array + parts[1][name]) / 2 for name, array in parts[0].items()}
    graphc.compile(optim.apply, models[1], mean, update=optim.SGD(lr=0.5))(mean)
    for name, array in models[0].state_dict().items():
        np.testing.assert_allclose(models[1].state_dict()[name], array, atol=1e-6)


def test_a_function_applies_gradients_of_its_own() -> None:
    model = nn.Linear(8, 8)

    def step(model: Any, x: Any, y: Any) -> Any:
        loss, slopes = graphc.value_and_grad(error_of)(model, x, y)
        optim.apply(model, {"weight": graphc.sign(slopes["weight"])})
        return loss

    before = model.state_dict()
    program = graphc.compile(step, model, *SPECS, update=optim.SGD(lr=0.125))
    program(X, Y)
    moved = np.abs(model.weight.numpy() - before["weight"])
    np.testing.assert_allclose(moved, 0.125, atol=1e-6)
    np.testing.assert_array_equal(model.bias.numpy(), before["bias"])


def message(fn: Any) -> str:
    with pytest.raises(GraphError) as caught:
        fn()
    return str(caught.value).partition(" (test_")[0]


def test_what_does_not_fit_is_named() -> None:
    model, rule = nn.Linear(8, 8), optim.SGD(lr=0.1)

    def compile(fn: Any = error_of, args: Any = (model, *SPECS), **options: Any) -> Any:
        return lambda: graphc.compile(fn, *args, **options)

    assert message(compile(gradients=True, update=rule)) == (
        "gradients: are results in place of update=, which is given too"
    )
    assert message(compile(gradients="yes")) == (
        "gradients: expected a bool or the optimizer, got 'yes'"
    )
    assert message(compile(gradients=True, mixed="float16")) == (
        "gradients: with mixed='float16' expected the optimizer, which holds the loss's scale, "
        "got True"
    )
    grads = {"weight": graphc.spec((8, 8))}
    assert message(compile(optim.apply, (model, grads))) == (
        "apply: gives gradients to update=, which is not given"
    )
    assert message(compile(optim.apply, (model, {"w": graphc.spec(8)}), update=rule)) == (
        "apply: expected names of trainable parameters, got 'w': Linear has none such"
    )
    assert message(compile(optim.apply, (model, {"bias": graphc.spec(7)}), update=rule)) == (
        "apply: bias is f32[8], its gradient is f32[7]"
    )
    frozen = nn.Linear(8, 8)
    frozen.bias.trainable = False
    assert message(compile(optim.apply, (frozen, {"bias": graphc.spec(8)}), update=rule)) == (
        "apply: expected names of trainable parameters, got 'bias': is frozen"
    )

    def twice(model: Any, weight: Any) -> None:
        optim.apply(model, {"weight": weight})
        optim.apply(model, {"weight": weight})

    assert message(compile(twice, (model, graphc.spec((8, 8))), update=rule)) == (
        "apply: weight has two gradients"
    )

    def mapped(model: Any, weight: Any) -> Any:
        return graphc.vmap(lambda w: optim.apply(model, {"weight": w}))(weight)

    assert message(compile(mapped, (model, graphc.spec((2, 8, 8))), update=rule)) == (
        "apply: expected to be called outside of scan, vmap and other bodies"
    )
    assert message(
        compile(optim.apply, (model, {"bias": graphc.spec(8)}), update=rule, train=model.weight)
    ) == ("with update=, gradients of trainable parameters are applied, train= names none that are")
