"""What a traced function reads of a buffer is what plain Python reads of an attribute.

The reference shares the tracer with every device, so each function here is also run as it stands on
NumPy arrays, which are not graphc's at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from tests.nn.running import random
from tests.tools import need_command

DEVICES = ("reference", "cpu", "sim")
X = random(4, seed=1)
NAMES = "abcde"


class Holder(nn.Module):
    def __init__(self, count: int) -> None:
        for number, name in enumerate(NAMES[:count]):
            setattr(self, name, nn.Buffer(random(4, seed=10 + number)))
        self.listed = [nn.Buffer(random(4, seed=20)), nn.Buffer(random(4, seed=21))]
        self.named = {"p": nn.Buffer(random(4, seed=22))}
        self.nested = [{"q": nn.Buffer(random(4, seed=23))}]


def plain(model: Holder) -> SimpleNamespace:
    """The same attributes, as arrays."""

    def array(value: Any) -> Any:
        if isinstance(value, list):
            return [array(v) for v in value]
        if isinstance(value, dict):
            return {k: array(v) for k, v in value.items()}
        return value.numpy()

    return SimpleNamespace(**{k: array(v) for k, v in vars(model).items()})


def check(step: Callable[[Any, Any], Any], device: str, count: int = 2, streams: int = 1) -> None:
    """Three calls of `step(holder, x)`: outputs and contents are those of plain Python."""
    if device != "reference":
        need_command("g++", "clang++")
    model = Holder(count)
    theirs = plain(model)
    program = graphc.compile(step, model, graphc.spec(X.shape), device=device, streams=streams)
    for call in range(3):
        x = X + np.float32(call)
        np.testing.assert_allclose(program(x), step(theirs, x), rtol=1e-5, atol=1e-6)
    ours = plain(model)
    for name in vars(theirs):
        expected, got = getattr(theirs, name), getattr(ours, name)
        for e, g in zip(flat(expected), flat(got), strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-6)


def flat(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [leaf for v in value for leaf in flat(v)]
    if isinstance(value, dict):
        return flat(list(value.values()))
    return [value]


def difference(m: Any, x: Any) -> Any:
    previous = m.a
    m.a = m.a * 0.5 + x
    return m.a - previous


def twice(m: Any, x: Any) -> Any:
    first = m.a
    m.a = x
    second = m.a
    m.a = x * 2
    return first + 10 * second + 100 * m.a


def augmented(m: Any, x: Any) -> Any:
    previous = m.a
    m.a = m.a + 1
    m.b += x
    return previous * m.b + m.a


def in_a_list(m: Any, x: Any) -> Any:
    previous = m.listed[0]
    m.listed[0] = m.listed[1] + x
    m.listed[1] = previous
    return m.listed[0] - previous


def swapped_in_a_list(m: Any, x: Any) -> Any:
    m.listed[0], m.listed[1] = m.listed[1], m.listed[0]
    return m.listed[0] * x


def in_a_dict(m: Any, x: Any) -> Any:
    previous = m.named["p"]
    m.named["p"] = x * previous
    (latest,) = m.named.values()
    return previous + latest


def in_a_nested_one(m: Any, x: Any) -> Any:
    previous = m.nested[0]["q"]
    m.nested[0]["q"] = x - previous
    return previous * m.nested[0]["q"]


def through_a_function(m: Any, x: Any) -> Any:
    def moved(old: Any) -> Any:
        m.a = old + x
        return old

    return moved(m.a) * m.a


def unused_then_used(m: Any, x: Any) -> Any:
    previous, other = m.a, m.b
    m.b = x
    m.a = previous + other
    return other + m.a * m.b


STEPS = (
    difference,
    twice,
    augmented,
    in_a_list,
    swapped_in_a_list,
    in_a_dict,
    in_a_nested_one,
    through_a_function,
    unused_then_used,
)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_name_keeps_what_it_was_given(step: Callable[[Any, Any], Any], device: str) -> None:
    check(step, device)


def rotation(order: tuple[int, ...]) -> Callable[[Any, Any], Any]:
    def step(m: Any, x: Any) -> Any:
        values = [getattr(m, NAMES[i]) for i in order]
        for name, value in zip(NAMES, values, strict=False):
            setattr(m, name, value)
        return m.a + x

    return step


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [2, 3, 5])
def test_buffers_trade_places(count: int, device: str, streams: int) -> None:
    orders = list(itertools.permutations(range(count)))
    for order in orders if count < 4 else orders[7::31]:
        check(rotation(order), device, count, streams)


def test_reads_in_both_branches_of_where() -> None:
    def step(m: Any, x: Any) -> Any:
        where = np.where if isinstance(x, np.ndarray) else graphc.where
        before = m.a
        m.a = where(x > 0, before + 1, before - m.b)
        return where(x > 0, before, m.a)

    for device in DEVICES:
        check(step, device)


def test_one_buffer_in_two_modules() -> None:
    class Part(nn.Module):
        def __init__(self, shared: nn.Buffer) -> None:
            self.shared = shared

    class Whole(nn.Module):
        def __init__(self) -> None:
            shared = nn.Buffer(np.zeros(4, np.float32))
            self.left, self.right = Part(shared), Part(shared)

        def forward(self, x: Any) -> Any:
            before = self.right.shared
            self.left.shared = self.left.shared + x
            return self.right.shared - before, self.right.shared

    program = graphc.compile(Whole(), graphc.spec(X.shape), device="reference")
    for call in range(1, 4):
        change, total = program(X)
        np.testing.assert_allclose(change, X, rtol=1e-5)
        np.testing.assert_allclose(total, call * X, rtol=1e-6)


def test_a_loss_on_the_change_trains() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.linear = nn.Linear(4, 4)
            self.state = nn.Buffer(np.zeros(4, np.float32))

        def forward(self, x: Any) -> Any:
            before = self.state
            self.state = self.linear(x)
            return graphc.sum(graphc.square(self.state - before))

    model = Model()
    before = model.linear.weight.numpy()
    train = graphc.compile(
        model, graphc.spec(X.shape), update=optim.SGD(lr=0.1), device="reference"
    )
    assert train(X) > 0
    assert not np.array_equal(model.linear.weight.numpy(), before)


@pytest.mark.parametrize("device", DEVICES)
def test_samples_of_vmap_and_scans_read_what_they_read_before(device: str) -> None:
    if device != "reference":
        need_command("g++", "clang++")
    rows = random(3, 4, seed=2)

    def step(m: Any, x: Any, rows: Any) -> Any:
        before = m.a
        m.a = x * 2
        mapped = graphc.vmap(lambda row: row * before - m.a)(rows)
        carry, _ = graphc.scan(lambda c, row: (c + row * before + m.a, None), x, rows)
        return mapped, carry

    model = Holder(1)
    before = model.a.numpy()
    program = graphc.compile(
        step, model, graphc.spec(X.shape), graphc.spec(rows.shape), device=device
    )
    mapped, carry = program(X, rows)
    np.testing.assert_allclose(mapped, rows * before - 2 * X, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(carry, X + (rows * before + 2 * X).sum(0), rtol=1e-5, atol=1e-6)


def test_the_number_of_batches_is_that_of_the_moment() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x: Any) -> Any:
            before, mean = self.norm.num_batches_tracked, self.norm.running_mean
            y = self.norm(x)
            return y, self.norm.num_batches_tracked - before, self.norm.running_mean - mean

    program = graphc.compile(Model(), graphc.spec((8, 4)), device="reference", training=True)
    x = random(8, 4, seed=3)
    _, counted, moved = program(x)
    assert counted == 1
    np.testing.assert_allclose(moved, 0.1 * x.mean(0), rtol=1e-4, atol=1e-6)


def test_an_overwritten_value_is_read_anew_by_its_own_name_alone() -> None:
    def step(m: Any, x: Any) -> Any:
        mine, other = m.a, m.a
        mine.assign(x)
        return mine, other, m.a

    model = Holder(1)
    before = model.a.numpy()
    program = graphc.compile(step, model, graphc.spec(X.shape), device="reference")
    for got, expected in zip(program(X), (X, before, X), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_an_assigned_buffer_list_leaves_the_list_as_it_is() -> None:
    model = Holder(1)
    held = list(model.listed)
    graphc.compile(in_a_list, model, graphc.spec(X.shape), device="reference")(X)
    assert type(model.listed) is list
    assert all(a is b for a, b in zip(model.listed, held, strict=True))
