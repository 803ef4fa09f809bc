"""State that loops and branches assign: an iteration reads what the one before has left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim

DEVICES = ["reference", "cpu", "sim"]
X = np.random.default_rng(3).standard_normal((5, 4, 3)).astype(np.float32)


class Walk(nn.Module):
    """A state that is read before, in and behind the loop that assigns it."""

    def __init__(self) -> None:
        self.count = nn.Buffer(np.int32(0))
        self.place = nn.Buffer(np.zeros(3, np.float32))

    def forward(self, x: Any) -> Any:
        first = self.count
        self.place = self.place + 100.0

        def step(total: Any, row: Any) -> Any:
            old = self.place
            self.count = self.count + 1
            self.place = self.place * 0.5 + row
            return total + graphc.sum(self.place), (self.count, first, old)

        total, stacks = graphc.scan(step, graphc.zeros(()), x)
        return total, *stacks, self.count, self.place


@pytest.mark.parametrize("device", DEVICES)
def test_every_read_sees_what_it_would_in_python(device: str) -> None:
    walk = Walk()
    program = graphc.compile(walk, graphc.spec((4, 3)), device=device)
    count, place = 0, np.zeros(3, np.float32)
    for x in X[:2]:
        first, total, stacks = count, np.float32(0), []
        place = place + 100
        for row in x:
            old, count = place, count + 1
            place = place * np.float32(0.5) + row
            total += place.sum()
            stacks.append((count, first, old))
        wanted = [total, *(np.array(part) for part in zip(*stacks, strict=True)), count, place]
        for found, right in zip(program(x), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-6)
    assert int(walk.count.numpy()) == 8
    np.testing.assert_allclose(walk.place.numpy(), place, rtol=1e-6)


class Normed(nn.Module):
    """A norm at every step of a loop, or of as many steps written out."""

    def __init__(self, looped: bool) -> None:
        self.looped = looped
        self.norm, self.dense = nn.BatchNorm1d(3), nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        def step(h: Any, part: Any) -> Any:
            return graphc.tanh(self.norm(self.dense(h) + part)), None

        h = graphc.zeros((4, 3))
        if self.looped:
            return graphc.scan(step, h, x)[0]
        for i in range(len(X)):
            h, _ = step(h, x[i])
        return h


@pytest.mark.parametrize("device", DEVICES)
def test_running_statistics_in_a_loop_are_those_of_its_steps(device: str) -> None:
    found = []
    for looped in (True, False):
        graphc.seed(1)
        model = Normed(looped)
        loss = lambda m, x: graphc.mean(graphc.square(m(x) - 1.0))  # noqa: E731
        step = graphc.compile(loss, model, X, update=optim.SGD(lr=0.1), device=device)
        found.append([step(X), step(X), *model.state_dict().values()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


class Counts(nn.Module):
    def __init__(self) -> None:
        self.inner, self.outer = nn.Buffer(np.int32(0)), nn.Buffer(np.int32(0))

    def loops(self, x: Any) -> Any:
        def inner(c: Any, e: Any) -> Any:
            self.inner = self.inner + 1
            return c + e * graphc.astype(self.inner, "float32"), None

        def outer(c: Any, row: Any) -> Any:
            self.outer = self.outer + self.inner
            return graphc.scan(inner, c, row)[0], None

        return graphc.scan(outer, graphc.zeros(()), x, reverse=True)[0]

    def branch(self, x: Any) -> Any:
        def positive() -> Any:
            self.outer = self.outer + 1
            return x

        def negative() -> Any:
            self.inner = self.inner + 1
            return -x

        return graphc.cond(x > 0, positive, negative)

    def ends(self, x: Any) -> Any:
        def halve(v: Any) -> Any:
            self.inner = self.inner + 1
            return v / 2

        return graphc.while_loop(lambda v: v > 1, halve, x, limit=20)


@pytest.mark.parametrize("device", DEVICES)
def test_loops_in_loops_branches_and_loops_that_end(device: str) -> None:
    counts = Counts()
    loops = graphc.compile(counts.loops, graphc.spec((3, 2)), device=device)
    rows = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    assert loops(rows) == 5 * 1 + 6 * 2 + 3 * 3 + 4 * 4 + 1 * 5 + 2 * 6
    assert (counts.inner.numpy(), counts.outer.numpy()) == (6, 0 + 2 + 4)
    branch = graphc.compile(counts.branch, graphc.spec(()), device=device)
    assert [float(branch(np.float32(v))) for v in (2, -3, -4)] == [2, 3, 4]
    assert (counts.inner.numpy(), counts.outer.numpy()) == (8, 7)
    ends = graphc.compile(counts.ends, graphc.spec(()), device=device)
    assert ends(np.float32(12)) == 0.75
    assert counts.inner.numpy() == 12


@pytest.mark.parametrize("device", DEVICES)
def test_each_sample_of_a_vmap_has_its_own(device: str) -> None:
    models = [Walk() for _ in range(3)]
    for number, model in enumerate(models):
        model.place.assign(np.full(3, number, np.float32))
    stacked = nn.stack_modules(models)
    together = graphc.compile(
        lambda m, x: graphc.vmap(lambda one, row: one(row))(m, x),
        stacked,
        graphc.spec((3, 4, 3)),
        device=device,
    )
    found = together(X[:3])
    for number, model in enumerate(models):
        alone = graphc.compile(model, graphc.spec((4, 3)), device=device)(X[number])
        for one, all_of_them in zip(alone, found, strict=True):
            np.testing.assert_allclose(all_of_them[number], one, rtol=1e-6)
        np.testing.assert_allclose(stacked.place.numpy()[number], model.place.numpy(), rtol=1e-6)


def test_gradients_pass_through_state_and_loops_may_recompute() -> None:
    """The gradient of the state behind the loop with respect to what was added to it."""

    class Sum(nn.Module):
        def __init__(self, recompute: bool) -> None:
            self.total, self.recompute = nn.Buffer(np.float32(1)), recompute

        def forward(self, x: Any) -> Any:
            def loss(x: Any) -> Any:
                def step(c: Any, e: Any) -> Any:
                    self.total = self.total * e
                    return c, None

                graphc.scan(step, graphc.zeros(()), x, recompute=self.recompute)
                return graphc.sum(self.total)

            return graphc.grad(loss)(x)

    x = np.array([2, 3, 5], np.float32)
    for recompute in (False, True):
        for device in DEVICES:
            model = Sum(recompute)
            found = graphc.compile(model, x, device=device)(x)
            np.testing.assert_allclose(found, [15, 10, 6])
            assert model.total.numpy() == 30
