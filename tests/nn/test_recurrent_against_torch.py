"""Recurrent layers beside PyTorch's: outputs, gradients, states, lengths, names."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.ir import tree
from tests.nn.recurrent import Case, compare
from tests.nn.running import random
from tests.tools import need_command, need_module

QUICK = (
    Case("LSTM"),
    Case("LSTM", layers=2, bidirectional=True, batch_first=True),
    Case("LSTM", hidden=1, steps=1),
    Case("GRU"),
    Case("GRU", layers=2, bidirectional=True),
    Case("RNN", layers=2, batch_first=True),
    Case("LSTM", hidden=16, batch=32, steps=3),
    Case("GRU", hidden=16, batch=32, steps=3),
)
"""The last two have full lanes."""

EVERY = tuple(
    Case(kind, hidden, layers, steps, 3, 4, bidirectional, batch_first)
    for kind, layers, bidirectional, batch_first, hidden, steps in itertools.product(
        ("LSTM", "GRU"), (1, 2, 3), (False, True), (False, True), (1, 7, 64, 256), (1, 2, 30)
    )
)


@pytest.mark.parametrize("case", QUICK, ids=str)
@pytest.mark.parametrize("device", ["reference", "cpu", "sim"])
def test_outputs_and_gradients_are_those_of_pytorch(case: Case, device: str) -> None:
    need_module("torch")
    if device != "reference":
        need_command("g++", "clang++")
    compare(case, device)


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY, ids=str)
def test_every_shape_has_the_outputs_and_gradients_of_pytorch(case: Case) -> None:
    need_module("torch")
    need_command("g++", "clang++")
    compare(case, "cpu")


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_three_training_steps_have_the_losses_of_pytorch(kind: str) -> None:
    torch = need_module("torch")
    need_command("g++", "clang++")
    theirs, head = getattr(torch.nn, kind)(8, 16, num_layers=2), torch.nn.Linear(16, 1)
    ours = Sequence(kind)
    state = {f"layers.{k}": v for k, v in theirs.state_dict().items()}
    state |= {f"head.{k}": v for k, v in head.state_dict().items()}
    ours.load_state_dict({k: v.numpy() for k, v in state.items()})
    x, y = random(6, 32, 8), random(6, 32, 1, seed=1)
    step = graphc.compile(
        squared_error, ours, *map(spec_of, (x, y)), update=optim.Adam(lr=0.01), device="cpu"
    )
    rule = torch.optim.Adam([*theirs.parameters(), *head.parameters()], lr=0.01)
    for _ in range(3):
        rule.zero_grad()
        loss = ((head(theirs(torch.tensor(x))[0]) - torch.tensor(y)) ** 2).mean()
        loss.backward()
        rule.step()
        assert abs(step(x, y) - loss.item()) < 5e-4 * abs(loss.item())


class Sequence(nn.Module):
    def __init__(self, kind: str) -> None:
        self.layers = getattr(nn, kind)(8, 16, num_layers=2)
        self.head = nn.Linear(16, 1)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        return self.head(self.layers(x)[0])


def squared_error(model: Any, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
    return graphc.mse_loss(model(x), y)


def spec_of(array: Any) -> Any:
    return graphc.spec(array.shape, array.dtype)


def outputs(layer: nn.Module, *arrays: Any, **options: Any) -> Any:
    program = graphc.compile(layer, *map(spec_of, arrays), device="reference", **options)
    return program(*arrays)


def twins(kind: str, *arguments: Any, **options: Any) -> tuple[Any, Any]:
    torch = need_module("torch")
    torch.manual_seed(1)
    theirs = getattr(torch.nn, kind)(*arguments, **options)
    ours = getattr(nn, kind)(*arguments, **options)
    ours.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    return ours, theirs


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells_are_those_of_pytorch(kind: str, bias: bool) -> None:
    torch = need_module("torch")
    ours, theirs = twins(kind, 5, 6, bias=bias)
    x, h, c = random(4, 5), random(4, 6, seed=1), random(4, 6, seed=2)
    with torch.no_grad():
        first = theirs(torch.tensor(x))
        state = (h, c) if kind == "LSTMCell" else h
        tensors = tuple(map(torch.tensor, state)) if kind == "LSTMCell" else torch.tensor(h)
        second = theirs(torch.tensor(x), tensors)
    for got, wanted in ((outputs(ours, x), first), (step_from(ours, x, state), second)):
        pairs = zip(got, wanted, strict=True) if kind == "LSTMCell" else [(got, wanted)]
        for a, b in pairs:
            np.testing.assert_allclose(a, b.numpy(), atol=1e-6)


def step_from(cell: nn.Module, x: Any, state: Any) -> Any:
    specs = tree.map_leaves(lambda _, a: spec_of(a), state)
    program = graphc.compile(
        lambda cell, x, state: cell(x, state), cell, spec_of(x), specs, device="reference"
    )
    return program(x, state)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported:UserWarning")
def test_relu_and_projections_are_those_of_pytorch() -> None:
    torch = need_module("torch")
    x = random(4, 3, 5)
    for kind, options in (
        ("RNN", {"nonlinearity": "relu", "num_layers": 2}),
        ("LSTM", {"proj_size": 3, "num_layers": 2, "bidirectional": True}),
        ("GRU", {"bias": False}),
    ):
        ours, theirs = twins(kind, 5, 6, **options)
        with torch.no_grad():
            wanted, _ = theirs(torch.tensor(x))
        np.testing.assert_allclose(outputs(ours, x)[0], wanted.numpy(), atol=1e-6)


def test_a_sequence_without_a_batch_is_as_in_pytorch() -> None:
    torch = need_module("torch")
    ours, theirs = twins("LSTM", 5, 6)
    x = random(4, 5)
    with torch.no_grad():
        wanted, (h, c) = theirs(torch.tensor(x))
    y, (ours_h, ours_c) = outputs(ours, x)
    for a, b in ((y, wanted), (ours_h, h), (ours_c, c)):
        assert a.shape == tuple(b.shape)
        np.testing.assert_allclose(a, b.numpy(), atol=1e-6)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_lengths_are_those_of_a_packed_sequence(kind: str) -> None:
    torch = need_module("torch")
    ours, theirs = twins(kind, 5, 6, num_layers=2, bidirectional=True)
    x, lengths = random(7, 3, 5), np.array([7, 2, 4], np.int32)
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        torch.tensor(x), torch.tensor(lengths), enforce_sorted=False
    )
    with torch.no_grad():
        wanted, last = theirs(packed)
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(wanted)
    program = graphc.compile(
        lambda layer, x, lengths: layer(x, lengths=lengths),
        ours,
        spec_of(x),
        spec_of(lengths),
        device="reference",
    )
    y, ends = program(x, lengths)
    np.testing.assert_allclose(y, padded.numpy(), atol=1e-6)
    pairs = zip(ends, last, strict=True) if kind == "LSTM" else [(ends, last)]
    for a, b in pairs:
        np.testing.assert_allclose(a, b.numpy(), atol=1e-6)


def test_dropout_between_layers_drops_in_training_alone() -> None:
    layer = nn.LSTM(4, 5, num_layers=2, dropout=0.5)
    x = random(3, 2, 4)
    first, _ = outputs(layer, x, training=True)
    second, _ = outputs(layer, x, training=False)
    third, _ = outputs(layer, x, training=False)
    assert (second == third).all()
    assert not np.allclose(first, second)


MISTAKES = [
    (lambda: nn.LSTM(4, 0), "LSTM: hidden_size expected an integer of at least 1, got 0"),
    (lambda: nn.RNN(4, 5, nonlinearity="elu"),
     "RNN: nonlinearity expected 'tanh' or 'relu', got 'elu'"),
    (lambda: nn.LSTM(4, 5, proj_size=5), "LSTM: proj_size expected less than 5, got 5"),
    (lambda: outputs(nn.GRU(4, 5), random(3, 2, 3)), "GRU: x expected 4 features, got f32[3,2,3]"),
    (lambda: outputs(nn.GRU(4, 5), random(3, 2, 3, 4)),
     "GRU: expected x[t, features] or x[t, n, features], got f32[3,2,3,4]"),
    (lambda: step_from(nn.LSTM(4, 5), random(3, 2, 4), random(1, 2, 5)),
     "LSTM: hx expected (h, c), got Tensor"),
    (lambda: step_from(nn.GRU(4, 5), random(3, 2, 4), random(1, 3, 5)),
     "GRU: the initial h expected [1, 2, 5], got f32[1,3,5]"),
    (lambda: step_from(nn.LSTMCell(4, 5), random(3, 4), (random(3, 5), random(3, 4))),
     "lstm_cell: c expected 5 features, got f32[3,4]"),
    (lambda: step_from(nn.GRUCell(4, 5), random(3, 4), random(3, 4)),
     "gru_cell: h expected 5 features for weight f32[15,5], got f32[3,4]"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), MISTAKES)
def test_mistakes_are_named(make: Any, message: str) -> None:
    with pytest.raises(GraphError, match=rf"^{re.escape(message)} \(test_recurrent"):
        make()
