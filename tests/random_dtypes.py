"""Random programs of all dtypes over small arrays, some of them empty: every device computes
exactly what NumPy does.

Floats stay multiples of 1/16 of small magnitude (or NaN, or infinite), so that no order of a sum
and no fused multiply-add changes a bit; 0 is added to products, as a sum of zeros has the sign
that its order gives it. A program is lines of text; the same seed makes the same.
"""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np

import graphc
from graphc.base.dtypes import convert, widened
from graphc.base.errors import GraphError
from graphc.ir import FLOATS, Graph
from graphc.ir.interpret import evaluate

EXTENTS = (0, 1, 1, 2, 3, 3, 5, 16, 17, 33)
DTYPES = ("bool", "u8", "i8", "i32", "i64", "f16", "bf16", "f32", "f64")
LARGEST = 4096
"""Elements of a value."""
Array = np.ndarray[Any, np.dtype[Any]]

BINARY = ("a + b", "a - b", "a * b", "a // b", "a % b", "graphc.maximum(a, b)", "a < b", "a == b")
BINARY += ("graphc.minimum(a, b)", "graphc.fmod(a, b)", "a & b", "a | b", "a ^ b", "a << b")
BINARY += ("a >> b", "graphc.gcd(a, b)", "a != b", "a >= b", "graphc.where(a > b, a, b)")
BINARY += ("graphc.where(a != 0, b, a)", "graphc.logical_and(a != 0, b != 0)", "graphc.fmax(a, b)")
BINARY += ("graphc.copysign(a, b)", "graphc.heaviside(a, b)")
UNARY = ("-a", "graphc.abs(a)", "graphc.sign(a)", "graphc.square(a)", "graphc.relu(a)", "~a")
UNARY += ("graphc.floor(a)", "graphc.round(a)", "graphc.trunc(a)", "graphc.logical_not(a != 0)")
UNARY += ("graphc.isnan(a)", "graphc.isfinite(a)", "graphc.nan_to_num(a, 1.0, 2.0, -2.0)")
UNARY += ("a * 2", "a + 1.5", "3 - a", "a // 2", "a % 3", "-7 // a", "a % -3", "a >> 1", "1 << a")
UNARY += ("a > 1", "graphc.clip(a, -1, 2)", "graphc.stop_gradient(a)", "a / 4", "a + True")
UNARY += ("graphc.ravel(a)", "graphc.flip(a)", "graphc.sort(graphc.ravel(a))", "a[None]", "a[...]")
UNARY += ("graphc.tril(a)", "graphc.triu(a, 1)", "graphc.diff(a)", "graphc.nansum(a)")
UNARY += ("graphc.ones_like(a)", "graphc.full_like(a, 3)", "graphc.squeeze(a)", "a.T")
AXIS = ("sum", "prod", "max", "min", "any", "all", "count_nonzero", "argmax", "argmin", "cumsum")
AXIS += ("flip", "sort", "argsort", "cummax", "cummin", "roll", "repeat", "expand_dims", "unstack")
AXIS += ("stack", "median", "cumprod", "softmax", "mean", "logsumexp", "diff", "aminmax")


