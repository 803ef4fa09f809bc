"""Random programs of scans over small tensors, with shapes that collide on purpose.

A program draws its steps while it is traced, from a generator of its seed, so that the same seed
makes the same program; a body draws from a generator of its own, so that a Python loop over it,
`unrolled`, computes what the scan computes. Values stay bounded: new carries end in tanh, or move
from carry to carry.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import graphc
from graphc import nn

Tensors = list[Any]
LARGEST = 8192
"""Elements of the largest value of a program."""


def unrolled(
    fn: Callable[..., Any],
    init: Any,
    xs: Any,
    reverse: bool = False,
    length: int | None = None,
    recompute: bool = False,
) -> tuple[Any, Any]:
    """`graphc.scan` for lists of tensors, as a Python loop."""
    count = len_of(xs, length)
    carry, stacks = init, []
    for t in reversed(range(count)) if reverse else range(count):
        carry, y = fn(carry, [graphc.select(x, 0, t) for x in xs])
        stacks.append(y)
    if not count:
        _, y = fn(init, [graphc.zeros(x.shape[1:], x.dtype) for x in xs])
        return carry, [graphc.zeros((0, *t.shape), t.dtype) for t in y]
    ordered = stacks[::-1] if reverse else stacks
    return carry, [graphc.stack(list(parts)) for parts in zip(*ordered, strict=True)]


def len_of(xs: Sequence[Any], length: int | None) -> int:
    return xs[0].shape[0] if length is None else length


class RandomScans(nn.Module):
    """A module of random scans; `inputs` are the specs of its arguments."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        draw = random.Random(seed)
        self.batch = draw.choice((16, 16, 32, 5, 1))
        self.steps = draw.choice((0, 1, 2, 5, 5, 30, 16))
        self.width = draw.choice((3, 8, 64, self.batch, max(self.steps, 2)))
        self.mode = draw.choice(("forward", "gradient", "train"))
        self.drops = draw.random() < 0.1
        t, b, h = self.steps, self.batch, self.width
        shapes = [(t, b, h), (b, h), (h,), (t, b, h), (t, h), (t, b), (b,), (), (b, h, 2), (h, b)]
        chosen = [(t, b, h), *draw.sample(shapes, draw.randint(2, 5))]
        self.inputs = [graphc.spec(s) for s in chosen]
        self.inputs.append(graphc.spec((t, b), "int32"))
        generator = np.random.default_rng(seed)
        kinds = [(h, h), (h,), (h, 3 * h), (b, h), ()]
        self.weights = [
            nn.Parameter(generator.standard_normal(s).astype(np.float32) * 0.5)
            for s in draw.sample(kinds, draw.randint(1, 3))
        ]
        self.body_seed = draw.randrange(1 << 30)
        self.scan: Callable[..., Any] = graphc.scan

    def use_loops(self) -> None:
        """Let the program be one of Python loops."""
        self.scan = unrolled

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        generator = np.random.default_rng(self.seed)
        return [
            generator.integers(0, 5, s.shape).astype(np.int32)
            if s.dtype == "i32"
            else generator.standard_normal(s.shape).astype(np.float32)
            for s in self.inputs
        ]

    def forward(self, *inputs: Any) -> Any:
        values = [*inputs, *map(graphc.as_tensor, self.weights)]
        draw = random.Random(self.body_seed)
        made = Steps(self, draw, values, 0)
        for _ in range(draw.randint(1, 3)):
            made.grow(draw.randint(0, 2))
            made.add_scan()
        made.grow(draw.randint(0, 3))
        results = made.made or values[:1]
        return draw.sample(results, min(len(results), draw.randint(1, 4)))

    def loss(self, *inputs: Any) -> Any:
        floats = [t for t in self.forward(*inputs) if t.dtype == "f32" and t.size]
        parts = [graphc.mean(graphc.square(t)) for t in floats]
        parts += [graphc.mean(graphc.square(p)) for p in self.weights]
        return sum(parts[1:], parts[0])

    def __call__(self, *inputs: Any) -> Any:
        if self.mode == "forward":
            return self.forward(*inputs)
        if self.mode == "train":
            return self.loss(*inputs)
        floats = [n for n, s in enumerate(self.inputs) if s.dtype == "f32"]
        value, grads = graphc.value_and_grad(self.loss, tuple(floats))(*inputs)
        return (value, *grads)


