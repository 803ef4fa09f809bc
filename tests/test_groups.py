"""Parameter groups and averages of weights: beside PyTorch's, in one launch, saved and restored."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.runtime.plan.plan import Launch, all_steps
from tests.nn.running import Array, random
from tests.tools import need_command, need_module

DEVICES = ("reference", "cpu", "sim")
X = random(6, 4, seed=1)
STEPS = 4


class Net(nn.Module):
    def __init__(self) -> None:
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x: Any) -> Any:
        return self.head(graphc.tanh(self.body(x)))


def loss_fn(model: nn.Module, x: Any) -> Any:
    return graphc.mean(graphc.square(model(x) - 1.0))


def net() -> Net:
    graphc.seed(4)
    return Net()


def compiled(model: nn.Module, rule: optim.Rule, device: str = "reference") -> graphc.Program:
    if device != "reference":
        need_command("g++", "clang++")
    return graphc.compile(loss_fn, model, graphc.spec(X.shape), update=rule, device=device)


def in_pytorch(model: Net) -> Any:
    torch = need_module("torch")
    theirs = torch.nn.Module()
    theirs.body, theirs.head = torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)
    theirs.load_state_dict({n: torch.from_numpy(a) for n, a in model.state_dict().items()})
    return theirs


def step_in_pytorch(theirs: Any, optimizer: Any) -> None:
    torch = need_module("torch")
    optimizer.zero_grad()
    y = theirs.head(torch.tanh(theirs.body(torch.from_numpy(X))))
    torch.mean((y - 1.0) ** 2).backward()
    optimizer.step()


def assert_close(ours: dict[str, Array], theirs: Any) -> None:
    for name, tensor in theirs.items():
        expected = tensor.detach().numpy()
        np.testing.assert_allclose(ours[name], expected, rtol=1e-4, atol=2e-5, err_msg=name)


# fmt: off
RULES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "SGD": ("SGD", {"lr": 0.1}, {"lr": 0.02, "weight_decay": 0.3}),
    "SGD with momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}, {"momentum": 0.0}),
    "Adam": ("Adam", {"lr": 0.03}, {"lr": 0.005, "betas": (0.5, 0.9), "weight_decay": 0.1}),
    "AdamW": ("AdamW", {"lr": 0.03, "weight_decay": 0.2}, {"weight_decay": 0.0}),
    "RMSprop": ("RMSprop", {"lr": 0.01, "alpha": 0.8}, {"lr": 0.002, "centered": True}),
    "Adagrad": ("Adagrad", {"lr": 0.1}, {"lr": 0.05, "lr_decay": 0.3, "eps": 1e-3}),
}
# fmt: on


@pytest.mark.parametrize(
    ("kind", "device"), [*((kind, "reference") for kind in RULES), ("Adam", "cpu"), ("Adam", "sim")]
)
def test_groups_are_updated_as_in_pytorch(kind: str, device: str) -> None:
    torch = need_module("torch")
    name, options, of_group = RULES[kind]
    model = net()
    theirs = in_pytorch(model)
    rule = getattr(optim, name)(
        [{"params": model.body.parameters()}, {"params": [model.head], **of_group}], **options
    )
    optimizer = getattr(torch.optim, name)(
        [{"params": theirs.body.parameters()}, {"params": theirs.head.parameters(), **of_group}],
        **options,
    )
    step = compiled(model, rule, device)
    for number in range(STEPS):
        if number == 2:
            rule.groups[0].lr = optimizer.param_groups[0]["lr"] = 0.004
        step(X)
        step_in_pytorch(theirs, optimizer)
    assert_close(model.state_dict(), theirs.state_dict())


@pytest.mark.parametrize("device", DEVICES[1:])
def test_groups_and_averages_are_updated_by_one_launch(device: str) -> None:
    model = net()
    rule = optim.AdamW(
        groups=[
            {"params": lambda name: name.endswith("bias"), "weight_decay": 0.0, "lr": 0.1},
            {"params": model.head, "betas": (0.5, 0.9)},
            {"params": lambda name: True},
        ],
        ema=0.9,
    )
    plan = compiled(model, rule, device).plan
    assert plan is not None
    launches = [s for s in all_steps(plan.steps) if isinstance(s, Launch) and not s.where.lines]
    assert [s.kernel for s in launches] == ["adamw_scalars", "adamw_update"]
    written = {r.value for r in launches[1].writes if r.segment == "state"}
    assert len(written) == 4 * 4  # weight, two moments and average of each parameter


def test_a_function_chooses_by_name_and_listed_parameters_come_first() -> None:
    model, before = net(), net().state_dict()
    rule = optim.SGD(
        groups=[
            {"params": lambda name: "body" in name, "lr": 1.0},
            {"params": lambda name: True, "lr": 2.0},
            {"params": [model.body.bias], "lr": 4.0},
        ],
        lr=0.5,
    )
    alone = net()
    step, other = compiled(model, rule), compiled(alone, optim.SGD(lr=1.0))
    step(X)
    other(X)
    factors = {"body.weight": 1.0, "body.bias": 4.0, "head.weight": 2.0, "head.bias": 2.0}
    for name, factor in factors.items():
        moved = alone.state_dict()[name] - before[name]
        np.testing.assert_allclose(
            model.state_dict()[name], before[name] + factor * moved, rtol=1e-5, atol=1e-6
        )


def test_a_group_follows_the_rate_of_the_rule_until_it_has_one() -> None:
    model = net()
    rule = optim.SGD(
        [{"params": model.body}, {"params": model.head, "lr": lambda step: 0.5**step}], lr=0.25
    )
    step = compiled(model, rule)

    def rates() -> list[float]:
        step(X)
        state = step.state_dict()
        return [float(state["groups.0.lr"]), float(state["groups.1.lr"])]

    assert rates() == [0.25, 1.0]
    step.lr = 0.125
    assert rates() == [0.125, 0.5]
    rule.groups[0].lr = 4.0
    step.lr = 1.0
    assert rates() == [4.0, 0.25]
    assert rule.groups[0].lr == 4.0


def test_gradients_of_all_groups_are_clipped_together_as_in_pytorch() -> None:
    torch = need_module("torch")
    model = net()
    theirs = in_pytorch(model)
    rule = optim.SGD(
        [{"params": model.body}, {"params": model.head, "lr": 0.3}], lr=0.1, clip_grad_norm=0.05
    )
    optimizer = torch.optim.SGD(
        [{"params": theirs.body.parameters()}, {"params": theirs.head.parameters(), "lr": 0.3}],
        lr=0.1,
    )

    def clip(*_: Any) -> None:
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.05)

    optimizer.register_step_pre_hook(clip)
    step = compiled(model, rule)
    for _ in range(STEPS):
        step(X)
        step_in_pytorch(theirs, optimizer)
    assert_close(model.state_dict(), theirs.state_dict())


@pytest.mark.parametrize("device", DEVICES)
def test_averages_of_weights_are_those_of_pytorch(device: str) -> None:
    torch = need_module("torch")
    model = net()
    model.head.bias.trainable = False
    theirs = in_pytorch(model)
    theirs.head.bias.requires_grad_(False)
    rule = optim.SGD(lr=0.2, momentum=0.9, ema=0.7)
    step = compiled(model, rule, device)
    averaged = rule.averaged(model)
    infer = graphc.compile(averaged, graphc.spec(X.shape), device=device)
    np.testing.assert_array_equal(averaged.body.weight.numpy(), model.body.weight.numpy())
    utils = torch.optim.swa_utils
    expected = utils.AveragedModel(theirs, multi_avg_fn=utils.get_ema_multi_avg_fn(0.7))
    trained = [p for p in theirs.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.2, momentum=0.9)
    for _ in range(STEPS):
        step(X)
        step_in_pytorch(theirs, optimizer)
        expected.update_parameters(theirs)
        assert_close(averaged.state_dict(), expected.module.state_dict())
    module = expected.module
    y = module.head(torch.tanh(module.body(torch.from_numpy(X)))).detach().numpy()
    np.testing.assert_allclose(infer(X), y, rtol=1e-4, atol=1e-5)
    assert averaged.head.bias.state is model.head.bias.state
    assert not any(p.trainable for p in averaged.parameters())


def test_groups_and_averages_are_restored() -> None:
    def rule(model: Net) -> optim.Rule:
        groups = [{"params": model.body, "lr": 0.3, "momentum": 0.0}, {"params": model.head}]
        return optim.SGD(groups, lr=0.1, momentum=0.9, ema=0.5)

    model = net()
    first = rule(model)
    step = compiled(model, first)
    step(X)
    first.groups[1].lr = 0.05
    saved = first.state_dict()
    assert {"lr", "groups.0.lr", "groups.1.lr", "ema.body.bias", "momentum.head.bias"} <= set(saved)
    assert "momentum.body.bias" not in saved
    copy = net()
    copy.load_state_dict(model)
    resumed = rule(copy)
    resumed.load_state_dict(saved)
    again = compiled(copy, resumed)
    step(X)
    again(X)
    for name, array in first.state_dict().items():
        np.testing.assert_array_equal(array, resumed.state_dict()[name], err_msg=name)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, copy.state_dict()[name])
    assert [group.lr for group in resumed.groups] == [0.3, 0.05]
    with pytest.raises(graphc.GraphError) as raised:
        optim.SGD(lr=0.1).load_state_dict(saved)
    assert "\n  unexpected groups.0.lr" in str(raised.value)
    with pytest.raises(graphc.GraphError) as raised:
        rule(net()).load_state_dict({"lr": 0.1, "step": 1})
    assert "missing groups.0.lr : f32[]" in str(raised.value)


def test_a_group_with_a_rate_of_its_own_is_restored_to_that_of_the_rule() -> None:
    def rule(rate: float) -> optim.Rule:
        model = net()
        made = optim.SGD([{"params": model.body, "lr": rate}, {"params": model.head}], lr=0.1)
        compiled(model, made)
        return made

    resumed = rule(0.5)
    resumed.load_state_dict(rule(0.1).state_dict())
    assert [group.lr for group in resumed.groups] == [0.1, 0.1]


class Signed(optim.Rule):
    """An own rule with groups: w -= lr * sign(g)."""

    def __init__(self, lr: Any = 0.1, groups: Any = ()) -> None:
        super().__init__(lr, 0.0, None, groups)

    def apply(self, weight: Any, gradient: Any, moments: Any, scalars: Any) -> tuple[Any, ...]:
        return (weight - scalars[0] * graphc.sign(gradient),)


def test_a_rule_of_the_users_has_groups_too() -> None:
    model, before = net(), net().state_dict()
    rule = Signed([{"params": model.body, "lr": 0.5}, {"params": lambda name: True}], lr=0.25)
    compiled(model, rule)(X)
    for name, array in model.state_dict().items():
        moved = np.abs(array - before[name])
        np.testing.assert_allclose(moved, 0.5 if "body" in name else 0.25, rtol=1e-5)


# fmt: off
MISTAKES: list[tuple[Callable[[Net], Any], str]] = [
    (lambda m: optim.SGD(groups=m),
     "SGD: groups expected a list of dicts that hold 'params', got Net("),
    (lambda m: optim.SGD([{"params": m, "betas": (0, 0)}]),
     "SGD: groups[0]: expected params, lr, momentum, dampening, weight_decay, nesterov, got "
     "'betas'"),
    (lambda m: optim.SGD([{"params": m.body}, {"params": m, "clip_grad_norm": 1}]),
     "SGD: groups[1]: expected params, lr, momentum, dampening, weight_decay, nesterov, got "
     "'clip_grad_norm'"),
    (lambda m: optim.SGD([{"params": m, "momentum": -1}]),
     "SGD: momentum expected a number in [0, inf), got -1"),
    (lambda m: optim.SGD([{"params": m, "lr": -1}]),
     "SGD: lr expected a number in [0, inf), got -1"),
    (lambda m: optim.SGD([{"params": 3}]),
     "SGD: groups[0]: expected a module, a parameter, a list of them or a function of a "
     "parameter's name, got int"),
    (lambda m: optim.SGD([{"params": m.body}, {"params": m}]),
     "SGD: groups[1] lists a parameter f32[5,4] that groups[0] lists too"),
    (lambda m: compiled(m, optim.SGD([{"params": m.body}])),
     "SGD: head.weight is in none of the groups; compile's train= leaves parameters out, a last "
     'group {"params": lambda name: True} takes what is left'),
    (lambda m: optim.SGD(ema=1.0), "SGD: ema expected a number in [0, 1), got 1.0"),
    (lambda m: setattr(optim.SGD([{"params": m}]).groups[0], "lr", -2),
     "SGD: lr expected a number in [0, inf), got -2"),
    (lambda m: optim.SGD().averaged(m),
     "SGD: averaged expected a rule with ema=, it has none"),
    (lambda m: optim.SGD(ema=0.5).averaged(m),
     "SGD: averaged expected a model that a program updates by this rule, no program that was "
     "compiled updates this Net"),
]
# fmt: on


@pytest.mark.parametrize(("act", "expected"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_mistakes_are_named(act: Callable[[Net], Any], expected: str) -> None:
    with pytest.raises(graphc.GraphError) as raised:
        act(net())
    message = re.sub(r" \(test_\w+\.py:\d+\)$", "", str(raised.value))
    assert message == expected or (expected.endswith("(") and message.startswith(expected))


@pytest.mark.parametrize("device", DEVICES)
def test_scalars_that_are_made_from_each_other_are_one_kernel(device: str) -> None:
    model = net()
    rule = optim.AdamW(
        [
            {"params": model.head, "lr": 0.01},
            {"params": lambda name: name.endswith("bias"), "weight_decay": 0.0},
            {"params": lambda name: True},
        ],
        lr=0.001,
        clip_grad_norm=1.0,
        ema=0.99,
    )
    before = model.state_dict()
    step = compiled(model, rule, device)
    step(X)
    for name, array in rule.averaged(model).state_dict().items():
        np.testing.assert_array_equal(array, model.state_dict()[name])
        assert (array != before[name]).all()