class RandomDtypes:
    """A function `run(*tensors)` of the arrays `arrays`; `text` says what it computes."""

    def __init__(self, seed: int, dtypes: tuple[str, ...] = DTYPES) -> None:
        self.random, self.dtypes = random.Random(seed), dtypes
        self.generator = np.random.default_rng(seed)
        self.kinds: list[Any] = []
        self.arrays: list[Array] = []
        self.text: list[str] = []
        self.values: dict[str, Array] = {}
        rank = self.random.choice((1, 2, 2, 3))
        self.shape = tuple(self.random.choice(EXTENTS) for _ in range(rank))
        for _ in range(self.random.randint(2, 4)):
            self.argument()
        for _ in range(self.random.randint(4, 14)):
            self.grow()

    @property
    def outputs(self) -> list[str]:
        return list(self.values)[-3:]

    def run(self, *tensors: Any) -> Any:
        names = {f"p{i}": t for i, t in enumerate(tensors)}
        for line in self.text:
            exec(line, {"graphc": graphc}, names)  # lines of this class alone
        return tuple(graphc.as_tensor(names[n]) for n in self.outputs)

    def __str__(self) -> str:
        kinds = " ".join(f"p{i}: {kind}" for i, kind in enumerate(self.kinds))
        return "\n".join([kinds, *self.text, " ".join(self.outputs)])

    def graph(self) -> Graph:
        return graphc.trace(self.run, *self.kinds)

    def argument(self) -> None:
        """A further argument, whose axes broadcast with those of the others."""
        dtype = self.random.choice(self.dtypes)
        shape = tuple(1 if self.random.random() < 0.2 else n for n in self.shape)
        shape = shape[self.random.choice((0, 0, 0, 1)) :]
        array = self.generator.integers(-6, 7, shape)
        if dtype in FLOATS:
            floats = np.asarray(array / self.random.choice((1, 2, 4)))
            for special in (np.nan, np.inf, -np.inf, -0.0):
                if self.random.random() < 0.1:
                    floats[self.generator.random(shape) < 0.1] = special
            made = floats.astype(
                np.float32 if dtype == "bf16" else graphc.spec((), dtype).numpy_dtype
            )
        else:
            made = (array if dtype not in ("bool", "u8") else abs(array)).astype(
                graphc.spec((), dtype).numpy_dtype
            )
        self.values[f"p{len(self.arrays)}"] = made
        self.arrays.append(made)
        self.kinds.append(graphc.spec(shape, dtype))

    def grow(self) -> None:
        a, b = self.random.choices(list(self.values)[-6:], k=2)
        getattr(self, self.random.choice(("unary", "binary", "binary", "along", "along", "move")))(
            a, b
        )

    def let(self, text: str) -> None:
        """A further value, if the functions take the dtypes, and brought back to small numbers."""
        name = f"v{len(self.text)}"
        self.text.append(f"{name} = {text}")
        self.values[name] = np.zeros(())
        try:
            kind, array = self.found()
        except GraphError:
            self.text.pop(), self.values.pop(name)
            return
        self.values[name] = array
        if array.size > LARGEST:
            self.text.pop(), self.values.pop(name)
        elif kind.dtype in FLOATS and not _is_small(array):
            self.text[-1] = f"{name} = graphc.clip(graphc.round({text}), -8, 8)"
            self.values[name] = self.found()[1]

    def found(self) -> tuple[Any, Array]:
        """The type and the elements of the last value."""
        graph = self.graph()
        outputs, _ = evaluate(graph, self.arrays_of(graph))
        return graph.outputs[-1].type, outputs[-1]

    def arrays_of(self, graph: Graph) -> list[Array]:
        return [
            convert(a, v.type.numpy_dtype) for a, v in zip(self.arrays, graph.inputs, strict=True)
        ]

    def unary(self, a: str, b: str) -> None:
        kind = self.random.choice((*UNARY, None, None, None, None))
        if kind is None:
            dtype = self.random.choice(self.dtypes)
            safe = f"graphc.nan_to_num({a}, 1.0, 2.0, -2.0)"
            floats = self.values[a].dtype.kind not in "biu"
            if floats and dtype == "u8":
                safe = f"graphc.abs({safe})"
            self.let(f"graphc.astype({safe if floats else a}, '{dtype}')")
        else:
            self.let(_put(kind, a, b))

    def binary(self, a: str, b: str) -> None:
        self.let(_put(self.random.choice(BINARY), a, b))

    def along(self, a: str, b: str) -> None:
        rank = self.values[a].ndim
        name, axis = self.random.choice(AXIS), self.random.randrange(-rank, rank) if rank else 0
        if name in ("sum", "prod", "max", "min", "any", "all") and self.random.random() < 0.5:
            axes = self.random.choice(["None", str(axis), f"({axis},)", "()"])
            keep = self.random.random() < 0.5
            x = f"({a} != 0)" if name in ("any", "all") else f"graphc.clip({a}, -2, 2)"
            self.let(f"graphc.{name}({x}, axis={axes}, keepdims={keep})")
        elif name in ("cummax", "cummin", "median", "aminmax"):
            self.let(f"graphc.{name}({a}, axis={axis})[{self.random.choice((0, 1))}]")
        elif name == "roll":
            self.let(f"graphc.roll({a}, {self.random.randint(-3, 3)}, {axis})")
        elif name == "repeat":
            self.let(f"graphc.repeat({a}, {self.random.randint(0, 2)}, {axis})")
        elif name == "unstack":
            if rank and self.values[a].shape[axis]:
                self.let(f"graphc.unstack({a}, {axis})[{self.random.choice((0, -1))}]")
        elif name == "stack":
            self.let(f"graphc.stack([{a}, {a}], {axis})")
        elif name in ("softmax", "mean", "logsumexp"):
            self.let(f"graphc.round(graphc.{name}({a} * 8.0, axis={axis}) + 0.125)")
        else:
            self.let(f"graphc.{name}({a}, axis={axis})")

    def move(self, a: str, b: str) -> None:
        draw, shape = self.random, self.values[a].shape
        rank = len(shape)
        axis = draw.randrange(rank) if rank else 0
        texts = [
            f"graphc.concat([{a}, {b}], axis={axis})",
            f"{a} @ {b} + 0",
            f"{a} @ graphc.matrix_transpose({b}) + 0",
        ]
        texts += [f"graphc.matmul(graphc.clip({a}, -2, 2), {b}) + 0", f"graphc.outer({a}, {b})"]
        if rank:
            step = draw.choice((1, 2, 3, -1, -2))
            bounds = [draw.choice(("", str(draw.randint(-4, 4)))) for _ in range(2)]
            before = ":, " * axis
            texts += [f"{a}[{before}{bounds[0]}:{bounds[1]}:{step}]"] * 4
            texts += [f"{a}[{before}{draw.randint(-2, 1)}]", f"{a}[{before}None]", f"{a}[..., -1]"]
            low, high = draw.randint(0, 2), draw.randint(0, 2)
            pads = [(low, high) if d == axis else (0, 0) for d in range(rank)]
            texts += [f"graphc.pad({a}, {pads}, value={draw.choice((0, 1))})"] * 2
            mode = draw.choice(("reflect", "replicate", "circular"))
            texts += [f"graphc.pad({a}, {pads}, mode='{mode}')"]
            axes = draw.sample(range(rank), rank)
            texts += [
                f"graphc.permute_dims({a}, {tuple(axes)})",
                f"graphc.reshape({a}, (-1, {shape[axis]}))",
            ]
            texts += [
                f"graphc.reshape({a}, {(1, *shape[::-1])})",
                f"graphc.broadcast_to({a}, {(2, *shape)})",
            ]
            index = f"graphc.astype(graphc.nan_to_num({b}, 0.0, 1.0, 1.0), 'i32')"
            texts += [f"graphc.take({a}, {index}, axis={axis})"] * 2
            texts += [
                f"graphc.take_along_axis({a}, graphc.broadcast_to({index}, {shape}), axis={axis})"
            ]
            texts += [f"graphc.gather({a}, {axis}, {index})", f"{a}[{index}]"]
            texts += [
                f"graphc.scatter({a}, {axis}, {index}, {a})",
                f"graphc.scatter_add({a}, {axis}, {index}, {a})",
            ]
            reduce = draw.choice(("sum", "prod", "amax", "amin"))
            inside = draw.random() < 0.5
            texts += [f"graphc.scatter_reduce({a}, {axis}, {index}, {a}, '{reduce}', {inside})"]
            texts += [f"graphc.one_hot({index}, {draw.randint(1, 4)})"]
            k = draw.randint(0, shape[axis])
            texts += [f"graphc.topk({a}, {k}, axis={axis})[{draw.choice((0, 1))}]"] * 2
            texts += [f"graphc.searchsorted(graphc.sort(graphc.ravel({a})), graphc.ravel({b}))"]
            texts += [
                f"graphc.bincount(graphc.abs(graphc.ravel({index})), "
                f"minlength={draw.randint(0, 4)})"
            ]
            texts += [f"graphc.isin({a}, {b})", f"graphc.tile({a}, {draw.randint(0, 2)})"]
            texts += [f"graphc.index_add({a}, {axis}, graphc.arange({shape[axis]}) // 2, {a})"]
            texts += [f"graphc.kthvalue({a}, {max(k, 1)}, axis={axis})[0]"]
        self.let(draw.choice(texts))


def _put(template: str, a: str, b: str) -> str:
    """`template` with its lone letters a and b replaced."""
    return re.sub(r"(?<![\w.])[ab](?!\w)", lambda found: {"a": a, "b": b}[found[0]], template)


def _is_small(array: Array) -> bool:
    wide = np.asarray(widened(array), np.float64)
    finite = wide[np.isfinite(wide)]
    return bool((abs(finite) <= 64).all() and (finite * 16 == np.round(finite * 16)).all())