class Steps:
    """Values of a function or a body, and random ops on them."""

    def __init__(
        self, program: RandomScans, draw: random.Random, values: Tensors, depth: int
    ) -> None:
        self.program, self.draw, self.depth = program, draw, depth
        self.values = list(values)
        self.made: Tensors = []

    def grow(self, count: int) -> None:
        names = ["pointwise", "binary", "binary", "matmul", "slice", "concat", "pad", "reduce"]
        names += ["permute", "reshape", "broadcast", "where", "gates", "flip", "softmax", "literal"]
        names += ["integers", "norm", "running", "take", "batched", "sort", "argmax", "cell"]
        for _ in range(count):
            name = self.draw.choice(names)
            self._keep(getattr(self, f"_{name}")(self._float()))
        if self.program.drops:
            self._keep(graphc.dropout(self._float(), 0.25, training=True))

    def _keep(self, value: Any) -> None:
        if value is not None and value.size <= LARGEST:
            self.values.append(value)
            self.made.append(value)

    def _of(self, fits: Callable[[Any], bool]) -> Any:
        """A value that fits, later ones more often; None if there is none."""
        found = [v for v in self.values if fits(v)]
        if not found:
            return None
        return found[max(self.draw.randrange(len(found)), self.draw.randrange(len(found)))]

    def _float(self) -> Any:
        return self._of(lambda v: v.dtype == "f32")

    def _array(self, shape: tuple[int, ...]) -> Any:
        generator = np.random.default_rng(self.draw.randrange(1 << 30))
        return graphc.as_tensor(generator.standard_normal(shape).astype(np.float32) * 0.5)

    def _pointwise(self, x: Any) -> Any:
        name = self.draw.choice(("tanh", "sigmoid", "relu", "square", "abs", "negative", "silu"))
        return getattr(graphc, name)(graphc.tanh(x) if name == "square" else x)

    def _binary(self, x: Any) -> Any:
        y = self._of(lambda v: v.dtype == "f32" and _broadcast(v.shape, x.shape) is not None)
        name = self.draw.choice(("add", "subtract", "multiply", "maximum", "minimum"))
        if self.draw.random() < 0.2:
            y = self.draw.choice((0.0, 1.0, 0.5, -2.0))
        return getattr(graphc, name)(x, y) * 0.5

    def _matmul(self, x: Any) -> Any:
        if not x.ndim or not x.size:
            return None
        n = x.shape[-1]
        w = self._of(lambda v: v.dtype == "f32" and v.ndim == 2 and v.shape[0] == n)
        if w is None or self.draw.random() < 0.3:
            w = self._of(lambda v: v.dtype == "f32" and v.ndim == 2 and v.shape[1] == n)
            w = None if w is None else graphc.matrix_transpose(w)
        if w is None or self.draw.random() < 0.3:
            w = self._array((n, self.draw.choice((n, self.program.width, self.program.batch))))
        return graphc.matmul(x, w) * 0.25

    def _slice(self, x: Any) -> Any:
        if not x.ndim:
            return None
        axis = self.draw.randrange(x.ndim)
        n = x.shape[axis]
        start = self.draw.randint(0, max(n - 1, 0))
        stop = self.draw.randint(start + (n > 0), n)
        step = self.draw.choice((1, 1, 2))
        return x[(slice(None),) * axis + (slice(start, stop, step),)]

    def _concat(self, x: Any) -> Any:
        if not x.ndim:
            return None
        axis = self.draw.randrange(x.ndim)

        def fits(v: Any) -> bool:
            same = v.dtype == "f32" and v.ndim == x.ndim
            return same and all(a == axis or v.shape[a] == x.shape[a] for a in range(x.ndim))

        return graphc.concat([x, self._of(fits), x][: self.draw.choice((2, 2, 3))], axis=axis)

    def _pad(self, x: Any) -> Any:
        if not x.ndim:
            return None
        widths = [(self.draw.randint(0, 2), self.draw.randint(0, 1)) for _ in x.shape]
        return graphc.pad(x, widths)

    def _axes(self, x: Any) -> tuple[int, ...]:
        return tuple(sorted(self.draw.sample(range(x.ndim), self.draw.randint(1, x.ndim))))

    def _reduce(self, x: Any) -> Any:
        if not x.ndim or not x.size:
            return None
        name = self.draw.choice(("mean", "sum", "max"))
        y = getattr(graphc, name)(x, axis=self._axes(x), keepdims=self.draw.random() < 0.5)
        return graphc.tanh(y) if name == "sum" else y

    def _permute(self, x: Any) -> Any:
        axes = list(range(x.ndim))
        self.draw.shuffle(axes)
        return graphc.permute_dims(x, tuple(axes))

    def _reshape(self, x: Any) -> Any:
        if x.ndim < 2:
            return graphc.reshape(x, (*x.shape, 1))
        a = self.draw.randrange(x.ndim - 1)
        if self.draw.random() < 0.5:
            merged = x.shape[a] * x.shape[a + 1]
            return graphc.reshape(x, (*x.shape[:a], merged, *x.shape[a + 2 :]))
        return graphc.reshape(x, (*x.shape[:a], x.shape[a + 1], x.shape[a], *x.shape[a + 2 :]))

    def _broadcast(self, x: Any) -> Any:
        n = self.draw.choice((self.program.batch, self.program.width, 2))
        return graphc.broadcast_to(x, (n, *x.shape))

    def _where(self, x: Any) -> Any:
        same = lambda v: v.dtype == "f32" and v.shape == x.shape  # noqa: E731
        mask = self._of(lambda v: v.dtype == "bool" and _broadcast(v.shape, x.shape) is not None)
        if mask is None:
            mask = self._of(same) > 0.25
            self._keep(mask)
        return graphc.where(mask, x, self._of(same))

    def _gates(self, x: Any) -> Any:
        if x.ndim != 2 or not x.size:
            return None
        n = self.draw.choice((x.shape[1], self.program.width))
        z = graphc.matmul(x, self._array((x.shape[1], 3 * n)))
        a, b, c = (z[:, i * n : (i + 1) * n] for i in range(3))
        return graphc.sigmoid(a) * graphc.tanh(b) + graphc.sigmoid(c)

    def _flip(self, x: Any) -> Any:
        return graphc.flip(x, axis=self.draw.randrange(x.ndim)) if x.ndim else None

    def _softmax(self, x: Any) -> Any:
        if not x.ndim or not x.size:
            return None
        return graphc.softmax(x, axis=self.draw.randrange(x.ndim))

    def _norm(self, x: Any) -> Any:
        return graphc.layer_norm(x, x.shape[-1:]) if x.ndim and x.size else None

    def _running(self, x: Any) -> Any:
        if not x.ndim or not x.size:
            return None
        return graphc.tanh(graphc.cumulative_sum(x, axis=self.draw.randrange(x.ndim)))

    def _take(self, x: Any) -> Any:
        i = self._of(lambda v: v.dtype == "i32")
        if i is None or not x.ndim or not x.size:
            return None
        axis = self.draw.randrange(x.ndim)
        return graphc.take(x, i % x.shape[axis], axis=axis)

    def _batched(self, x: Any) -> Any:
        if x.ndim != 3 or not x.size:
            return None
        return graphc.tanh(graphc.matmul(x, graphc.permute_dims(x, (0, 2, 1))))

    def _sort(self, x: Any) -> Any:
        return graphc.sort(x, axis=-1) if x.ndim and x.size else None

    def _argmax(self, x: Any) -> Any:
        if not x.ndim or not x.size:
            return None
        return graphc.astype(graphc.argmax(x, axis=self.draw.randrange(x.ndim)), "int32")

    def _cell(self, x: Any) -> Any:
        """An LSTM's step with what is there as the old state, if it has the extents."""
        if x.ndim != 2 or not x.size:
            return None
        n = x.shape[1]
        state = self._of(lambda v: v.dtype == "f32" and v.shape == x.shape)
        w, u = self._array((4 * n, n)), self._array((4 * n, n))
        h, c = graphc.lstm_cell(x, (state, graphc.tanh(state)), w, u, self._array((4 * n,)))
        self._keep(c)
        return h

    def _literal(self, x: Any) -> Any:
        return x * self._array(x.shape) if self.draw.random() < 0.7 else self._array(x.shape)

    def _integers(self, x: Any) -> Any:
        i = self._of(lambda v: v.dtype == "i32")
        if i is None:
            return x > 0
        return self.draw.choice(
            (
                lambda: (i * 3 + 1) % 7,
                lambda: graphc.astype(i, "float32") * 0.125,
                lambda: i > 2,
                lambda: graphc.maximum(i, 1),
            )
        )()

    def add_scan(self) -> None:
        """A scan whose carries, elements and constants are drawn from the values."""
        draw = self.draw
        init = [self.values[draw.randrange(len(self.values))] for _ in range(draw.randint(1, 4))]
        first = self._of(lambda v: v.ndim > 0)
        xs = [v for v in self.values if v.ndim and v.shape[0] == first.shape[0]]
        xs = draw.sample(xs, min(len(xs), draw.randint(0, 3)))
        length = None if xs else draw.choice((0, 1, 2, 5))
        constants = draw.sample(self.values, min(len(self.values), draw.randint(0, 3)))
        if sum(t.size for t in (*init, *constants)) * max(len_of(xs, length), 1) > 16 * LARGEST:
            return
        body = _Body(self.program, draw.randrange(1 << 30), constants, self.depth + 1)
        again = body.seed % 4 == 0
        last, ys = self.program.scan(body, init, xs, draw.random() < 0.3, length, again)
        for value in (*last, *ys):
            self._keep(value)


