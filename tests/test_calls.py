"""How programs are called: by place and by name, with dataclasses, and what comes back."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from tests.nn.running import random
from tests.tools import need_command

DEVICES = ("reference", "cpu", "sim")
A, B = random(3, 2, seed=1), random(3, 2, seed=2)
SPEC = graphc.spec((3, 2))


@dataclass(frozen=True)
class Both:
    """Two results and what is no tensor of the user's."""

    total: Any
    parts: dict[str, Any] = field(default_factory=dict)
    nothing: None = None


@dataclass(eq=False)
class Carry:
    state: Any

    def __post_init__(self) -> None:
        assert len(self.state.shape) == 1, "made anew from something else"


def both(model: Any, a: Any, b: Any) -> Both:
    return Both(model(a) + b, {"difference": a - b})


def compiled(device: str = "reference") -> graphc.Program:
    if device != "reference":
        need_command("g++", "clang++")
    graphc.seed(0)
    return graphc.compile(both, nn.Linear(2, 2), SPEC, SPEC, device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_are_given_by_place_or_by_name(device: str) -> None:
    program = compiled(device)
    expected = program(A, B)
    for got in (program(a=A, b=B), program(b=B, a=A), program(A, b=B)):
        np.testing.assert_array_equal(got.total, expected.total)


MISFITS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda p: p(A, c=B), "both: expected the arguments a, b, got c="),
    (lambda p: p(A, B, model=B), "both: expected the arguments a, b, got model="),
    (lambda p: p(A, a=B), "both: expected a once, got it in place 0 and by name"),
    (lambda p: p(b=B), "both: expected a f32[3,2], got nothing for it"),
    (lambda p: p.profile(a=A), "both: expected b f32[3,2], got nothing for it"),
]


@pytest.mark.parametrize(("call", "expected"), MISFITS)
def test_names_that_do_not_fit_are_named(call: Callable[[Any], Any], expected: str) -> None:
    with pytest.raises(graphc.GraphError) as raised:
        call(compiled())
    assert str(raised.value) == expected


@pytest.mark.parametrize("device", DEVICES)
def test_a_dataclass_comes_back_as_it_was_returned(device: str) -> None:
    result = compiled(device)(A, B)
    assert type(result) is Both and result.nothing is None
    np.testing.assert_array_equal(result.parts["difference"], A - B)
    assert isinstance(result.total, np.ndarray)


def test_a_dataclass_is_an_argument_too() -> None:
    def product(pair: Both) -> Any:
        return pair.total * pair.parts["x"]

    program = graphc.compile(product, Both(SPEC, {"x": SPEC}), device="reference")
    np.testing.assert_array_equal(program(Both(A, {"x": B})), A * B)
    np.testing.assert_array_equal(program(pair=Both(A, {"x": B})), A * B)
    with pytest.raises(graphc.GraphError) as raised:
        program((A, {"x": B}))
    assert str(raised.value) == "product: pair: expected the dataclass Both, got tuple"
    with pytest.raises(graphc.GraphError) as raised:
        program()
    assert str(raised.value) == (
        "product: expected 1 arguments (pair.total f32[3,2], pair.parts.x f32[3,2]), got 0"
    )


def test_a_dataclass_is_a_carry_of_a_scan() -> None:
    def cumulative(x: Any) -> Any:
        def step(carry: Carry, row: Any) -> tuple[Carry, Any]:
            new = Carry(carry.state + row)
            return new, new

        return graphc.scan(step, Carry(graphc.zeros((2,))), x)

    last, all_of_them = graphc.compile(cumulative, SPEC, device="reference")(A)
    np.testing.assert_allclose(last.state, A.sum(0), rtol=1e-6)
    assert all_of_them.state.shape == (3, 2)


def test_modules_in_a_dataclass_are_found() -> None:
    @dataclass
    class Parts:
        layer: nn.Module
        again: Any = None

    class Model(nn.Module):
        def __init__(self) -> None:
            self.parts = Parts(nn.Linear(2, 2))
            self.parts.again = self.parts  # not followed for ever

        def forward(self, x: Any) -> Any:
            return self.parts.layer(x)

    @dataclass
    class Record(nn.Module):
        layer: nn.Module

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    assert Model().state_dict().keys() == {"parts.layer.weight", "parts.layer.bias"}
    model = Record(nn.Linear(2, 2))
    program = graphc.compile(lambda model, x: model(x), model, SPEC, device="reference")
    assert program(A).shape == (3, 2)


def trained(model: nn.Module, rule: optim.Rule, device: str) -> graphc.Program:
    return graphc.compile(
        lambda model, x: graphc.mean(graphc.square(model(x))),
        model,
        SPEC,
        update=rule,
        device=device,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_of_a_trained_model_and_rule_goes_on_by_itself(how: Any, device: str) -> None:
    if device != "reference":
        need_command("g++", "clang++")
    graphc.seed(0)
    model, rule = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), optim.Adam(lr=0.1)
    model[1].eval()
    step = trained(model, rule, device)
    step(A)
    copied, copied_rule = how((model, rule))
    frozen = copied.state_dict()
    assert copied[1].training is False
    assert step(A) != step(A)
    for name, array in copied.state_dict().items():
        np.testing.assert_array_equal(array, frozen[name])
    assert copied_rule.step == 1
    again = trained(copied, copied_rule, device)
    again(A)
    again(A)
    for name, array in copied.state_dict().items():
        np.testing.assert_array_equal(array, model.state_dict()[name])


@pytest.mark.parametrize("device", DEVICES)
def test_pad_takes_one_number_for_all_sides(device: str) -> None:
    if device != "reference":
        need_command("g++", "clang++")
    pad = graphc.compile(lambda x: graphc.pad(x, 1), SPEC, device=device)
    np.testing.assert_array_equal(pad(A), np.pad(A, 1))


@pytest.mark.parametrize("widths", [True, (1, 2), [(1, 2)], -1, "1", None])
def test_pad_refuses_what_is_neither_a_number_nor_pairs(widths: Any) -> None:
    with pytest.raises(graphc.GraphError) as raised:
        graphc.trace(lambda x: graphc.pad(x, widths), SPEC)
    assert re.sub(r" \(test_\w+\.py:\d+\)$", "", str(raised.value)) == (
        "pad: expected a pair of non-negative widths for each axis of f32[3,2], or one number, "
        f"got {[('1',)] if widths == '1' else widths}"
    )
