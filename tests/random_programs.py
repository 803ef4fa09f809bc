"""Random programs over small tensors: what they compute on a device must be what NumPy computes.

A program is a list of steps, each an op on values made before, with shapes that fit.
Gradients are taken of some. The same seed makes the same program.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc

BATCHES = (1, 2, 5, 9, 16, 17, 20)
POINTWISE = ("tanh", "sigmoid", "relu", "exp_small", "square", "abs", "negative", "gelu", "silu")
BINARY = ("add", "multiply", "subtract", "maximum", "minimum", "where")


class RandomProgram:
    """A traced function `run(*tensors)` and the types of its inputs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.batch = self.random.choice(BATCHES)
        self.specs: list[Any] = []
        self.steps: list[Callable[[list[Any]], Any]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.words: list[str] = []
        self._start()
        for _ in range(self.random.randint(3, 9)):
            self._grow()
        self.gradient = self.random.random() < 0.5

    def _start(self) -> None:
        channels, side = self.random.choice((1, 3, 4)), self.random.choice((4, 6, 7))
        shape = self.random.choice(
            [(self.batch, self.random.choice((3, 8, 19))), (self.batch, channels, side, side)]
        )
        self._input(shape)

    def _input(self, shape: tuple[int, ...]) -> int:
        """A further argument of the function; the number of its value."""
        position = len(self.specs)
        self.specs.append(graphc.spec(shape))
        return self._append(shape, lambda values, p=position: values[p], "input")

    def _append(self, shape: tuple[int, ...], step: Callable[[list[Any]], Any], word: str) -> int:
        self.steps.append(step)
        self.shapes.append(shape)
        self.words.append(f"{word}{list(shape)}")
        return len(self.shapes) - 1

    def _grow(self) -> None:
        candidates = [self._pointwise, self._pointwise, self._binary, self._binary]
        candidates += [self._reduce, self._layer, self._layer, self._view, self._softmax]
        self.random.choice(candidates)(self.random.randrange(len(self.shapes)))

    def _pointwise(self, i: int) -> None:
        name = self.random.choice(POINTWISE)
        if name == "exp_small":
            self._append(self.shapes[i], lambda v: graphc.exp(graphc.tanh(v[i])), name)
        else:
            self._append(self.shapes[i], lambda v: getattr(graphc, name)(v[i]), name)

    def _binary(self, i: int) -> None:
        shape, name = self.shapes[i], self.random.choice(BINARY)
        same = [j for j, s in enumerate(self.shapes) if s == shape]
        if self.random.random() < 0.3:
            j = self._input(self.random.choice([shape, shape[-1:], (1, *shape[1:])]))
        else:
            j = self.random.choice(same)
        if name == "where":
            self._append(shape, lambda v: graphc.where(v[i] > v[j], v[i] * 0.5, v[j]), name)
        else:
            self._append(shape, lambda v: getattr(graphc, name)(v[i], v[j]), name)

    def _reduce(self, i: int) -> None:
        shape = self.shapes[i]
        if not shape:
            return
        axes = tuple(
            sorted(self.random.sample(range(len(shape)), self.random.randint(1, len(shape))))
        )
        name = self.random.choice(("sum", "mean", "max"))
        keep = self.random.random() < 0.5
        kept = tuple(1 if a in axes else n for a, n in enumerate(shape) if keep or a not in axes)
        self._append(
            kept, lambda v: getattr(graphc, name)(v[i], axis=axes, keepdims=keep) * 0.5, name
        )

    def _softmax(self, i: int) -> None:
        if self.shapes[i]:
            axis = self.random.randrange(len(self.shapes[i]))
            self._append(self.shapes[i], lambda v: graphc.softmax(v[i], axis=axis), "softmax")

    def _view(self, i: int) -> None:
        shape = self.shapes[i]
        if len(shape) < 2:
            return
        kind = self.random.choice(("flatten", "permute", "slice", "flip"))
        if kind == "flatten":
            flat = (shape[0], int(np.prod(shape[1:])))
            self._append(flat, lambda v: graphc.flatten(v[i]), kind)
        elif kind == "permute":
            axes = list(range(len(shape)))
            self.random.shuffle(axes)
            new = tuple(shape[a] for a in axes)
            self._append(new, lambda v: graphc.permute_dims(v[i], tuple(axes)), kind)
        elif kind == "slice" and shape[-1] > 1:
            self._append((*shape[:-1], shape[-1] - 1), lambda v: v[i][..., 1:], kind)
        else:
            self._append(shape, lambda v: graphc.flip(v[i], axis=-1), "flip")

    def _layer(self, i: int) -> None:
        shape = self.shapes[i]
        if len(shape) == 2:
            width = self.random.choice((1, 5, 16, 33))
            w, b = self._input((width, shape[1])), self._input((width,))
            self._append(
                (shape[0], width), lambda v: graphc.linear(v[i], v[w], v[b]) * 0.3, "linear"
            )
        elif len(shape) == 4 and min(shape[2:]) >= 3:
            self._image_layer(i)

    def _image_layer(self, i: int) -> None:
        n, c, h, w = self.shapes[i]
        kind = self.random.choice(("conv", "conv", "pool", "average"))
        if kind == "conv":
            k, r = self.random.choice((1, 4, 6)), self.random.choice((1, 2, 3))
            stride, padding = self.random.choice((1, 1, 2)), self.random.choice((0, 1))
            weight = self._input((k, c, r, r))
            p, q = ((e + 2 * padding - r) // stride + 1 for e in (h, w))
            self._append(
                (n, k, p, q),
                lambda v: graphc.conv2d(v[i], v[weight], stride=stride, padding=padding) * 0.3,
                f"conv{r}s{stride}p{padding}",
            )
            return
        size, stride = self.random.choice(((2, 2), (3, 2), (2, 1)))
        p, q = ((e - size) // stride + 1 for e in (h, w))
        function = graphc.max_pool2d if kind == "pool" else graphc.avg_pool2d
        self._append((n, c, p, q), lambda v: function(v[i], size, stride=stride), kind)

    def __call__(self, *tensors: Any) -> Any:
        outputs, inputs = self._values(*tensors), list(tensors)
        if not self.gradient:
            return outputs[-1], outputs[-2]
        loss = lambda *t: graphc.mean(graphc.square(self._values(*t)[-1]))  # noqa: E731
        value, grads = graphc.value_and_grad(loss, tuple(range(len(inputs))))(*inputs)
        return (value, *grads)

    def _values(self, *tensors: Any) -> list[Any]:
        values: list[Any] = []
        arguments = iter(tensors)
        for step, word in zip(self.steps, self.words, strict=True):
            values.append(next(arguments) if word.startswith("input") else step(values))
        return values

    def __str__(self) -> str:
        return f"{' '.join(self.words)}{' gradient' if self.gradient else ''}"


def disagreement(seed: int, device: str, dtype: str = "float32", **options: Any) -> float:
    """The largest error of a random program's outputs, of `dtype` on `device`, over what NumPy
    computes in float64, relative to each output's largest magnitude (at least 1)."""
    program = RandomProgram(seed)
    generator = np.random.default_rng(seed)
    arrays = [generator.standard_normal(s.shape).astype(dtype) for s in program.specs]
    specs = [graphc.spec(s.shape, dtype) for s in program.specs]
    got = graphc.compile(program, *specs, device=device, **options)(*arrays)
    graph = graphc.trace(program, *[graphc.spec(s.shape, "float64") for s in program.specs])
    from graphc.ir.interpret import evaluate

    expected, _ = evaluate(graph, [a.astype(np.float64) for a in arrays], {})
    worst = 0.0
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape
        if b.size:
            scale = max(1.0, float(np.max(np.abs(b))))
            worst = max(worst, float(np.max(np.abs(a - b))) / scale)
    return worst
