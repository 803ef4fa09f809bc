"""Which random numbers a program draws: graphc.seed, compile's seed=, and what is restored."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from tests.nn.running import Array
from tests.tools import need_command

DEVICES = ("reference", "cpu", "sim")
ONES = np.ones((16, 8), np.float32)


def loop(x: Any) -> Any:
    """The same draw in each iteration would give equal rows."""
    return graphc.scan(lambda carry, row: (carry, graphc.dropout(row)), x[0], x)[1]


def attention(x: Any) -> Any:
    q = graphc.reshape(x, (1, 2, 8, 8))
    return graphc.scaled_dot_product_attention(q, q, q, dropout_p=0.5)


FUNCTIONS = {"dropout": graphc.dropout, "scan": loop, "attention": attention}


def program(function: Any = graphc.dropout, device: str = "reference", **options: Any) -> Any:
    if device != "reference":
        need_command("g++", "clang++")
    spec = graphc.spec(ONES.shape)
    return graphc.compile(function, spec, training=True, device=device, **options)


def equal(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b))


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_two_programs_draw_different_numbers_unless_asked_to(kind: str) -> None:
    function = FUNCTIONS[kind]
    first, second = program(function), program(function)
    assert not equal(first(ONES), second(ONES))
    assert not equal(first(ONES), first(ONES))
    asked = [program(function, seed=7) for _ in range(2)]
    for _ in range(2):
        assert equal(asked[0](ONES), asked[1](ONES))
    assert not equal(program(function, seed=8)(ONES), program(function, seed=7)(ONES))


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_seed_governs_every_later_program_on_every_device(kind: str) -> None:
    function = FUNCTIONS[kind]
    drawn: dict[int, list[Array]] = {}
    for number in (1, 2, 1):
        graphc.seed(number)
        programs = [program(function), program(function)]
        found = [p(ONES) for p in programs for _ in range(2)]
        assert all(map(equal, drawn.setdefault(number, found), found))
    assert not any(map(equal, drawn[1], drawn[2]))
    for device in DEVICES[1:]:
        graphc.seed(1)
        compiled = program(function, device)
        for expected in drawn[1][:2]:
            np.testing.assert_allclose(compiled(ONES), expected, rtol=1e-5, atol=1e-6)


def test_iterations_of_a_scan_draw_different_numbers() -> None:
    rows = program(loop)(ONES)
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_programs_that_draw_nothing_and_initial_weights_keep_their_numbers_apart() -> None:
    graphc.seed(3)
    weight, expected = nn.Linear(4, 4).weight.numpy(), program()(ONES)
    graphc.seed(3)
    program(graphc.relu)
    np.testing.assert_array_equal(program()(ONES), expected)
    np.testing.assert_array_equal(nn.Linear(4, 4).weight.numpy(), weight)


def test_another_key_needs_no_other_kernel() -> None:
    need_command("g++", "clang++")
    first, second = program(device="cpu"), program(device="cpu")
    assert first.kernels == second.kernels


def trainer(model: nn.Module, rule: optim.Rule) -> graphc.Program:
    return graphc.compile(
        lambda model, x: (graphc.mean(model(x)), model(x)),
        model,
        graphc.spec(ONES.shape),
        update=rule,
        device="reference",
    )


def test_draws_go_on_where_the_state_was_saved() -> None:
    model, rule = nn.Sequential(nn.Linear(8, 8), nn.Dropout()), optim.SGD(lr=0.0)
    step = trainer(model, rule)
    step(ONES)
    of_program, of_rule = step.state_dict(), rule.state_dict()
    expected = step(ONES)[1]
    step.load_state_dict(of_program)
    np.testing.assert_array_equal(step(ONES)[1], expected)
    resumed = optim.SGD(lr=0.0)
    resumed.load_state_dict(of_rule)
    np.testing.assert_array_equal(trainer(model, resumed)(ONES)[1], expected)
    assert not equal(trainer(model, optim.SGD(lr=0.0))(ONES)[1], expected)


@pytest.mark.parametrize("seed", ["1", True, 1.5])
def test_a_seed_is_an_integer(seed: Any) -> None:
    with pytest.raises(graphc.GraphError) as raised:
        program(seed=seed)
    message = re.sub(r" \(test_\w+\.py:\d+\)$", "", str(raised.value))
    assert message == f"seed: expected an integer or None, got {seed!r}"
