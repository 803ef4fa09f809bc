"""Random programs of gradients, `vmap` and scans inside each other, over small tensors.

Built as `random_scans.py` builds its programs. Each transformation has a twin without it, which
computes the same: a Python loop over samples for `vmap`, over elements for `scan`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc
from graphc import nn
from tests.random_scans import LARGEST, RandomScans, Steps, Tensors, len_of

DEEPEST = 3


def looped(fn: Callable[..., Any], in_axes: Any, out_axes: Any) -> Callable[..., Any]:
    """`graphc.vmap` of a function of tensors to a list of tensors, as a Python loop."""

    def run(*args: Any) -> list[Any]:
        count = next(x.shape[a] for x, a in zip(args, in_axes, strict=True) if a is not None)
        rows = [
            fn(
                *(
                    x if a is None else graphc.select(x, a, i)
                    for x, a in zip(args, in_axes, strict=True)
                )
            )
            for i in range(count)
        ]
        axes = [out_axes] * len(rows[0]) if isinstance(out_axes, int) else out_axes
        return [
            graphc.stack(list(parts), a)
            for parts, a in zip(zip(*rows, strict=True), axes, strict=True)
        ]

    return run


class RandomTransforms(RandomScans):
    """A module of a random program; `inputs` are the specs of its arguments."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        draw = random.Random(seed)
        self.batch, self.steps = draw.choice((1, 2, 3, 4)), draw.choice((1, 2, 3))
        self.width = draw.choice((1, 2, 3, self.batch))
        self.mode = draw.choice(("forward", "gradient", "gradient", "second"))
        self.drops = False
        t, b, h = self.steps, self.batch, self.width
        shapes = [(t, b, h), (b, h), (h,), (t, h), (t, b), (b,), (), (h, b), (b, t)]
        self.inputs = [graphc.spec(s) for s in draw.sample(shapes, draw.randint(2, 4))]
        self.inputs.append(graphc.spec((t, b), "int32"))
        generator = np.random.default_rng(seed)
        self.weights = [
            nn.Parameter(generator.standard_normal(s).astype(np.float32) * 0.5)
            for s in draw.sample([(h, h), (h,), (b, h), ()], 2)
        ]
        self.body_seed = draw.randrange(1 << 30)
        self.scan: Callable[..., Any] = graphc.scan
        self.vmap: Callable[..., Any] = graphc.vmap

    def use_loops(self) -> None:
        super().use_loops()
        self.vmap = looped

    def forward(self, *inputs: Any) -> Any:
        draw = random.Random(self.body_seed)
        made = TransformSteps(self, draw, [*inputs, *map(graphc.as_tensor, self.weights)], 0)
        for _ in range(draw.randint(1, 2)):
            made.grow(draw.randint(0, 2))
            made.transform()
        made.grow(draw.randint(0, 2))
        results = made.made or made.values[:1]
        return draw.sample(results, min(len(results), draw.randint(1, 4)))

    def __call__(self, *inputs: Any) -> Any:
        floats = tuple(n for n, s in enumerate(self.inputs) if s.dtype == "f32")
        if self.mode == "forward":
            return self.forward(*inputs)
        first = graphc.value_and_grad(self.loss, floats)
        if self.mode == "gradient":
            value, slopes = first(*inputs)
            return (value, *slopes)

        def length(*inputs: Any) -> Any:
            return scalar(first(*inputs)[1])

        value, slopes = graphc.value_and_grad(length, floats)(*inputs)
        return (value, *slopes)


def scalar(values: Any) -> Any:
    """The mean of the squares of what floats there are."""
    floats = [t for t in values if t.dtype == "f32" and t.size]
    parts = [graphc.mean(graphc.square(t)) for t in floats]
    return sum(parts[1:], parts[0]) if parts else graphc.zeros(())


