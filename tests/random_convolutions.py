"""Random networks of convolutions over images that are cut, padded and joined, with channels that
tensor cores and lanes take: on a device their gradients must be what the reference computes.

The same seed makes the same program.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import graphc

CHANNELS = (4, 8, 16, 16, 16, 20, 32, 50)
SIDES = (6, 8, 12, 13, 16)
CROPS = ("[:, :, :-2]", "[:, :, 1:]", "[..., :-4]", "[..., 2:]", "[:-1]", "[1:]", "[:, :-4]")
MOST_PIXELS = 2**13
"""Of all images of a value."""


class RandomConvolutions:
    """A loss `run(x, *parameters)` and the shapes of its arguments; `text` says what it is."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        channels = self.random.choice((1, 1, 3, 4, 8, 16, 32))
        image = self.random.choice(SIDES), self.random.choice(SIDES)
        self.shapes: list[tuple[int, ...]] = [(self.random.choice((2, 3, 4)), channels, *image)]
        self.text: list[str] = []
        self.values: list[tuple[str, tuple[int, ...]]] = [("p0", self.shapes[0])]
        self.convolve("p0", self.shapes[0])
        around = [self.activate, self.crop, self.crop, self.pad, self.join, self.join]
        around += [self.add, self.pool, self.normalise]
        for _ in range(self.random.randint(2, 4)):
            self.random.choice(around)(*self.random.choice(self.values[-2:]))
            self.convolve(*self.values[-1])

    def run(self, *arguments: Any) -> Any:
        names = {f"p{i}": value for i, value in enumerate(arguments)}
        for line in self.text:
            exec(line, {"graphc": graphc}, names)  # lines of this class alone
        last = [names[name] for name, _ in self.values[-2:]]
        return sum(graphc.mean(graphc.square(y)) for y in last)

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """Arguments for which values stay near 1."""
        rng = np.random.default_rng(0)
        sizes = [1.0 if i == 0 else max(1, np.prod(s[1:])) for i, s in enumerate(self.shapes)]
        return [
            rng.normal(0, 1.5 / np.sqrt(size), shape).astype(np.float32)
            for shape, size in zip(self.shapes, sizes, strict=True)
        ]

    def let(self, text: str, shape: tuple[int, ...]) -> None:
        """A further value of the program, if it is neither empty nor too large."""
        if min(shape) < 1 or min(shape[2:]) < 3 or shape[0] * shape[2] * shape[3] > MOST_PIXELS:
            return
        name = f"v{len(self.text)}"
        self.text.append(f"{name} = {text}")
        self.values.append((name, shape))

    def parameter(self, shape: tuple[int, ...]) -> str:
        self.shapes.append(shape)
        return f"p{len(self.shapes) - 1}"

    def convolve(self, x: str, shape: tuple[int, ...]) -> None:
        n, c, h, w = shape
        size, stride = self.random.choice((3, 3, 3, 5, 1)), self.random.choice((1, 1, 1, 2))
        k, padding = self.random.choice(CHANNELS), self.random.choice((0, size // 2, 1))
        sides = [(side + 2 * padding - size) // stride + 1 for side in (h, w)]
        if min(sides) < 3:
            return
        weight = self.parameter((k, c, size, size))
        self.let(f"graphc.conv2d({x}, {weight}, None, {stride}, {padding})", (n, k, *sides))

    def activate(self, x: str, shape: tuple[int, ...]) -> None:
        self.let(f"graphc.{self.random.choice(('tanh', 'gelu', 'sigmoid', 'silu'))}({x})", shape)

    def crop(self, x: str, shape: tuple[int, ...]) -> None:
        text = self.random.choice(CROPS)
        self.let(x + text, eval(f"a{text}.shape", {"a": np.empty(shape, bool)}))

    def pad(self, x: str, shape: tuple[int, ...]) -> None:
        axis, widths = self.random.randrange(4), self.random.choice(((0, 4), (4, 0), (1, 3)))
        pairs = tuple(widths if d == axis else (0, 0) for d in range(4))
        padded = tuple(n + sum(pair) for n, pair in zip(shape, pairs, strict=True))
        self.let(f"graphc.pad({x}, {pairs})", padded)

    def join(self, x: str, shape: tuple[int, ...]) -> None:
        axis = self.random.randrange(4)
        alike = [name for name, other in self.values if other == shape]
        other = f"graphc.tanh({self.random.choice(alike[:-1] or alike)})"
        joined = tuple(2 * n if d == axis else n for d, n in enumerate(shape))
        self.let(f"graphc.concat([graphc.silu({x}), {other}], {axis})", joined)

    def add(self, x: str, shape: tuple[int, ...]) -> None:
        alike = [name for name, other in self.values if other == shape]
        self.let(f"{x} + 0.5 * {self.random.choice(alike)}", shape)

    def pool(self, x: str, shape: tuple[int, ...]) -> None:
        n, c, h, w = shape
        self.let(f"graphc.avg_pool2d({x}, 2)", (n, c, h // 2, w // 2))

    def normalise(self, x: str, shape: tuple[int, ...]) -> None:
        scale = self.parameter((shape[1], 1, 1))
        centred = f"({x} - graphc.mean({x}, (0, 2, 3), keepdims=True))"
        deviation = f"graphc.sqrt(graphc.var({x}, (0, 2, 3), keepdims=True) + 0.1)"
        self.let(f"{centred} / {deviation} * (1 + {scale})", shape)
