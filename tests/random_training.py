"""Random models whose parameters and modules are shared, frozen and grouped, trained by several
programs in turn; `Ruled.update` does the same in NumPy, in float64.

A loss is lines of text over the names of parameters; the same seed makes the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim

Array = np.ndarray[Any, np.dtype[Any]]
WIDTH, BATCH = 4, 3
SHAPES = ((4, 4), (4, 4), (4, 4), (4,), (4,), (1,), (), (1, 4), (7, 4), (0, 4), (3, 1))


class Part(nn.Module):
    """A node of the model's tree; its attributes are parameters and other parts."""

    def forward(self, x: Any) -> Any:
        return x


class RandomModel:
    """The module `root`, two losses over its parameters, and what programs do with it."""

    def __init__(self, seed: int) -> None:
        self.random = draw = random.Random(seed)
        generator = np.random.default_rng(seed)
        self.parameters: list[nn.Parameter] = []
        for shape in draw.sample(SHAPES, draw.randint(2, 6)):
            made = nn.Parameter(generator.standard_normal(shape).astype(np.float32) * 0.5)
            made.trainable = draw.random() > 0.15
            self.parameters.append(made)
        self.parameters[0].trainable = True
        parts = [Part() for _ in range(draw.randint(1, 4))]
        for i, part in enumerate(parts[1:], 1):  # some parts hang in several places
            for j in range(draw.choice((1, 1, 2))):
                setattr(draw.choice(parts[:i]), f"part{i}{'ab'[j]}", part)
        for i, parameter in enumerate(self.parameters):
            for j in range(draw.choice((1, 1, 2))):
                setattr(draw.choice(parts), f"w{i}{'ab'[j]}", parameter)
        self.root = parts[0]
        self.names = {id(p): name for name, p in self.root.named_parameters()}
        self.losses = [self._loss(draw) for _ in range(2)]
        self.x = generator.standard_normal((BATCH, WIDTH)).astype(np.float32)
        self.ids = generator.integers(0, 7, (BATCH,)).astype(np.int32)

    def _loss(self, draw: random.Random) -> list[str]:
        """Lines that make h from x and the parameters p[i], some of which are never read."""
        lines = ["h = x"]
        for i, parameter in enumerate(self.parameters):
            if draw.random() < 0.25 and i:
                continue
            lines += [self._line(draw, i, parameter.shape) for _ in range(draw.choice((1, 1, 2)))]
        draw.shuffle(lines)
        lines.sort(key=lambda line: line != "h = x")
        return lines

    def _line(self, draw: random.Random, i: int, shape: tuple[int, ...]) -> str:
        if shape == (4, 4):
            return f"h = graphc.tanh(graphc.linear(h, p[{i}]))"
        if shape == (7, 4):
            return draw.choice(
                (
                    f"h = h + graphc.embedding(ids, p[{i}])",
                    f"h = graphc.softmax(h @ p[{i}].T) @ p[{i}]",
                )
            )
        if shape == (0, 4):
            return f"h = h + graphc.sum(p[{i}], axis=0)"
        return draw.choice(
            (
                f"h = h * graphc.tanh(p[{i}])",
                f"h = h + p[{i}]",
                f"h = graphc.where(h > p[{i}], h, p[{i}])",
            )
        )

    def loss(self, number: int) -> Any:
        """A function of the root, x and ids: the loss, and h as a second result."""

        def run(root: Any, x: Any, ids: Any) -> Any:
            names = {"x": x, "ids": ids, "p": self.parameters}
            for line in self.losses[number]:
                exec(line, {"graphc": graphc}, names)  # lines of this class alone
            h = names["h"]
            return graphc.mean(graphc.square(h - 0.5)), h

        return run

    @property
    def specs(self) -> tuple[Any, Any]:
        return graphc.spec(self.x.shape), graphc.spec(self.ids.shape, "int32")


RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("SGD", {"lr": 0.2}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "eps": 1e-3}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "eps": 1e-3}),
    ("RMSprop", {"lr": 0.05, "eps": 1e-2}),
    ("Adagrad", {"lr": 0.1, "eps": 1e-2}),
)


