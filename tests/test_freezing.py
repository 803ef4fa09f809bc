"""What an update may change: `train=`, `trainable`, and programs that were compiled before."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from tests.nn.running import random
from tests.tools import need_command, need_module

DEVICES = ("reference", "cpu", "sim")
X, Z = random(6, 4, seed=1), random(6, 3, seed=2)


class Pair(nn.Module):
    def __init__(self) -> None:
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x: Any) -> Any:
        return self.head(graphc.tanh(self.body(x)))


def loss_of_pair(model: Pair, x: Any) -> Any:
    return graphc.mean(graphc.square(model(x)))


def generator_loss(generator: nn.Module, discriminator: nn.Module, z: Any) -> Any:
    return graphc.mean(graphc.softplus(-discriminator(generator(z))))


def discriminator_loss(generator: nn.Module, discriminator: nn.Module, x: Any, z: Any) -> Any:
    fake = graphc.softplus(discriminator(generator(z)))
    return graphc.mean(fake) + graphc.mean(graphc.softplus(-discriminator(x)))


def need_compiler(device: str) -> None:
    if device != "reference":
        need_command("g++", "clang++")


def compiled(model: nn.Module, device: str = "reference", **options: Any) -> graphc.Program:
    need_compiler(device)
    update = options.pop("update", optim.SGD(lr=0.5))
    spec = graphc.spec((6, 4))
    return graphc.compile(loss_of_pair, model, spec, update=update, device=device, **options)


def changed(model: nn.Module, act: Callable[[], Any]) -> set[str]:
    """The parameters that `act` changes."""
    before = model.state_dict()
    act()
    return {n for n, a in model.state_dict().items() if (a != before[n]).any()}


HEAD, BODY = {"head.weight", "head.bias"}, {"body.weight", "body.bias"}
SELECTIONS: dict[str, tuple[Callable[[Pair], Any], set[str]]] = {
    "module": (lambda m: m.head, HEAD),
    "tuple": (lambda m: (m.body, m.head), BODY | HEAD),
    "parameter": (lambda m: m.body.bias, {"body.bias"}),
    "parameters": (lambda m: m.body.parameters(), BODY),
    "predicate": (lambda m: lambda name: name.endswith("weight"), {"body.weight", "head.weight"}),
    "all": (lambda m: None, BODY | HEAD),
}


@pytest.mark.parametrize(
    ("kind", "device"),
    [*((kind, "reference") for kind in SELECTIONS), ("predicate", "cpu"), ("predicate", "sim")],
)
def test_train_says_what_the_update_changes(kind: str, device: str) -> None:
    graphc.seed(0)
    model = Pair()
    select, expected = SELECTIONS[kind]
    program = compiled(model, device, train=select(model))
    assert changed(model, lambda: program(X)) == expected


@pytest.mark.parametrize("device", DEVICES)
def test_a_parameter_that_is_not_trainable_stays_frozen(device: str) -> None:
    graphc.seed(0)
    model = Pair()
    model.body.weight.trainable = False
    program = compiled(model, device, train=model)
    assert changed(model, lambda: program(X)) == (BODY | HEAD) - {"body.weight"}


@pytest.mark.parametrize("device", DEVICES)
def test_a_generator_and_its_discriminator_train_in_turns_as_in_pytorch(device: str) -> None:
    need_compiler(device)
    torch = need_module("torch")
    graphc.seed(0)
    g, d = nn.Linear(3, 4), Pair()
    start = [{n: torch.from_numpy(a) for n, a in m.state_dict().items()} for m in (g, d)]
    z, x = graphc.spec((6, 3)), graphc.spec((6, 4))
    adam = {"device": device, "update": optim.Adam(lr=0.05)}
    step_g = graphc.compile(generator_loss, g, d, z, train=g, **adam)
    step_d = graphc.compile(discriminator_loss, g, d, x, z, train=d, **adam)

    theirs_g = torch.nn.Linear(3, 4)
    body, head = torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)
    theirs_d = torch.nn.Sequential(body, torch.nn.Tanh(), head)
    theirs_g.load_state_dict(start[0])
    for name, layer in (("body", body), ("head", head)):
        layer.load_state_dict({k: start[1][f"{name}.{k}"] for k in ("weight", "bias")})
    adam_g, adam_d = (torch.optim.Adam(m.parameters(), lr=0.05) for m in (theirs_g, theirs_d))
    softplus, zt, xt = torch.nn.functional.softplus, torch.from_numpy(Z), torch.from_numpy(X)
    for _ in range(3):
        assert changed(g, lambda: step_d(X, Z)) == set()
        adam_d.zero_grad()
        fake = softplus(theirs_d(theirs_g(zt))).mean()
        (fake + softplus(-theirs_d(xt)).mean()).backward()
        adam_d.step()
        assert changed(d, lambda: step_g(Z)) == set()
        adam_g.zero_grad()
        softplus(-theirs_d(theirs_g(zt))).mean().backward()
        adam_g.step()
    expected = {f"g.{n}": p for n, p in theirs_g.named_parameters()}
    expected |= {f"d.body.{n}": p for n, p in body.named_parameters()}
    expected |= {f"d.head.{n}": p for n, p in head.named_parameters()}
    ours = {f"g.{n}": a for n, a in g.state_dict().items()}
    ours |= {f"d.{n}": a for n, a in d.state_dict().items()}
    for name, array in ours.items():
        # Adam's first steps have the size of its rate, whatever the gradient's rounding.
        np.testing.assert_allclose(array, expected[name].detach().numpy(), rtol=0, atol=1e-4)


def test_gradients_of_what_is_not_trained_are_not_computed() -> None:
    model = Pair()
    products = [
        sum(n.op.name == "matmul" for n in compiled(model, train=train).stages["clean"].nodes)
        for train in (model, model.head)
    ]
    assert products == [5, 3]


def test_a_parameter_that_is_an_argument_is_trained_too() -> None:
    scale = nn.Parameter(np.ones(4, np.float32))
    program = graphc.compile(
        lambda model, scale, x: graphc.mean(graphc.square(model(x * scale))),
        Pair(),
        scale,
        graphc.spec((6, 4)),
        update=optim.SGD(lr=0.5),
        device="reference",
    )
    program(X)
    assert (scale.numpy() != 1).all()
    assert {"scale", "model.body.weight"} <= program.state_dict().keys()


@pytest.mark.parametrize("before", [True, False])
def test_setting_trainable_after_compile_is_an_error_at_the_next_call(before: bool) -> None:
    model = Pair()
    model.body.weight.trainable = before
    program = compiled(model)
    program(X)
    model.body.weight.trainable = not before
    state = program.state_dict()
    with pytest.raises(graphc.GraphError) as raised:
        program(X)
    assert re.sub(r"\(test_\w+\.py:\d+\)$", "(FILE)", str(raised.value)) == (
        f"loss_of_pair: was compiled when body.weight had trainable={before}, now it has "
        f"{not before}: compile the function again (FILE)"
    )
    for name, array in program.state_dict().items():
        np.testing.assert_array_equal(array, state[name])
    again = compiled(model)
    assert ("body.weight" in changed(model, lambda: again(X))) == (not before)
    model.body.weight.trainable = before
    program(X)


def test_a_program_that_computes_gradients_itself_is_stale_too() -> None:
    model = Pair()
    gradients = graphc.compile(
        graphc.grad(loss_of_pair), model, graphc.spec((6, 4)), device="reference"
    )
    assert gradients(X).keys() == BODY | HEAD
    model.head.bias.trainable = False
    with pytest.raises(graphc.GraphError, match=r"compiled when head\.bias had trainable=True"):
        gradients(X)
    again = graphc.compile(
        graphc.grad(loss_of_pair), model, graphc.spec((6, 4)), device="reference"
    )
    assert again(X).keys() == (BODY | HEAD) - {"head.bias"}


def test_programs_that_do_not_update_a_parameter_do_not_mind_its_trainable() -> None:
    model = Pair()
    infer = graphc.compile(model, graphc.spec((6, 4)), device="reference")
    of_head = compiled(model, train=model.head)
    model.body.weight.trainable = False
    infer(X)
    assert changed(model, lambda: of_head(X)) == HEAD


# fmt: off
MISTAKES: dict[str, tuple[Callable[[Pair], Any], str]] = {
    "without update": (
        lambda m: compiled(m, update=None, train=m),
        "train: says what update= may change, which is not given"),
    "a number": (
        lambda m: compiled(m, train=3),
        "train: expected a module, a parameter, a list of them or a function of a parameter's "
        "name, got int"),
    "a class": (
        lambda m: compiled(m, train=[Pair]),
        "train: expected a module, a parameter, a list of them or a function of a parameter's "
        "name, got the class Pair"),
    "another module": (
        lambda m: compiled(m, train=(m.head, Pair())),
        "train: none of the program's arguments holds this Pair"),
    "nothing": (
        lambda m: compiled(m, train=lambda name: False),
        "with update=, the loss depends on trainable parameters, train= names none that are"),
    "no bool": (
        lambda m: setattr(m.body.weight, "trainable", 0),
        "Parameter: trainable expected True or False, got 0"),
    "integers": (
        lambda m: setattr(nn.Parameter([1, 2], trainable=False), "trainable", True),
        "Parameter: expected a float dtype, got i64[2]; trainable=False holds other dtypes"),
}
# fmt: on


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_named(case: str) -> None:
    act, expected = MISTAKES[case]
    with pytest.raises(graphc.GraphError) as raised:
        act(Pair())
    assert re.sub(r" \(test_\w+\.py:\d+\)$", "", str(raised.value)) == expected


def test_a_trainable_parameter_reached_by_closure_is_named() -> None:
    captured, given = nn.Linear(4, 3), nn.Linear(3, 1)

    def loss(model: nn.Module, x: graphc.Tensor) -> graphc.Tensor:
        return graphc.sum(model(captured(x)))

    spec, rule = graphc.spec((2, 4)), optim.SGD(lr=0.1)
    message = (
        "with update=, the function reads a parameter f32[3,4] that is not among its arguments "
        "and would not be trained: give its module to compile as an argument, or say with train= "
        "what to train (test_freezing.py:"
    )
    with pytest.raises(graphc.GraphError, match=re.escape(message)):
        graphc.compile(loss, given, spec, update=rule, device="reference")
    graphc.compile(loss, given, spec, update=rule, train=given, device="reference")
    graphc.compile(loss, given, spec, device="reference")
    for parameter in captured.parameters():
        parameter.trainable = False
    graphc.compile(loss, given, spec, update=rule, device="reference")


def test_explain_says_of_a_parameter_that_it_is_reached_by_closure() -> None:
    layer = nn.Linear(3, 2)
    program = graphc.compile(lambda x: layer(x), graphc.spec((4, 3)), device="cpu")
    names = list(program.state_types())
    assert len(names) == 2
    for name in names:
        said = str(program.explain(name))
        assert "a parameter that the function reads at test_freezing.py:" in said
        assert "without being given it: update= does not train it unless its module is an" in said
    given = graphc.compile(layer, graphc.spec((4, 3)), device="cpu")
    assert "without being given" not in str(given.explain("weight"))
