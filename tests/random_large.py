"""Random programs that are large in one way: long chains, wide joins, many parameters, unrolled
loops and deep residual networks. The same seed makes the same program."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.ir.interpret import evaluate

SECONDS, SECONDS_PER_NODE = 15.0, 0.02
"""Of all processors, compilers' included, that compiling may take, and for each traced node."""
Function = Callable[..., Any]
_FUNCTIONS: tuple[Function, ...] = (
    graphc.sin,
    graphc.cos,
    graphc.tanh,
    graphc.sigmoid,
    graphc.silu,
    lambda x: graphc.exp(-graphc.abs(x)),
    lambda x: graphc.sqrt(1 + x * x) - 1,
    lambda x: x / (1 + graphc.abs(x)),
    lambda x: graphc.maximum(x, 0.1 * x),
    lambda x: graphc.where(x > 0.2, 0.5 * x, -x),
)


@dataclass(frozen=True)
class Large:
    """A function of tensors of these types, and what it is."""

    function: Function
    specs: list[Any]
    words: str


def chain(draw: random.Random) -> Large:
    """Steps x + f(x) / count, some of which read an earlier value too, or a mean of rows."""
    count = int(50 * 20 ** draw.random())
    shape = draw.choice([(3, 5), (17, 8), (2, 33), (40,)])
    steps = [draw.choice(_FUNCTIONS) for _ in range(count)]
    back = [draw.randrange(1, 40) if draw.random() < 0.1 else 0 for _ in steps]
    centred = {i for i in range(count) if draw.random() < 0.01}

    def run(x: Any) -> Any:
        values = [x]
        for i, (step, distance) in enumerate(zip(steps, back, strict=True)):
            y = step(values[-1])
            if distance and distance < len(values):
                y = y * values[-1 - distance]
            if i in centred:
                y = y - graphc.mean(y, axis=-1, keepdims=True)
            values.append(values[-1] + y * (2 / count))
        return values[-1]

    return Large(run, [graphc.spec(shape)], f"chain of {count} over {list(shape)}")


def join(draw: random.Random) -> Large:
    """Slices of one or two tensors, something computed of each, all of them put side by side."""
    count = int(20 * 20 ** draw.random())
    width, columns = draw.choice((1, 2, 5)), draw.choice((3, 8, 19))
    axis = draw.randrange(2)
    steps = [draw.choice((None, None, *_FUNCTIONS)) for _ in range(count)]
    places = [draw.randrange(count + 1) if draw.random() < 0.2 else i for i in range(count)]
    stacked = draw.random() < 0.3

    def run(x: Any, w: Any) -> Any:
        parts = []
        for place, step in zip(places, steps, strict=True):
            part = x[place : place + width]
            parts.append(part if step is None else step(part))
        whole = graphc.stack(parts) if stacked else graphc.concat(parts, axis)
        rows = graphc.reshape(whole, (-1, columns))
        return graphc.tanh(rows @ w) * 0.5

    specs = [graphc.spec((count + width, columns)), graphc.spec((columns, 4))]
    return Large(run, specs, f"join of {count} along {'a new axis' if stacked else axis}")


def unrolled(draw: random.Random) -> Large:
    """A gated recurrence, step by step."""
    count, batch, width = draw.randint(8, 50), draw.choice((1, 3, 8)), draw.choice((4, 7))
    gated, kept = draw.random() < 0.6, draw.random() < 0.5

    def run(x: Any, w: Any, u: Any, h: Any) -> Any:
        states = []
        for t in range(count):
            new = graphc.tanh(x[t] @ w + h @ u)
            gate = graphc.sigmoid(x[t] @ u - h @ w) if gated else 0.5
            h = gate * h + (1 - gate) * new
            states.append(h)
        return graphc.stack(states) if kept else h

    square = graphc.spec((width, width))
    specs = [graphc.spec((count, batch, width)), square, square, graphc.spec((batch, width))]
    return Large(run, specs, f"unrolled {count}{' gated' * gated}")


def residual(draw: random.Random) -> Large:
    """Residual blocks of linear layers or convolutions, with a normalisation in some."""
    count, images = draw.randint(5, 40), draw.random() < 0.4
    shape = draw.choice([(2, 4, 5, 5), (3, 3, 6, 4)] if images else [(4, 8), (9, 5)])
    c = shape[1]
    normal = [draw.random() < 0.4 for _ in range(count)]
    steps = [draw.choice(_FUNCTIONS) for _ in range(count)]

    def run(x: Any, *weights: Any) -> Any:
        for weight, step, normalised in zip(weights, steps, normal, strict=True):
            y = graphc.layer_norm(x, (shape[-1],)) if normalised else x
            y = graphc.conv2d(y, weight, padding=1) if images else y @ weight
            x = x + step(y) / count
        return x

    weight = graphc.spec((c, c, 3, 3) if images else (c, c))
    return Large(run, [graphc.spec(shape), *[weight] * count], f"{count} blocks of {list(shape)}")