class TransformSteps(Steps):
    """Values of a function, and random ops and transformations on them."""

    def transform(self) -> None:
        draw = self.draw
        name = draw.choice(("add_scan", "add_vmap", "add_vmap", "add_grad", "add_grad"))
        getattr(self, name)()

    def function(self, outputs: int) -> Callable[..., Tensors]:
        """A random function of tensors that also reads values from outside."""
        outside = self.draw.sample(self.values, min(len(self.values), self.draw.randint(0, 2)))
        seed, program, depth = self.draw.randrange(1 << 30), self.program, self.depth + 1

        def run(*values: Any) -> Tensors:
            draw = random.Random(seed)
            steps = TransformSteps(program, draw, [*outside, *values], depth)
            if not any(v.dtype == "f32" for v in steps.values):
                steps.values.append(graphc.as_tensor(np.float32(0.5)))
            steps.grow(draw.randint(1, 4))
            if depth < DEEPEST and draw.random() < 0.5:
                steps.transform()
                steps.grow(draw.randint(0, 2))
            found = [*steps.made, *steps.made, *values]
            return [draw.choice(found) for _ in range(outputs)]

        return run

    def add_scan(self) -> None:
        draw = self.draw
        init = draw.sample(self.values, min(len(self.values), draw.randint(1, 2)))
        first = self._of(lambda v: v.ndim > 0 and v.shape[0])
        xs = (
            []
            if first is None
            else [v for v in self.values if v.ndim and v.shape[0] == first.shape[0]]
        )
        xs = draw.sample(xs, min(len(xs), draw.randint(0, 2)))
        length = None if xs else draw.choice((0, 1, 2))
        if sum(t.size for t in init) * max(len_of(xs, length), 1) > LARGEST:
            return
        body = self.function(3)

        def step(carry: Tensors, element: Tensors) -> tuple[Tensors, Tensors]:
            *ys, last = body(*carry, *element)
            return [self._like(old, ys[0]) for old in carry], [*ys, last]

        final, ys = self.program.scan(
            step, init, xs, draw.random() < 0.3, length, draw.random() < 0.2
        )
        for value in (*final, *ys):
            self._keep(value)

    def _like(self, old: Any, new: Any) -> Any:
        """A carry of the type of `old` that depends on it and on `new`."""
        if old.dtype == "bool":
            return graphc.logical_not(old)
        if old.dtype == "i32":
            return (old + 1) % 5
        if old.dtype != "f32":
            return old
        if new.dtype == "f32" and new.size:
            return graphc.tanh(old * 0.5 + (new if new.shape == old.shape else graphc.mean(new)))
        return graphc.tanh(old + 0.25)

    def add_vmap(self) -> None:
        draw = self.draw
        first = self._of(lambda v: v.ndim > 0 and v.size)
        if first is None:
            return
        count = draw.choice(first.shape)
        fits = [v for v in self.values if count in v.shape]
        mapped = draw.sample(fits, min(len(fits), draw.randint(1, 3)))
        shared = draw.sample(self.values, draw.randint(0, 1))
        axes = [draw.choice([a for a, n in enumerate(v.shape) if n == count]) for v in mapped]
        axes = [a - v.ndim if draw.random() < 0.3 else a for a, v in zip(axes, mapped, strict=True)]
        outputs = draw.randint(1, 2)
        out_axes = 0 if draw.random() < 0.7 else -1
        fn = self.function(outputs)
        found = self.program.vmap(fn, (*axes, *[None] * len(shared)), out_axes)(*mapped, *shared)
        for value in found:
            self._keep(value)

    def add_grad(self) -> None:
        draw = self.draw
        floats = [v for v in self.values if v.dtype == "f32"]
        if not floats:
            return
        chosen = draw.sample(floats, min(len(floats), draw.randint(1, 2)))
        fn = self.function(2)
        value, slopes = graphc.value_and_grad(lambda *t: scalar(fn(*t)), tuple(range(len(chosen))))(
            *chosen
        )
        for v in (value, *slopes):
            self._keep(v)
