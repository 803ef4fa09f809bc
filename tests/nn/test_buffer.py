"""nn.Buffer: state that forward assigns, as in PyTorch."""

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
X = random(8, 3, seed=1)


class Codebook(nn.Module):
    """Centres that move towards what is nearest to them (van den Oord et al., 2017), and how often
    they did."""

    def __init__(self) -> None:
        self.encode = nn.Linear(3, 2)
        self.centres = nn.Buffer(random(4, 2, seed=2))
        self.counts = nn.Buffer(np.zeros(4, np.float32))
        self.calls = nn.Buffer(0)

    def forward(self, x: Any) -> Any:
        z = self.encode(x)
        if self.training:
            difference = graphc.expand_dims(z, 1) - self.centres
            distance = graphc.sum(graphc.square(difference), axis=2)
            chosen = graphc.one_hot(graphc.argmin(distance, axis=1), 4).astype("float32")
            self.counts = 0.9 * self.counts + 0.1 * graphc.sum(chosen, axis=0)
            sums = graphc.stop_gradient(graphc.matmul(chosen.T, z))
            weight = graphc.expand_dims(self.counts, 1)
            self.centres = self.centres + 0.1 * (sums - weight * self.centres)
            self.calls = self.calls + 1
        difference = graphc.expand_dims(z, 1) - self.centres  # the moved ones
        return graphc.mean(graphc.min(graphc.sum(graphc.square(difference), axis=2), axis=1))


def in_pytorch(model: Codebook) -> tuple[Any, Callable[[Any], Any]]:
    torch = need_module("torch")
    theirs = torch.nn.Module()
    theirs.encode = torch.nn.Linear(3, 2)
    for name in ("centres", "counts", "calls"):
        theirs.register_buffer(name, torch.from_numpy(np.array(model.state_dict()[name])))
    theirs.load_state_dict(
        {n: torch.from_numpy(np.array(a)) for n, a in model.state_dict().items()}
    )

    def forward(x: Any) -> Any:
        z = theirs.encode(x)
        distance = ((z[:, None] - theirs.centres) ** 2).sum(2)
        chosen = torch.nn.functional.one_hot(distance.argmin(1), 4).float()
        theirs.counts = 0.9 * theirs.counts + 0.1 * chosen.sum(0)
        sums = (chosen.T @ z).detach()
        theirs.centres = theirs.centres + 0.1 * (sums - theirs.counts[:, None] * theirs.centres)
        theirs.calls = theirs.calls + 1
        return ((z[:, None] - theirs.centres) ** 2).sum(2).amin(1).mean()

    return theirs, forward


@pytest.mark.parametrize("device", DEVICES)
def test_buffers_that_forward_assigns_are_those_of_pytorch(device: str) -> None:
    torch = need_module("torch")
    if device != "reference":
        need_command("g++", "clang++")
    graphc.seed(0)
    model = Codebook()
    theirs, forward = in_pytorch(model)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    step = graphc.compile(model, graphc.spec(X.shape), update=optim.SGD(lr=0.1), device=device)
    evaluate = graphc.compile(model, graphc.spec(X.shape), device=device)
    for _ in range(3):
        optimizer.zero_grad()
        loss = forward(torch.from_numpy(X))
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(step(X), loss.item(), rtol=1e-4)
    before = model.state_dict()
    evaluate(X)
    for name, tensor in theirs.state_dict().items():
        np.testing.assert_array_equal(model.state_dict()[name], before[name])
        np.testing.assert_allclose(before[name], tensor.numpy(), rtol=1e-4, atol=1e-5)
    assert model.calls.numpy() == 3 and before["calls"].dtype == np.int64


class Counter(nn.Module):
    def __init__(self) -> None:
        self.calls = nn.Buffer(0)
        self.hidden = nn.Buffer([0.0, 0.0], persistent=False)
        self.inside = [nn.Buffer(1.0)]

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.hidden = self.hidden + x
        self.inside[0].assign(self.inside[0] * 2)
        return self.hidden * self.calls.astype("float32")


