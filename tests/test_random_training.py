"""Random models trained by several programs in turn, whose parameters are shared, frozen, grouped,
assigned, saved and restored: all of it as NumPy does it in float64."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.base.errors import GraphError
from graphc.ir import Graph
from graphc.ir.interpret import evaluate
from graphc.program import Program
from tests.random_training import Array, RandomModel, Ruled
from tests.tools import first_quick, need_command

CLOSE = 2e-4
"""Of the largest, at least 1: float32 over a few steps."""
ACTIONS = ("step",) * 6 + ("assign", "evaluate", "set_rate", "restore", "go_back", "copy")


@dataclass
class Trained:
    """A program that trains, and what it means."""

    program: Program
    ruled: Ruled
    parameters: list[nn.Parameter]
    graph: Graph
    """The loss, a further result, and the gradients by the trainable parameters of the module."""
    clock: int
    again: Callable[[], Program]
    """Compiles it once more."""

    def is_stale(self) -> bool:
        """Whether a later program updates a part of its parameters alone, and it counts them
        together."""
        state = self.program._state.values()
        return self.ruled.rule.is_stale(state, self.program._splits)


class Play:
    """What is done with a random model on a device, and in NumPy."""

    def __init__(self, seed: int, device: str) -> None:
        self.model, self.device = RandomModel(seed), device
        self.draw = random.Random(seed)
        self.weights = {id(p): p.numpy().astype(np.float64) for p in self.model.parameters}
        self.rules = [Ruled.drawn(self.model) for _ in range(self.draw.choice((1, 1, 2)))]
        made = [self.train() for _ in range(self.draw.choice((1, 2, 2, 3)))]
        self.trained = [program for program in made if program]
        for stale in filter(Trained.is_stale, self.trained):
            with pytest.raises(GraphError, match="their steps are counted apart: compile again"):
                stale.program(self.model.x, self.model.ids)
            stale.program = stale.again()
        assert not any(map(Trained.is_stale, self.trained))
        self.loss = graphc.trace(self.model.loss(0), self.model.root, *self.model.specs)
        self.evaluated = self.compile(0)

    def compile(self, loss: int, **options: Any) -> Program:
        model = self.model
        return graphc.compile(
            model.loss(loss), model.root, *model.specs, device=self.device, **options
        )

    def train(self) -> Trained | None:
        """A training program of one of the losses, if it reads what may be trained."""
        draw, model = self.draw, self.model
        number, ruled = draw.randrange(2), draw.choice(self.rules)
        chosen = [p for p in model.parameters if p.trainable]
        train: Any = None
        if draw.random() < 0.4:
            chosen = draw.sample(chosen, draw.randint(1, len(chosen)))
            names = {model.names[id(p)] for p in chosen}
            train = draw.choice((list(chosen), lambda name: name in names))
        options = {"update": ruled.rule, "train": train}
        if self.device == "cpu":
            options |= {"streams": draw.choice((1, 2, 4)), "memory": draw.choice((None, "lean"))}
        text = "\n".join(model.losses[number])
        read = [p for i, p in enumerate(model.parameters) if f"p[{i}]" in text]
        updated = [p for p in read if any(p is q for q in chosen)]
        if not updated:
            with pytest.raises(GraphError, match="the loss depends on trainable parameters"):
                self.compile(number, **options)
            return None
        slopes = graphc.value_and_grad(model.loss(number))
        graph = graphc.trace(lambda *a: slopes(*a), model.root, *model.specs)
        program = self.compile(number, **options)
        clock = ruled.clock_of(updated)
        again = lambda: self.compile(number, **options)  # noqa: E731
        return Trained(program, ruled, updated, graph, clock, again)

    def meaning(self, graph: Graph) -> tuple[Array, ...]:
        state = {name: self.weights[id(p)] for name, p in self.model.root.named_parameters()}
        inputs = [self.model.x.astype(np.float64), self.model.ids]
        return evaluate(graph, inputs, state)[0]

    def step(self) -> None:
        made = self.draw.choice(self.trained)
        loss, result, *slopes = self.meaning(made.graph)
        for got, want in zip(
            made.program(self.model.x, self.model.ids), (loss, result), strict=True
        ):
            assert_close(got, want)
        trainable = [p for _, p in self.model.root.named_parameters() if p.trainable]
        of = dict(zip(map(id, trainable), slopes, strict=True))
        made.ruled.update(self.weights, {id(p): of[id(p)] for p in made.parameters}, made.clock)

    def assign(self) -> None:
        parameter = self.draw.choice(self.model.parameters)
        generator = np.random.default_rng(self.draw.randrange(1 << 30))
        array = generator.standard_normal(parameter.shape).astype(np.float32) * 0.5
        parameter.assign(array)
        self.weights[id(parameter)] = array.astype(np.float64)

    def evaluate(self) -> None:
        for got, want in zip(
            self.evaluated(self.model.x, self.model.ids), self.meaning(self.loss), strict=True
        ):
            assert_close(got, want)

    def set_rate(self) -> None:
        self.draw.choice(self.rules).set_rate(self.draw.choice((0.01, 0.3)))

    def restore(self) -> None:
        """What is saved is what is there."""
        program = self.draw.choice(self.trained).program
        program.load_state_dict(program.state_dict())
        self.model.root.load_state_dict(self.model.root.state_dict())
        for ruled in self.rules:
            ruled.rule.load_state_dict(ruled.rule.state_dict())

    def go_back(self) -> None:
        """A step that is taken back."""
        program = self.draw.choice(self.trained).program
        saved = program.state_dict()
        program(self.model.x, self.model.ids)
        program.load_state_dict(saved)

    def copy(self) -> None:
        root = self.model.root
        for twin in (copy.deepcopy(root), pickle.loads(pickle.dumps(root))):
            for own, its in zip(root.named_parameters(), twin.named_parameters(), strict=True):
                assert own[0] == its[0] and own[1].trainable == its[1].trainable
                np.testing.assert_array_equal(own[1].numpy(), its[1].numpy())

    def run(self) -> None:
        if not self.trained:
            return
        for _ in range(self.draw.randint(4, 8)):
            getattr(self, self.draw.choice(ACTIONS))()
            for parameter in self.model.parameters:
                assert_close(parameter.numpy(), self.weights[id(parameter)])


def assert_close(got: Any, want: Array) -> None:
    assert np.shape(got) == want.shape
    largest = float(np.abs(want).max(initial=1))
    np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE * largest)


@pytest.mark.parametrize("seed", first_quick(30, range(60)))
def test_training_is_what_numpy_computes(seed: int) -> None:
    Play(seed, "reference").run()


@pytest.mark.parametrize("seed", [60, 61, 62])
def test_training_on_the_cpu_is_what_numpy_computes(seed: int) -> None:
    need_command("g++", "clang++")
    Play(seed, "cpu").run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_much_training_is_what_numpy_computes(seed: int) -> None:
    need_command("g++", "clang++")
    Play(seed, "cpu").run()
