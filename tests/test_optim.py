"""Update rules: beside PyTorch's over twenty steps, their options, their state."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.trace import Builder
from tests.nn.running import Array, play, random, traced
from tests.support.optim import SHAPES, STEPS, Training, Weights, assert_same, gradient
from tests.tools import need_module

# fmt: off
RULES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
    ("Adam", {}),
    ("Adam", {"lr": 0.03, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.05}),
    ("Adam", {"lr": 0.03, "betas": (0.0, 0.5)}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.03, "weight_decay": 0.2}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.03, "alpha": 0.8, "eps": 1e-4, "weight_decay": 0.05}),
    ("RMSprop", {"momentum": 0.9}),
    ("RMSprop", {"centered": True, "eps": 1e-3}),
    ("RMSprop", {"centered": True, "eps": 1e-3, "momentum": 0.5}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.05,
                 "initial_accumulator_value": 0.3, "eps": 1e-5}),
    ("Adam", {"amsgrad": True, "lr": 0.03, "betas": (0.9, 0.5)}),
    ("AdamW", {"amsgrad": True, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05, "maximize": True}),
    ("RMSprop", {"maximize": True}),
    ("Adagrad", {"maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"lr": 0.03, "betas": (0.8, 0.95), "weight_decay": 0.05, "momentum_decay": 0.5}),
    ("NAdam", {"weight_decay": 0.05, "decoupled_weight_decay": True, "momentum_decay": 0.0}),
    ("RAdam", {}),
    ("RAdam", {"lr": 0.03, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.05}),
    ("RAdam", {"weight_decay": 0.05, "decoupled_weight_decay": True, "maximize": True}),
    ("Adamax", {}),
    ("Adamax", {"lr": 0.03, "betas": (0.8, 0.5), "weight_decay": 0.05, "maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.3, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.05, "maximize": True}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.03, "etas": (0.4, 1.5), "step_sizes": (0.02, 0.05), "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 3, "weight_decay": 0.05}),
]
# fmt: on


def trained_by_torch(make: Callable[[Any], Any], clip: float | None = None) -> dict[str, Array]:
    """The weights after STEPS steps of PyTorch's optimizer."""
    torch = need_module("torch")
    start = Weights().state_dict()
    weights = {n: torch.nn.Parameter(torch.from_numpy(a)) for n, a in start.items()}
    optimizer = make(list(weights.values()))
    for step in range(STEPS):
        for name, weight in weights.items():
            weight.grad = torch.from_numpy(gradient(name, step)).clone()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(list(weights.values()), clip)
        optimizer.step()
    return {name: weight.detach().numpy() for name, weight in weights.items()}


@pytest.mark.parametrize(("name", "options"), RULES, ids=[f"{n}-{o}" for n, o in RULES])
def test_rule_agrees_with_pytorch(name: str, options: dict[str, Any]) -> None:
    torch = need_module("torch")
    lr = {"lr": 1e-3} if name == "SGD" and "lr" not in options else {}
    theirs = trained_by_torch(lambda w: getattr(torch.optim, name)(w, **lr, **options))
    training = Training(getattr(optim, name)(**options))
    for step in range(STEPS):
        training.step(step)
    assert_same(training.weights.state_dict(), theirs)
    assert training.rule.step == STEPS


