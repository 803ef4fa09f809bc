"""Random models whose parameters and modules are shared, frozen and grouped, trained by several
programs in turn; `Trainer` does the same in NumPy, in float64.

A loss is lines of text over the names of parameters; the same seed makes the same.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.interpret import evaluate

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
        held = {id(p): name for name, p in self.root.named_parameters()}
        self.held = [p for p in self.parameters if id(p) in held]
        self.names = {id(p): held[id(p)] for p in self.held}
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


class Twin:
    """The parameters of a model in float64, and what rules keep of them."""

    def __init__(self, model: RandomModel) -> None:
        self.model = model
        self.weights = {id(p): p.numpy().astype(np.float64) for p in model.parameters}
        self.kept: dict[int, dict[int, dict[str, Array]]] = {}
        self.steps: dict[int, int] = {}

    def graph(self, number: int) -> Any:
        """The loss, h and the gradients by the parameters that are held and read."""
        model = self.model

        def slopes(root: Any, x: Any, ids: Any) -> Any:
            return graphc.value_and_grad(lambda r: model.loss(number)(r, x, ids))(root)

        trainable = [p for _, p in model.root.named_parameters() if p.trainable]
        return graphc.trace(slopes, model.root, *model.specs), [
            model.names[id(p)] for p in trainable
        ]

    def evaluate(self, graph: Any) -> tuple[Array, ...]:
        model = self.model
        of_name = {model.names[id(p)]: self.weights[id(p)] for p in model.held}
        spare = [self.weights[id(p)] for p in model.parameters if id(p) not in model.names]
        state = {
            v.name: of_name[v.name] if v.name in of_name else spare_of(v, spare)
            for v in graph.state
        }
        return evaluate(graph, [model.x.astype(np.float64), model.ids], state)[0]

    def step(
        self,
        rule: optim.Rule,
        key: int,
        groups: dict[int, dict[str, Any]],
        slopes: dict[int, Array],
        lr: Any,
        clip: float | None,
        name: str,
    ) -> None:
        """One update of the parameters by their gradients, as torch.optim's rules do."""
        step = self.steps[key] = self.steps.get(key, 0) + 1
        if clip is not None:
            total = np.sqrt(sum(float((g * g).sum()) for g in slopes.values()))
            slopes = {i: g * min(clip / (total + 1e-6), 1.0) for i, g in slopes.items()}
        for i, g in slopes.items():
            options = groups[i]
            rate = options["lr"]
            rate = rate(step - 1) if callable(rate) else rate
            kept = self.kept.setdefault(key, {}).setdefault(
                i, {"m": np.zeros_like(g), "v": np.zeros_like(g)}
            )
            self.weights[i] = updated(name, self.weights[i], g, kept, rate, step, options)


def spare_of(value: Any, spare: list[Array]) -> Array:
    (found,) = [a for a in spare if a.shape == value.type.shape][:1]
    return found


def updated(
    name: str, w: Array, g: Array, kept: dict[str, Array], rate: float, t: int, o: dict[str, Any]
) -> Array:
    decay = o.get("weight_decay", 0.0)
    if name == "AdamW":
        w = w - rate * decay * w
    else:
        g = g + decay * w
    if name == "SGD":
        if o.get("momentum"):
            kept["m"] = o["momentum"] * kept["m"] + g
            g = g + o["momentum"] * kept["m"] if o.get("nesterov") else kept["m"]
        return w - rate * g
    if name in ("Adam", "AdamW"):
        kept["m"] = 0.9 * kept["m"] + 0.1 * g
        kept["v"] = 0.999 * kept["v"] + 0.001 * g * g
        m, v = kept["m"] / (1 - 0.9**t), kept["v"] / (1 - 0.999**t)
        return w - rate * m / (np.sqrt(v) + o["eps"])
    kept["v"] = 0.99 * kept["v"] + 0.01 * g * g if name == "RMSprop" else kept["v"] + g * g
    return w - rate * g / (np.sqrt(kept["v"]) + o["eps"])