def test_a_module_that_is_called_twice_changes_its_buffers_twice() -> None:
    model = Counter()
    program = graphc.compile(
        lambda model, x: (model(x), model(x)), model, graphc.spec((2,)), device="reference"
    )
    x = np.array([1.0, 10.0], np.float32)
    first, second = program(x)
    np.testing.assert_array_equal(first, x)
    np.testing.assert_array_equal(second, 2 * x * 2)
    first, _ = program(x)
    np.testing.assert_array_equal(first, 3 * x * 3)
    assert (model.calls.numpy(), model.inside[0].numpy()) == (4, 16)


def test_batch_norm_that_is_called_twice_counts_twice_as_in_pytorch() -> None:
    torch = need_module("torch")
    for momentum in (0.1, None):
        ours, theirs = (
            nn.BatchNorm1d(3, momentum=momentum),
            torch.nn.BatchNorm1d(3, momentum=momentum),
        )
        y = random(8, 3, seed=5)
        program = graphc.compile(
            lambda norm, x, y: norm(x) + norm(y),
            ours,
            graphc.spec(X.shape),
            graphc.spec(y.shape),
            training=True,
            device="reference",
        )
        for _ in range(2):
            expected = theirs(torch.from_numpy(X)) + theirs(torch.from_numpy(y))
            np.testing.assert_allclose(
                program(X, y), expected.detach().numpy(), rtol=1e-4, atol=1e-5
            )
        for name, tensor in theirs.state_dict().items():
            np.testing.assert_allclose(ours.state_dict()[name], tensor.numpy(), rtol=1e-5)


def test_a_buffer_that_is_not_persistent_is_not_saved() -> None:
    model = Counter()
    assert model.state_dict().keys() == {"calls", "inside.0"}
    assert model.state_types().keys() == {"calls", "inside.0"}
    model.load_state_dict({"calls": np.array(7), "inside.0": np.array(1.0, np.float32)})
    assert model.calls.numpy() == 7
    assert repr(model.hidden) == "Buffer(f32[2], persistent=False)"
    assert repr(model.calls) == "Buffer(i64[])"


def test_numbers_and_narrower_dtypes_are_assigned_too() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.count, self.mean = nn.Buffer(5), nn.Buffer(np.zeros(2, np.float16))

        def forward(self, x: Any) -> Any:
            self.count = 0
            self.mean = x
            return x

    model = Model()
    graphc.compile(model, graphc.spec((2,)), device="reference")(np.array([1.5, 2], np.float32))
    assert model.count.numpy() == 0
    np.testing.assert_array_equal(model.mean.numpy(), np.array([1.5, 2], np.float16))


def assigned(name: str, value: Any) -> None:
    class Model(Counter):
        def forward(self, x: Any) -> Any:
            setattr(self, name, value(x))
            return x

    graphc.compile(Model(), graphc.spec((2,)), device="reference")


# fmt: off
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: assigned("hidden", lambda x: x[:1]), "hidden is f32[2], it cannot become f32[1]"),
    (lambda: assigned("calls", lambda x: graphc.sum(x)), "calls is i64[], it cannot become f32[]"),
    (lambda: assigned("calls", lambda x: "three"),
     "expected a tensor, a parameter, an array or a number, got str"),
    (lambda: setattr(nn.Buffer(0.0), "trainable", True),
     "Buffer: is never trained; nn.Parameter is"),
    (lambda: setattr(Counter(), "calls", 3),
     "Counter: calls holds a parameter, got int; calls.assign(array) or load_state_dict overwrite "
     "its contents"),
]
# fmt: on


@pytest.mark.parametrize(("act", "expected"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_mistakes_are_named(act: Callable[[], Any], expected: str) -> None:
    with pytest.raises(graphc.GraphError) as raised:
        act()
    assert re.sub(r" \(test_\w+\.py:\d+\)$", "", str(raised.value)) == expected