KINDS = {"chain": chain, "join": join, "unrolled": unrolled, "residual": residual}


class Allowed:
    """AssertionError where the body of a `with` takes longer than a graph of its nodes may."""

    def __init__(self, words: str) -> None:
        self.words, self.nodes = words, 0

    def __enter__(self) -> Allowed:
        self.begin = _seconds()
        return self

    def __exit__(self, *_: object) -> None:
        spent, limit = _seconds() - self.begin, SECONDS + SECONDS_PER_NODE * self.nodes
        assert spent < limit, f"{self.words}: {spent:.1f} s to compile, {limit:.1f} are allowed"


def _seconds() -> float:
    """Of this process and of the compilers that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def draw_large(kind: str, seed: int) -> Large:
    """The program of a seed; every other one with its gradient."""
    draw = random.Random(f"{kind} {seed}")
    large = KINDS[kind](draw)
    if seed % 2:
        return large
    numbers = tuple(range(len(large.specs)))

    def both(*tensors: Any) -> Any:
        def loss(*arguments: Any) -> Any:
            return graphc.mean(graphc.square(large.function(*arguments)))

        value, gradients = graphc.value_and_grad(loss, numbers)(*tensors)
        return (value, *gradients)

    return Large(both, large.specs, f"{large.words} gradient")


def check_large(kind: str, seed: int, device: str = "cpu") -> None:
    """AssertionError if what it computes is wrong, or if compiling it takes too long."""
    large = draw_large(kind, seed)
    generator = np.random.default_rng(seed)
    arrays = [generator.standard_normal(s.shape).astype(np.float32) * 0.5 for s in large.specs]
    doubles = [graphc.spec(s.shape, "float64") for s in large.specs]
    graph = graphc.trace(large.function, *doubles)
    with Allowed(large.words) as allowed:
        allowed.nodes = len(graph.nodes)
        program = graphc.compile(large.function, *large.specs, device=device)
    got = program(*arrays)
    expected, _ = evaluate(graph, [a.astype(np.float64) for a in arrays], {})
    for a, b in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
        scale = float(np.max(np.abs(b)))
        np.testing.assert_allclose(a, b, 1e-3, 1e-4 * scale, err_msg=large.words)


RULES: tuple[Callable[[], optim.Rule], ...] = (
    lambda: optim.SGD(lr=0.1),
    lambda: optim.SGD(lr=0.1, momentum=0.9, weight_decay=0.01),
    lambda: optim.Adam(lr=0.01),
    lambda: optim.AdamW(lr=0.01, clip_grad_norm=0.5),
    lambda: optim.RMSprop(lr=0.01, ema=0.9),
)


class Parameters(nn.Module):
    """Many small parameters, some of them frozen."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        values = np.random.default_rng(seed)
        self.count = int(30 * 20 ** draw.random())
        shapes = [draw.choice([(3,), (2, 2), (5, 3), (1,), (7,)]) for _ in range(self.count)]
        self.weights = [
            nn.Parameter(values.standard_normal(s).astype(np.float32), draw.random() < 0.9)
            for s in shapes
        ]
        self.steps = [draw.choice(_FUNCTIONS) for _ in shapes]

    def forward(self, x: Any) -> Any:
        parts = [
            graphc.mean(step(weight * x[i % 4]))
            for i, (weight, step) in enumerate(zip(self.weights, self.steps, strict=True))
        ]
        return sum(parts[1:], start=parts[0]) / 8


def check_parameters(seed: int, device: str = "cpu") -> None:
    """AssertionError if three steps of a random rule are not NumPy's, or if compiling takes too
    long."""
    rule, weights = RULES[seed % len(RULES)], []
    for side in (device, "reference"):
        model = Parameters(seed)
        with Allowed(f"{model.count} parameters") as allowed:
            program = graphc.compile(
                lambda model, x: model(x), model, graphc.spec((4,)), update=rule(), device=side
            )
            allowed.nodes = len(program.stages["trace"].nodes)
        for number in range(3):
            program(np.random.default_rng(number).standard_normal(4).astype(np.float32))
        weights.append(model.state_dict())
    for name, array in weights[0].items():
        np.testing.assert_allclose(array, weights[1][name], 1e-3, 1e-4, err_msg=name)