@pytest.mark.parametrize("clip", [0.5, 1e3])
def test_gradients_are_clipped_by_their_common_norm(clip: float) -> None:
    torch = need_module("torch")
    theirs = trained_by_torch(lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9), clip)
    training = Training(optim.SGD(lr=0.1, momentum=0.9, clip_grad_norm=clip))
    for step in range(STEPS):
        training.step(step)
    assert_same(training.weights.state_dict(), theirs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_two_bytes_are_updated_in_float32(dtype: str) -> None:
    """In float64 each step would take twice the time, and on most GPUs far more."""
    model = nn.Linear(2, 1).to(dtype)
    train = graphc.compile(
        lambda model, x: graphc.mean(model(x)),
        model,
        graphc.spec((3, 2), dtype),
        update=optim.AdamW(clip_grad_norm=1.0, ema=0.9),
        device="reference",
    )
    assert "f32[1,2]" in str(train.graph) and "f64" not in str(train.graph)


def test_the_rate_changes_between_steps_without_a_new_graph() -> None:
    training = Training(optim.SGD(lr=0.5))
    before = training.weights.state_dict()
    training.rule.lr = 0.25
    training.step(0)
    for name, array in training.weights.state_dict().items():
        np.testing.assert_allclose(array, before[name] - 0.25 * gradient(name, 0), rtol=1e-6)
    assert training.rule.lr == 0.25


def test_a_schedule_sees_the_number_of_finished_steps() -> None:
    seen: list[int] = []

    def schedule(step: int) -> float:
        seen.append(step)
        return 1.0 / (step + 1)

    training = Training(optim.SGD(schedule))
    weights = training.weights.state_dict()
    for step in range(3):
        training.step(step)
        for name in SHAPES:
            weights[name] = weights[name] - np.float32(1 / (step + 1)) * gradient(name, step)
    assert_same(training.weights.state_dict(), weights)
    assert seen[-3:] == [0, 1, 2]
    assert training.rule.rate == 0.25 and training.rule.lr is schedule


def test_a_program_shows_the_rate_that_its_schedule_gives() -> None:
    train = graphc.compile(
        lambda model, x: graphc.mean(model(x)),
        nn.Linear(2, 1),
        graphc.spec((3, 2)),
        update=optim.SGD(lambda step: 0.5**step),
        device="reference",
    )
    assert train.lr == 1.0
    train(random(3, 2))
    assert train.lr == 0.5
    train.lr = 0.25
    assert train.lr == 0.25


def test_two_programs_with_one_rule_share_moments_and_counter() -> None:
    rule, weights = optim.Adam(), Weights()
    first, second = Training(rule, weights), Training(rule, weights)
    alone = Training(optim.Adam())
    for step in range(4):
        (first if step % 2 else second).step(step)
        alone.step(step)
    assert_same(weights.state_dict(), alone.weights.state_dict())
    assert rule.step == 4


def test_each_model_with_one_rule_trains_as_with_a_rule_of_its_own() -> None:
    def schedule(step: int) -> float:
        return 0.1 / (step + 1)

    rule = optim.Adam(schedule)
    first, second, alone = Training(rule), Training(rule), Training(optim.Adam(schedule))
    for step in range(3):
        first.step(step)
    for step in range(2):
        second.step(step)
        alone.step(step)
    assert_same(second.weights.state_dict(), alone.weights.state_dict())
    state = rule.state_dict()
    assert (state["step"], state["step.1"], rule.step) == (3, 2, 3)
    assert state["lr"] == rule.rate == schedule(3)
    rate = rule.clock(second.builder.buffers.values()).rate.numpy()
    assert rate == np.float32(schedule(1))


def test_steps_of_two_models_are_restored_before_compiling() -> None:
    rule, weights = optim.Adam(), [Weights(), Weights()]
    trainings = [Training(rule, w) for w in weights]
    for step in range(3):
        trainings[step % 2].step(step)
    resumed = optim.Adam()
    resumed.load_state_dict(rule.state_dict())
    copies = [Weights(), Weights()]
    for copy, original in zip(copies, weights, strict=True):
        copy.load_state_dict(original.state_dict())
        trainings.append(Training(resumed, copy))
    for training in trainings:
        training.step(3)
    assert {k: int(v) for k, v in resumed.state_dict().items() if k.startswith("step")} == {
        "step": 3,
        "step.1": 2,
    }
    for copy, original in zip(copies, weights, strict=True):
        assert_same(copy.state_dict(), original.state_dict())


def test_programs_of_one_model_and_rule_share_the_counter_of_random_ops() -> None:
    model, rule = nn.Sequential(nn.Linear(4, 4), nn.Dropout()), optim.SGD(lr=0.0)

    def program(rule: optim.Rule) -> graphc.Program:
        return graphc.compile(
            lambda model, x: (graphc.mean(model(x)), model(x)),
            model,
            graphc.spec((8, 4)),
            update=rule,
            device="reference",
            seed=0,
        )

    x = random(8, 4)
    one, first, second = program(optim.SGD(lr=0.0)), program(rule), program(rule)
    expected = [one(x)[1], one(x)[1]]
    assert (expected[0] != expected[1]).any()
    np.testing.assert_array_equal(first(x)[1], expected[0])
    np.testing.assert_array_equal(second(x)[1], expected[1])
    assert rule.state_dict()["random.step"] == 2


def test_programs_show_the_rates_of_their_own_models() -> None:
    rule = optim.SGD(lambda step: 0.5**step)
    programs = [
        graphc.compile(
            lambda model, x: graphc.mean(model(x)),
            nn.Linear(2, 1),
            graphc.spec((3, 2)),
            update=rule,
            device="reference",
        )
        for _ in range(2)
    ]
    programs[0](random(3, 2))
    assert [program.lr for program in programs] == [0.5, 1.0]


def test_a_program_that_trains_two_models_goes_on_from_the_furthest() -> None:
    rule, weights = optim.SGD(), [Weights(), Weights()]
    trainings = [Training(rule, w) for w in weights]
    trainings[1].step(0)
    builder = Builder("both")
    with builder.building():
        one = graphc.as_tensor(np.float32(1))
        scales = [vars(w)["scale"] for w in weights]
        rule.emit(builder, [(p, one, f"scale{i}") for i, p in enumerate(scales)])
    assert builder.buffers["step"] is rule.clock(trainings[1].builder.buffers.values()).step


@pytest.mark.parametrize("beta", [0.0, 0.9, 0.999, 0.99999])
@pytest.mark.parametrize("step", [1, 7, 1000, 10**6])
def test_bias_corrections_keep_their_digits(beta: float, step: int) -> None:
    at = np.array(step, np.float32)
    rule = optim.Adam(betas=(beta, beta))
    graph, builder = traced(lambda t: rule.scalars(t, t)[2], at)
    (root,) = play(graph, builder, at)
    np.testing.assert_allclose(root, np.sqrt(1 - np.float64(beta) ** step), rtol=1e-6)


def test_two_models_with_one_rule_keep_their_moments_apart() -> None:
    rule = optim.SGD(lr=0.1, momentum=0.9)
    first, second = Training(rule), Training(rule)
    for step in range(2):
        first.step(step)
    state = rule.state_dict()
    expected = 0.9 * gradient("scale", 0) + gradient("scale", 1)
    np.testing.assert_allclose(state["momentum.scale"], expected, rtol=1e-6)
    np.testing.assert_array_equal(state["momentum.scale.1"], 0)
    second.step(2)
    np.testing.assert_array_equal(rule.state_dict()["momentum.scale.1"], gradient("scale", 2))


def test_update_nodes_are_pointwise_and_say_their_module() -> None:
    from graphc.ops.base import Pointwise, Source

    graph = Training(optim.AdamW(weight_decay=0.1)).graph
    assert all(isinstance(n.op, (Pointwise, Source)) for n in graph.nodes)
    assert all(n.where.derived for n in graph.nodes)
    assert {n.where.module for n in graph.nodes} == {"", "conv1"}
    updated = {old.name for old, _ in graph.updates}
    moments = {f"{m}.{n}" for m in ("exp_avg", "exp_avg_sq") for n in SHAPES}
    assert updated == {"step", *SHAPES, *moments}


def test_weights_of_other_float_dtypes_keep_them() -> None:
    weights = Weights()
    vars(weights)["scale"] = nn.Parameter(np.array(1.0, np.float64))
    builder = Builder("test")
    with builder.building():
        from graphc.functions import as_tensor

        grad = as_tensor(np.array(0.5, np.float64))
        optim.Adam(clip_grad_norm=1.0).emit(builder, [(vars(weights)["scale"], grad, "scale")])
    kept = {old.name: new.type.dtype for old, new in builder.updates.items()}
    assert kept == {
        "step": "i32",
        "scale": "f64",
        "exp_avg.scale": "f64",
        "exp_avg_sq.scale": "f64",
    }


# fmt: off
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: optim.SGD(lr=-1), "SGD: lr expected a number in [0, inf), got -1"),
    (lambda: optim.SGD(lr=float("nan")), "SGD: lr expected a number in [0, inf), got nan"),
    (lambda: optim.SGD(lr="fast"), "SGD: lr expected a number in [0, inf), got 'fast'"),
    (lambda: optim.SGD(lambda step: -2.0), "SGD: lr expected a number in [0, inf), got -2.0"),
    (lambda: optim.SGD(momentum=-0.5), "SGD: momentum expected a number in [0, inf), got -0.5"),
    (lambda: optim.SGD(nesterov=True),
     "SGD: nesterov expected momentum > 0 and dampening = 0, got 0.0 and 0.0"),
    (lambda: optim.SGD(weight_decay=None),
     "SGD: weight_decay expected a number in [0, inf), got None"),
    (lambda: optim.SGD(clip_grad_norm=-1),
     "SGD: clip_grad_norm expected a number in [0, inf), got -1"),
    (lambda: optim.Adam(betas=(0.9, 1.0)), "Adam: betas expected a number in [0, 1), got 1.0"),
    (lambda: optim.AdamW(betas=0.9), "AdamW: betas expected a pair of numbers in [0, 1), got 0.9"),
    (lambda: optim.Adam(eps=-1), "Adam: eps expected a number in [0, inf), got -1"),
    (lambda: optim.SGD(Weights().parameters(), lr=0.1),
     "SGD: parameters are found by graphc.compile; give only lr and the rule's other numbers"),
    (lambda: optim.Adam(Weights()),
     "Adam: parameters are found by graphc.compile; give only lr and the rule's other numbers"),
    (lambda: Training(optim.Rule(0.1, 0.0, None)), "Rule has no apply method"),
    (lambda: optim.RMSprop(alpha=-1), "RMSprop: alpha expected a number in [0, inf), got -1"),
    (lambda: optim.Adagrad(lr_decay=-1), "Adagrad: lr_decay expected a number in [0, inf), got -1"),
]
# fmt: on


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_wrong_arguments_are_named(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphError, match=rf"^{re.escape(message)} \((test_)?optim\.py:\d+\)$"):
        mistake()