class _Body:
    """The function of a scan; every call draws the same."""

    def __init__(self, program: RandomScans, seed: int, constants: Tensors, depth: int) -> None:
        self.program, self.seed, self.constants, self.depth = program, seed, constants, depth

    def __call__(self, carry: Tensors, element: Tensors) -> tuple[Tensors, Tensors]:
        draw = random.Random(self.seed)
        values = [*self.constants, *element, *carry]
        if not any(v.dtype == "f32" for v in values):
            values.append(graphc.as_tensor(np.float32(0.5)))
        steps = Steps(self.program, draw, values, self.depth)
        steps.grow(draw.randint(1, 7))
        if self.depth < 2 and draw.random() < 0.2:
            steps.add_scan()
            steps.grow(draw.randint(0, 2))
        new = [self._new(steps, old, carry, draw) for old in carry]
        candidates = [*new, *carry, *steps.values, *steps.made]
        return new, [draw.choice(candidates) for _ in range(draw.randint(0, 3))]

    def _new(self, steps: Steps, old: Any, carry: Tensors, draw: random.Random) -> Any:
        """A new carry of the type of `old`."""
        kind = draw.random()
        alike = [v for v in steps.values if v.shape == old.shape and v.dtype == old.dtype]
        if kind < 0.15:
            same = [v for v in carry if v.shape == old.shape and v.dtype == old.dtype]
            return draw.choice(same)
        if old.dtype == "bool":
            return graphc.logical_not(draw.choice(alike))
        if old.dtype == "i32":
            other = draw.choice(alike)
            return old + other % 3 if kind < 0.5 else (other + 1) % 5
        made = [v for v in steps.made if v.dtype == "f32" and v.size]
        fits = [v for v in made if _broadcast(v.shape, old.shape) == old.shape]
        if fits:
            term = graphc.tanh(draw.choice(fits))
        elif made:
            term = graphc.tanh(graphc.mean(draw.choice(made)))
        else:
            term = graphc.tanh(draw.choice(alike))
        if kind < 0.3:
            return old + term * 0.125
        if kind < 0.4:
            return term + old
        if kind < 0.7 and term.shape == old.shape:
            return term
        return graphc.tanh(old * 0.5 + term)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return None
