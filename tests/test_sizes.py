"""One program for every size of a named axis: whole networks against programs of each size alone.

Padding to buckets changes no bit on the CPU, and a step of any size is that of its own program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ir import tree
from tests.tools import need_command

RNG = np.random.default_rng(0)


class Mlp(nn.Module):
    def __init__(self) -> None:
        self.body = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3))

    def forward(self, x: Any) -> Any:
        return graphc.softmax(self.body(x), axis=-1)


class LeNet(nn.Module):
    def __init__(self) -> None:
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 5), nn.Conv2d(4, 6, 3)
        self.fc1, self.fc2 = nn.Linear(24, 16), nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = graphc.max_pool2d(graphc.relu(self.conv1(x)), 2)
        x = graphc.max_pool2d(graphc.relu(self.conv2(x)), 2)
        return self.fc2(graphc.relu(self.fc1(graphc.flatten(x))))


class Lstm(nn.Module):
    def __init__(self) -> None:
        self.lstm, self.head = nn.LSTM(5, 7), nn.Linear(7, 4)

    def forward(self, x: Any) -> Any:  # [time, batch, features]
        y, (h, c) = self.lstm(x)
        return self.head(y), h, c


class Encoder(nn.Module):
    def __init__(self) -> None:
        self.table = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layer(self.table(x))


class Normed(nn.Module):
    def __init__(self) -> None:
        self.linear, self.norm, self.head = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.head(graphc.dropout(graphc.relu(self.norm(self.linear(x))), 0.4, self.training))


def loss_fn(model: Any, x: Any, y: Any) -> Any:
    return graphc.cross_entropy(model(x), y)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def same_bits(got: Any, wanted: Any) -> None:
    pairs = zip(tree.leaves(got), tree.leaves(wanted), strict=True)
    for (_, a), (_, b) in pairs:
        assert a.shape == b.shape and a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...], str]] = {
    "mlp": (Mlp, ("batch", 6), "float32"),
    "lenet": (LeNet, ("batch", 1, 16, 16), "float32"),
    "lstm": (Lstm, (3, "batch", 5), "float32"),
    "encoder": (Encoder, ("batch", 4), "int32"),
    "batch norm": (Normed, ("batch", 6), "float32"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_padded_call_has_the_bits_of_its_own_program(name: str) -> None:
    make, shape, dtype = NETWORKS[name]
    model = make()
    program = graphc.compile(
        model, graphc.spec(shape, dtype), batch=graphc.Buckets(5, 20), device="cpu"
    )
    for size in (3, 7):
        extents = [size if n == "batch" else n for n in shape]
        x = floats(*extents) if dtype == "float32" else RNG.integers(0, 11, extents, np.int32)
        alone = graphc.compile(model, graphc.spec(extents, dtype), device="cpu")
        same_bits(program(x), alone(x))
    assert program.sizes == [{"batch": 5}, {"batch": 20}]


def models(make: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    graphc.seed(1)
    first = make()
    second = make()
    second.load_state_dict(first.state_dict())
    return first, second


@pytest.mark.parametrize("device", ["reference", "cpu", "sim"])
def test_an_epoch_with_a_last_partial_batch_is_that_of_two_programs(device: str) -> None:
    """Batch norm, dropout and Adam: statistics, draws and moments go on from step to step."""
    if device == "sim":
        need_command("nvcc")
    ours, theirs = models(Normed)
    x, y = floats(19, 6), RNG.integers(0, 3, 19, np.int32)
    rule = optim.Adam(lr=0.05)

    def specs(n: Any) -> Sequence[Any]:
        return graphc.spec((n, 6)), graphc.spec((n,), "int32")

    graphc.seed(2)
    step = graphc.compile(
        loss_fn, ours, *specs("batch"), update=optim.Adam(lr=0.05), device=device,
        batch=graphc.Buckets(8),
    )  # fmt: skip
    graphc.seed(2)
    whole, rest = (
        graphc.compile(loss_fn, theirs, *specs(n), update=rule, device=device) for n in (8, 3)
    )
    for _ in range(2):
        for rows in (slice(0, 8), slice(8, 16), slice(16, 19)):
            alone = rest if rows.stop == 19 else whole
            same_bits(step(x[rows], y[rows]), alone(x[rows], y[rows]))
    same_bits(step.state_dict(), whole.state_dict())
    assert step.sizes == [{"batch": 8}, {"batch": 3}]
    assert step.update.step == rule.step == 6


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_lengths_of_a_recurrent_network_have_plans_of_their_own(device: str) -> None:
    model = Lstm()
    program = graphc.compile(
        model, graphc.spec(("time", 2, 5)), sizes={"time": graphc.Buckets(4, 8)}, device=device
    )
    for length in (3, 8, 1, 3):
        x = floats(length, 2, 5)
        same_bits(program(x), graphc.compile(model, graphc.spec(x.shape), device=device)(x))
    assert program.sizes == [{"time": 8}, {"time": 1}, {"time": 3}]
    assert "its length differs from size to size" in str(program.explain("time"))


def test_two_named_axes_are_padded_each_where_that_is_exact() -> None:
    model = Encoder()

    def pooled(model: Any, x: Any) -> Any:
        return graphc.max(model(x), axis=1)

    def tokens(model: Any, x: Any) -> Any:
        return model.layer.linear1(model.table(x))

    buckets = {"batch": graphc.Buckets(4), "time": graphc.Buckets(8)}
    spec = graphc.spec(("batch", "time"), "int32")
    for fn, plan in ((pooled, {"batch": 4, "time": 5}), (tokens, {"batch": 4, "time": 8})):
        program = graphc.compile(fn, model, spec, sizes=buckets, device="cpu")
        x = RNG.integers(0, 11, (3, 5), np.int32)
        alone = graphc.compile(fn, model, graphc.spec((3, 5), "int32"), device="cpu")
        same_bits(program(x), alone(x))
        assert program.sizes == [plan]


def test_a_step_over_sequences_of_any_batch_and_length() -> None:
    """Named axes shared by several inputs, in a dict, with a carry of the batch's size."""

    def loss(model: Any, given: dict[str, Any]) -> Any:
        y, _ = model.lstm(given["x"], (given["h"], given["h"]))
        return graphc.mean(graphc.square(y - graphc.mean(given["x"], axis=2, keepdims=True)))

    def specs(time: Any, batch: Any) -> dict[str, Any]:
        shapes = {"x": (time, batch, 5), "h": (1, batch, 7)}
        return {name: graphc.spec(shape) for name, shape in shapes.items()}

    ours, theirs = models(Lstm)
    step = graphc.compile(
        loss, ours, specs("time", "batch"), update=optim.SGD(lr=0.1, momentum=0.9), device="cpu"
    )
    rule = optim.SGD(lr=0.1, momentum=0.9)
    for time, batch in ((3, 2), (5, 2), (3, 4)):
        given = {"x": floats(time, batch, 5), "h": floats(1, batch, 7)}
        alone = graphc.compile(loss, theirs, specs(time, batch), update=rule, device="cpu")
        same_bits(step(given), alone(given))
    same_bits(ours.state_dict(), theirs.state_dict())
    assert step.sizes[-1] == {"time": 3, "batch": 4}


