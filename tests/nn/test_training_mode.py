"""train(), eval() and training of modules: as in PyTorch, read when a program is compiled."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from tests.nn.running import random
from tests.tools import need_command, need_module

DEVICES = ("reference", "cpu", "sim")
X = random(8, 3, 5, 5, seed=1)


class Block(nn.Module):
    def __init__(self) -> None:
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Any) -> Any:
        return self.norm(self.conv(x))


class Distilled(nn.Module):
    """A student that learns what a teacher says."""

    def __init__(self) -> None:
        self.teacher, self.student = Block(), Block()

    def forward(self, x: Any) -> Any:
        return graphc.mean(graphc.square(self.student(x) - self.teacher(x)))


def with_device(device: str) -> str:
    if device != "reference":
        need_command("g++", "clang++")
    return device


def in_pytorch(block: Block) -> Any:
    torch = need_module("torch")
    theirs = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    state = {n: torch.from_numpy(np.array(a)) for n, a in block.state_dict().items()}
    names = {"conv": "0", "norm": "1"}
    theirs.load_state_dict({names[n.split(".")[0]] + n[4:]: a for n, a in state.items()})
    return theirs


@pytest.mark.parametrize("device", DEVICES)
def test_a_teacher_and_a_frozen_norm_work_within_a_training_step_as_in_pytorch(device: str) -> None:
    torch = need_module("torch")
    graphc.seed(1)
    model = Distilled()
    for block, shift in ((model.teacher, 0.3), (model.student, -0.2)):
        block.norm.running_mean.assign(np.full(4, shift, np.float32))
    teacher, student = in_pytorch(model.teacher).eval(), in_pytorch(model.student)
    model.teacher.eval()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    step = graphc.compile(
        model,
        graphc.spec(X.shape),
        update=optim.SGD(lr=0.1),
        train=model.student,
        device=with_device(device),
    )
    model.student.norm.eval()
    finetune = graphc.compile(
        model,
        graphc.spec(X.shape),
        update=optim.SGD(lr=0.1),
        train=model.student,
        device=device,
    )
    for program in (step, step, finetune):
        student.train()
        student[1].train(program is step)
        optimizer.zero_grad()
        loss = torch.mean((student(torch.from_numpy(X)) - teacher(torch.from_numpy(X))) ** 2)
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(program(X), loss.item(), rtol=1e-5)
    for ours, theirs in ((model.teacher, teacher), (model.student, student)):
        expected = theirs.state_dict()
        for name, array in ours.state_dict().items():
            key = ("0" if name.startswith("conv") else "1") + name[4:]
            np.testing.assert_allclose(array, expected[key].numpy(), rtol=1e-4, atol=1e-5)
    assert model.student.norm.num_batches_tracked.numpy() == 2


@pytest.mark.parametrize("device", DEVICES)
def test_dropout_that_trains_draws_in_a_program_that_does_not_train(device: str) -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    model.eval()
    model[1].train()
    x = np.ones((64, 8), np.float32)
    y = graphc.compile(model, graphc.spec(x.shape), device=with_device(device))(x)
    assert set(np.unique(y)) == {0.0, 2.0}


def drawn(model: Any, function: Any = None, **options: Any) -> bool:
    """Whether a program of `model` has random ops."""
    function = model if function is None else function
    program = graphc.compile(function, graphc.spec((4, 4)), device="reference", **options)
    return any(node.op.name == "philox_uniform" for node in program.stages["trace"].nodes)


class Own(nn.Module):
    """Modules, a function and an own decision, each of which draws in training."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        # fmt: off
        self.inner = {
            "dropout": nn.Dropout(), "dropout2d": nn.Dropout2d(), "alpha": nn.AlphaDropout(),
            "feature": nn.FeatureAlphaDropout(), "rrelu": nn.RReLU(),
            "lstm": nn.LSTM(4, 4, num_layers=2, dropout=0.5),
            "attention": nn.MultiheadAttention(4, 2, dropout=0.5),
        }.get(kind)
        # fmt: on

    def forward(self, x: Any) -> Any:
        if self.kind == "function":
            return graphc.dropout(x)
        if self.kind == "own":
            return x * graphc.rand(x.shape) if self.training else x
        if self.kind == "dropout2d":
            return self.inner(graphc.reshape(x, (2, 2, 2, 2)))
        if self.kind == "attention":
            return self.inner(x, x, x)[0]
        return self.inner(x)[0] if self.kind == "lstm" else self.inner(x)

    def loss(self, x: Any) -> Any:
        return graphc.mean(self(x) if self.inner else self.forward(x))