@dataclass
class Ruled:
    """An update rule, and the same in NumPy."""

    rule: optim.Rule
    clip: float | None
    options: dict[int, dict[str, Any]]
    """Its arguments for each parameter, by its id."""
    kept: dict[int, dict[str, Array]] = field(default_factory=dict)
    clocks: dict[int, int] = field(default_factory=dict)
    """Parameter -> clock."""
    steps: dict[int, int] = field(default_factory=dict)
    """Of each clock."""
    counts: dict[int, int] = field(default_factory=dict)
    """The steps of each parameter."""

    @classmethod
    def drawn(cls, model: RandomModel) -> Ruled:
        draw = model.random
        name, arguments = draw.choice(RULES)
        base = arguments["lr"]
        rising = lambda step: base * min(1.0, (step + 1) / 4)  # noqa: E731
        common = {**arguments, "lr": rising if draw.random() < 0.3 else base}
        options = {id(p): dict(common) for p in model.parameters}
        trainable = [p for p in model.parameters if p.trainable]
        groups = {}
        if draw.random() < 0.4 and len(trainable) > 1:
            some = draw.sample(trainable, draw.randint(1, len(trainable) - 1))
            own = {"lr": base * 0.5, "weight_decay": 0.2}
            groups = {"groups": [{"params": some, **own}, {"params": lambda name: True}]}
            for parameter in some:
                options[id(parameter)] |= own
        clip = draw.choice((None, None, 0.5))
        return cls(getattr(optim, name)(**common, **groups, clip_grad_norm=clip), clip, options)

    def set_rate(self, rate: float) -> None:
        """Unless it follows a schedule."""
        if not callable(self.rule.lr):
            for options in self.options.values():
                if options["lr"] == self.rule.lr:
                    options["lr"] = rate
            self.rule.lr = rate

    def clock_of(self, parameters: Sequence[nn.Parameter]) -> int:
        """What a program that updates these counts its steps by, as `Rule` chooses it."""
        known = {self.clocks[id(p)] for p in parameters if id(p) in self.clocks}
        latest = max(sorted(known), key=lambda c: self.steps.get(c, 0), default=None)
        clock = len(set(self.clocks.values())) if latest is None else latest
        for parameter in parameters:
            self.clocks.setdefault(id(parameter), clock)
        return clock

    def update(self, weights: dict[int, Array], slopes: dict[int, Array], clock: int) -> None:
        """One step of the parameters that have gradients."""
        step = self.steps[clock] = self.steps.get(clock, 0) + 1
        norm = np.sqrt(sum(float((g * g).sum()) for g in slopes.values()))
        factor = 1.0 if self.clip is None else min(self.clip / (norm + 1e-6), 1.0)
        for i, g in slopes.items():
            options = self.options[i]
            rate = options["lr"](step - 1) if callable(options["lr"]) else options["lr"]
            kept = self.kept.setdefault(i, {"m": np.zeros_like(g), "v": np.zeros_like(g)})
            name, count = type(self.rule).__name__, self.counts.get(i, 0) + 1
            self.counts[i] = count
            weights[i] = updated(name, weights[i], factor * g, kept, rate, count, options)


def updated(
    name: str,
    w: Array,
    g: Array,
    kept: dict[str, Array],
    rate: float,
    step: int,
    options: dict[str, Any],
) -> Array:
    """The new weight by the rule of that name in torch.optim."""
    decay = options.get("weight_decay", 0.0)
    if name == "AdamW":
        w = w - rate * decay * w
    else:
        g = g + decay * w
    if name == "SGD":
        momentum = options.get("momentum", 0.0)
        kept["m"] = momentum * kept["m"] + g
        return w - rate * (g + momentum * kept["m"] if "nesterov" in options else kept["m"])
    if name in ("Adam", "AdamW"):
        kept["m"] = 0.9 * kept["m"] + 0.1 * g
        kept["v"] = 0.999 * kept["v"] + 0.001 * g * g
        m, v = kept["m"] / (1 - 0.9**step), kept["v"] / (1 - 0.999**step)
        return w - rate * m / (np.sqrt(v) + options["eps"])
    kept["v"] = 0.99 * kept["v"] + 0.01 * g * g if name == "RMSprop" else kept["v"] + g * g
    return w - rate * g / (np.sqrt(kept["v"]) + options["eps"])