def test_vmap_and_gradients_of_each_sample_are_padded() -> None:
    model = Mlp()

    def of_each(model: Any, x: Any, y: Any) -> Any:
        gradient = graphc.grad(lambda x, y: loss_fn(model, x[None], y[None]))
        return graphc.vmap(gradient)(x, y)

    def specs(size: Any) -> Sequence[Any]:
        return graphc.spec((size, 6)), graphc.spec((size,), "int32")

    program = graphc.compile(of_each, model, *specs("n"), sizes={"n": graphc.Buckets(8)})
    x, y = floats(5, 6), RNG.integers(0, 3, 5, np.int32)
    same_bits(program(x, y), graphc.compile(of_each, model, *specs(5))(x, y))
    assert program.sizes == [{"n": 8}]


@pytest.mark.parametrize("seed", range(6))
def test_random_networks_of_random_sizes(seed: int) -> None:
    """Odd extents, layers in any order: what is padded has the bits of what is not."""
    rng = np.random.default_rng(seed)
    width, layers = int(rng.integers(3, 40)), []
    first = width
    for _ in range(rng.integers(1, 4)):
        wider = int(rng.integers(1, 40))
        layers += [nn.Linear(width, wider), rng.choice([nn.ReLU, nn.Tanh, nn.GELU])()]
        layers += [nn.LayerNorm(wider)] if rng.random() < 0.5 else []
        width = wider
    model, most = nn.Sequential(*layers), int(rng.integers(20, 70))
    spec = graphc.spec(("batch", first))
    program = graphc.compile(model, spec, batch=graphc.Buckets(most), device="cpu")
    for size in rng.integers(1, most, 1):
        x = floats(size, first)
        same_bits(program(x), graphc.compile(model, graphc.spec(x.shape), device="cpu")(x))