KINDS = ("dropout", "dropout2d", "alpha", "feature", "rrelu", "lstm", "attention", "function")


@pytest.mark.parametrize("kind", [*KINDS, "own"])
def test_every_random_layer_and_function_asks_its_module(kind: str) -> None:
    model = Own(kind)
    assert not drawn(model)
    assert drawn(model, training=True)
    model.eval()
    assert not drawn(model, training=True)
    assert not drawn(model, model.loss, training=True)
    model.train()
    assert drawn(model)
    assert drawn(model, model.loss)
    model.training = False
    assert drawn(model, training=True) == (kind not in ("function", "own"))  # it is not recursive


def test_a_module_without_a_mode_is_as_the_module_that_calls_it() -> None:
    outer = nn.Sequential(nn.Sequential())
    outer.eval()
    outer[0].append(nn.Dropout())
    assert not drawn(outer, training=True)
    assert drawn(outer.train())
    assert drawn(nn.Sequential(nn.Dropout()), training=True)


def test_a_scan_asks_the_module_that_it_is_in() -> None:
    dropout = nn.Dropout()

    def loop(x: Any) -> Any:
        return graphc.scan(lambda carry, row: (dropout(carry + row), None), x[0], x)[0]

    def draws(training: bool) -> bool:
        program = graphc.compile(loop, graphc.spec((3, 4)), device="reference", training=training)
        return "philox" in str(program.stages["trace"])

    assert (draws(False), draws(True)) == (False, True)
    dropout.eval()
    assert not draws(True)
    dropout.train()
    assert draws(False)


def test_mode_is_as_in_pytorch_outside_of_programs() -> None:
    torch = need_module("torch")
    for library, kinds in ((nn, nn), (torch.nn, torch.nn)):
        model = library.Sequential(kinds.Linear(2, 2), kinds.Sequential(kinds.Dropout()))
        seen = [model.training, model[1][0].training]
        assert model.eval() is model
        seen += [m.training for m in model.modules()]
        assert model[1].train() is model[1]
        seen += [m.training for m in model.modules()]
        model.train(False)
        model[0].training = True
        seen += [m.training for m in model.modules()]
        assert seen == [
            *(True, True, *(False,) * 4),
            *(False, False, True, True, False, True, False, False),
        ]
    assert len(nn.Sequential(nn.Dropout()).eval()) == 1


def test_a_program_keeps_the_mode_that_it_was_compiled_in() -> None:
    model = nn.Dropout(0.5)
    x = np.ones((16, 16), np.float32)
    program = graphc.compile(model, graphc.spec(x.shape), training=True, device="reference")
    model.eval()
    assert (program(x) == 0).any()


def test_a_mode_is_true_or_false() -> None:
    with pytest.raises(graphc.GraphError) as raised:
        nn.Dropout().train("no")
    message = re.sub(r"\(test_\w+\.py:\d+\)", "(FILE)", str(raised.value))
    assert message == "Dropout: training expected True or False, got 'no' (FILE)"


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_norm_that_is_called_twice_counts_two_batches_as_in_pytorch(
    momentum: float | None,
) -> None:
    torch = need_module("torch")
    norm, theirs = nn.BatchNorm2d(3, momentum=momentum), torch.nn.BatchNorm2d(3, momentum=momentum)
    parts = X[:4], 2 * X[4:] + 1
    program = graphc.compile(
        lambda norm, x, y: (norm(x), norm(y)),
        norm,
        *(graphc.spec(part.shape) for part in parts),
        device="reference",
        training=True,
    )
    for _ in range(2):
        program(*parts)
        for part in parts:
            theirs(torch.from_numpy(part))
    for name, array in norm.state_dict().items():
        np.testing.assert_allclose(array, theirs.state_dict()[name].numpy(), rtol=1e-5)
