"""Each parameter's steps are counted, as in PyTorch, whatever programs it is updated by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from tests.tools import need_module

X = graphc.spec((6, 4))


class Net(nn.Module):
    def __init__(self) -> None:
        self.body = nn.Linear(4, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        return self.head(graphc.tanh(self.body(x)))


def loss(model: Any, x: Any) -> Any:
    return graphc.mean(graphc.square(model(x)) * 3.0 - model(x))


def batch(number: int) -> np.ndarray:
    return np.random.default_rng(number).standard_normal((6, 4)).astype(np.float32)


class Twin:
    """The same network in PyTorch, whose optimizer holds all its parameters."""

    def __init__(self, model: Net, rule: Callable[..., Any]) -> None:
        torch = need_module("torch")
        self.net = torch.nn.ModuleDict(
            {"body": torch.nn.Linear(4, 5), "head": torch.nn.Linear(5, 3)}
        )
        state = {n: torch.tensor(a) for n, a in model.state_dict().items()}
        self.net.load_state_dict(state)
        self.rule, self.torch = rule(self.net.parameters()), torch

    def step(self, x: np.ndarray, parts: tuple[str, ...]) -> None:
        """A step of these parts; the others have no gradient."""
        y = self.net["head"](self.torch.tanh(self.net["body"](self.torch.tensor(x))))
        self.rule.zero_grad()
        (y * y * 3.0 - y).mean().backward()
        for name, part in self.net.items():
            for parameter in part.parameters():
                if name not in parts:
                    parameter.grad = None
        self.rule.step()

    def compare(self, model: Net) -> None:
        for name, tensor in self.net.state_dict().items():
            np.testing.assert_allclose(
                model.state_dict()[name], tensor.numpy(), rtol=2e-5, atol=1e-6, err_msg=name
            )


RULES = {
    "adam": (lambda: optim.Adam(lr=0.01), lambda p: need_module("torch").optim.Adam(p, lr=0.01)),
    "dampening": (
        lambda: optim.SGD(lr=0.01, momentum=0.9, dampening=0.5),
        lambda p: need_module("torch").optim.SGD(p, lr=0.01, momentum=0.9, dampening=0.5),
    ),
    "adagrad": (
        lambda: optim.Adagrad(lr=0.05, lr_decay=0.5),
        lambda p: need_module("torch").optim.Adagrad(p, lr=0.05, lr_decay=0.5),
    ),
}


@pytest.mark.parametrize("device", ["reference", "cpu", "sim"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("order", ["head body+head", "head body body+head", "body head"])
def test_parts_and_wholes_by_one_rule_are_pytorchs(rule: str, order: str, device: str) -> None:
    graphc.seed(0)
    model = Net()
    ours, theirs = RULES[rule]
    own, twin = ours(), Twin(model, theirs)
    number = 0
    for program in order.split():
        parts = tuple(program.split("+"))
        step = graphc.compile(
            loss, model, X, update=own, train=[getattr(model, p) for p in parts], device=device
        )
        for _ in range(7):
            step(batch(number))
            twin.step(batch(number), parts)
            number += 1
    twin.compare(model)


def test_programs_of_parts_may_be_called_in_any_order() -> None:
    graphc.seed(1)
    model = Net()
    ours, theirs = RULES["adam"]
    own, twin = ours(), Twin(model, theirs)
    head = graphc.compile(loss, model, X, update=own, train=model.head)
    whole = graphc.compile(loss, model, X, update=own)
    for number, program in enumerate([head, head, whole, head, whole, whole, head]):
        program(batch(number))
        twin.step(batch(number), ("head",) if program is head else ("body", "head"))
    twin.compare(model)


def test_a_program_that_would_count_for_both_parts_refuses() -> None:
    graphc.seed(2)
    model = Net()
    ours, theirs = RULES["adam"]
    own, twin = ours(), Twin(model, theirs)
    whole = graphc.compile(loss, model, X, update=own)
    for number in range(3):
        whole(batch(number))
        twin.step(batch(number), ("body", "head"))
    head = graphc.compile(loss, model, X, update=own, train=model.head)
    head(batch(3))
    twin.step(batch(3), ("head",))
    before = model.state_dict()
    message = (
        "loss: a program compiled since then updates some of its parameters alone by the same "
        "rule, so that their steps are counted apart: compile again"
    )
    with pytest.raises(GraphError, match=message):
        whole(batch(4))
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    whole = graphc.compile(loss, model, X, update=own)
    for number, program in enumerate([whole, head, whole], 4):
        program(batch(number))
        twin.step(batch(number), ("head",) if program is head else ("body", "head"))
    twin.compare(model)


def test_a_rule_without_step_numbers_refuses_nothing() -> None:
    model, own = Net(), optim.SGD(lr=0.1, momentum=0.9)
    whole = graphc.compile(loss, model, X, update=own)
    head = graphc.compile(loss, model, X, update=own, train=model.head)
    for number, program in enumerate([whole, head, whole]):
        program(batch(number))
    assert own.step == 3 and "steps.body.weight" not in own.state_dict()


def test_a_second_model_begins_at_its_first_step() -> None:
    """Also where a program updates both models, of which one was trained before."""
    graphc.seed(3)
    first, second = Net(), Net()
    own = optim.Adam(lr=0.01)
    alone = graphc.compile(loss, first, X, update=own)
    for number in range(50):
        alone(batch(number))
    twin = Twin(second, RULES["adam"][1])

    def both(a: Any, b: Any, x: Any) -> Any:
        return loss(a, x) + loss(b, x)

    joint = graphc.compile(both, first, second, X, update=own)
    for number in range(5):
        joint(batch(number))
        twin.step(batch(number), ("body", "head"))
    twin.compare(second)


@pytest.mark.parametrize("compiled", [False, True], ids=["before", "after"])
def test_counts_are_saved_and_loaded(compiled: bool) -> None:
    """Into a rule whose only program updates everything, too."""
    graphc.seed(4)
    model = Net()
    ours, theirs = RULES["adam"]
    own, twin = ours(), Twin(model, theirs)
    head = graphc.compile(loss, model, X, update=own, train=model.head)
    whole = graphc.compile(loss, model, X, update=own)
    for number, program in enumerate([head, head, head, whole]):
        program(batch(number))
        twin.step(batch(number), ("head",) if program is head else ("body", "head"))
    state = own.state_dict()
    assert int(state["step"]) == 4
    assert int(state["steps.body.weight"]) == int(state["steps.body.bias"]) == 1
    copied = Net()
    copied.load_state_dict(model.state_dict())
    resumed = ours()
    if compiled:
        graphc.compile(loss, copied, X, update=resumed, train=copied.head)
        again = graphc.compile(loss, copied, X, update=resumed)
        resumed.load_state_dict(state)
    else:
        resumed.load_state_dict(state)
        again = graphc.compile(loss, copied, X, update=resumed)
    assert {k: v.tolist() for k, v in resumed.state_dict().items()} == {
        k: v.tolist() for k, v in state.items()
    }
    for number in range(4, 9):
        again(batch(number))
        twin.step(batch(number), ("body", "head"))
    twin.compare(copied)


def test_a_whole_models_state_goes_on_in_its_parts() -> None:
    """What is saved without counts of its own began together."""
    graphc.seed(5)
    model = Net()
    ours, theirs = RULES["adam"]
    own, twin = ours(), Twin(model, theirs)
    whole = graphc.compile(loss, model, X, update=own)
    for number in range(3):
        whole(batch(number))
        twin.step(batch(number), ("body", "head"))
    copied = Net()
    copied.load_state_dict(model.state_dict())
    resumed = ours()
    resumed.load_state_dict(own.state_dict())
    head = graphc.compile(loss, copied, X, update=resumed, train=copied.head)
    again = graphc.compile(loss, copied, X, update=resumed)
    for number, program in enumerate([head, again, head, again], 3):
        program(batch(number))
        twin.step(batch(number), ("head",) if program is head else ("body", "head"))
    twin.compare(copied)


def test_counts_that_a_program_cannot_hold_are_refused() -> None:
    model, own = Net(), optim.Adam(lr=0.01)
    head = graphc.compile(loss, model, X, update=own, train=model.head)
    graphc.compile(loss, model, X, update=own)
    head(batch(0))
    state = own.state_dict()
    other, rule = Net(), optim.Adam(lr=0.01)
    graphc.compile(loss, other, X, update=rule)
    before = rule.state_dict()
    with pytest.raises(GraphError, match=r"steps\.body\.weight: 0 steps, .* 1: load before comp"):
        rule.load_state_dict(state)
    for name, array in rule.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_an_average_begins_with_its_parameter() -> None:
    model, own = Net(), optim.SGD(lr=0.1, ema=0.5)
    head = graphc.compile(loss, model, X, update=own, train=model.head)
    whole = graphc.compile(loss, model, X, update=own)
    head(batch(0))
    whole(batch(1))
    averages = own.averaged(model).state_dict()
    np.testing.assert_array_equal(averages["body.weight"], model.state_dict()["body.weight"])
    assert (averages["head.weight"] != model.state_dict()["head.weight"]).any()


def test_a_count_that_is_no_number_is_refused() -> None:
    """Beside all else that does not fit, and before a program counts as well."""
    model, own = Net(), optim.Adam(lr=0.01)
    graphc.compile(loss, model, X, update=own)
    state = own.state_dict()
    state["step"] = np.zeros(2, np.int32)
    with pytest.raises(GraphError, match=r"step: expected i32\[\], got i32\[2\]"):
        own.load_state_dict(state)
    fresh = optim.Adam(lr=0.01)
    fresh.load_state_dict({**own.state_dict(), "steps.body.bias": np.zeros(2, np.int32)})
    with pytest.raises(GraphError, match=r"steps\.body\.bias: expected int32\[\], got int32\[2\]"):
        graphc.compile(loss, Net(), X, update=fresh)
