"""Random pointwise kernels of all dtypes, for devices to compare their bits.

Their operations are exact: a result does not depend on a device's approximation. With `functions`
they also call elementary functions, in which devices differ. Integers come from floats that they
hold, and signs from numbers, as those of NaN depend on the machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc
from graphc.base.dtypes import convert
from graphc.base.target import Target
from graphc.ir import FLOATS, INTEGERS, Graph, Type
from graphc.ops.base import Array
from graphc.ops.fused import Fused, KernelNode
from graphc.passes.fuse.fuse_multiply_add import fuse_multiply_add
from graphc.passes.fuse.widen import widen

Operation = Callable[..., Any]
DTYPES = ("bool", "u8", "i8", "i32", "i64", "f16", "bf16", "f32", "f32", "f32", "f64")
EXTENTS = (1, 2, 3, 5, 8, 17, 33)

ANY: tuple[Operation, ...] = (
    lambda a, b: graphc.where(a == b, a, b),
    lambda a, b: graphc.where(a != 0, b, a),
    lambda a, b: graphc.flip(a, -1),
    lambda a, b: graphc.concat([b[..., 1:], a[..., :1]], -1),
    lambda a, b: graphc.pad(a, [(0, 0)] * (a.ndim - 1) + [(1, 2)], value=1)[..., 2:-1],
    lambda a, b: graphc.where(graphc.arange(a.shape[-1]) % 3 == 1, a, b),
)
NUMBERS: tuple[Operation, ...] = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a * b + a,
    lambda a, b: b - a * a,
    lambda a, b: graphc.maximum(a, b),
    lambda a, b: graphc.minimum(a, b),
    lambda a, b: graphc.where(a > b, a, b * 3),
    lambda a, b: graphc.where(a <= b, -a, b),
    lambda a, b: graphc.abs(a),
    lambda a, b: graphc.relu(a) - b,
    lambda a, b: graphc.square(a),
)
WHOLE: tuple[Operation, ...] = (
    lambda a, b: a // b,
    lambda a, b: a % b,
    lambda a, b: graphc.fmod(a, b),
    lambda a, b: a & b,
    lambda a, b: a | b,
    lambda a, b: ~(a ^ b),
    lambda a, b: a << b,
    lambda a, b: a >> b,
    lambda a, b: graphc.gcd(a, b),
)
REAL: tuple[Operation, ...] = (
    lambda a, b: a / (b * b + 1.5),
    lambda a, b: graphc.sqrt(graphc.abs(a)) - b,
    lambda a, b: graphc.floor(a) + graphc.trunc(b),
    lambda a, b: graphc.round(a) - graphc.ceil(b),
    lambda a, b: graphc.where(graphc.isnan(a), b, a),
    lambda a, b: graphc.copysign(a, graphc.nan_to_num(b, 1.0, 2.0, -2.0)),
    lambda a, b: a * 0.3 + b,
)
FUNCTIONS: tuple[Operation, ...] = (
    lambda a, b: graphc.exp(-a * a) + b,
    lambda a, b: graphc.tanh(a) * b,
    lambda a, b: graphc.erf(a) - graphc.sigmoid(b),
    lambda a, b: graphc.log(graphc.abs(a) + 0.1),
    lambda a, b: graphc.sin(a) + graphc.cos(b),
    lambda a, b: graphc.gelu(a) + graphc.silu(b),
    lambda a, b: graphc.log1p(a * a) - graphc.expm1(-abs(b)),
    lambda a, b: graphc.atan2(a, b) + graphc.asinh(a),
    lambda a, b: graphc.abs(a) ** (graphc.tanh(b) * 3),
    lambda a, b: graphc.rsqrt(a * a + 1),
    lambda a, b: graphc.erfc(a) + graphc.lgamma(graphc.abs(b) + 0.5),
)
LOGIC: tuple[Operation, ...] = (
    lambda a, b: graphc.logical_and(a, b),
    lambda a, b: graphc.logical_or(a, graphc.logical_not(b)),
    lambda a, b: graphc.logical_xor(a, b),
)


class RandomPointwise:
    """A kernel `node` and arrays for its inputs; the same seed makes the same."""

    def __init__(self, seed: int, functions: bool = False) -> None:
        self.functions = functions
        self.random, self.generator = random.Random(seed), np.random.default_rng(seed)
        self.shape = tuple(self.random.choice(EXTENTS) for _ in range(self.random.randint(1, 3)))
        self.dtypes = self.random.choices(DTYPES, k=3)
        kinds = [self._kind() for _ in range(self.random.randint(2, 5))]
        self.arrays = [self._array(kind) for kind in kinds]
        specs = [graphc.spec(kind.shape, kind.dtype) for kind in kinds]
        graph = widen(graphc.trace(self._run, *specs), Target("cpu"))
        self.node = _kernel(f"random_{seed}", graph)

    def _kind(self) -> Type:
        """A dtype and a shape that broadcasts to the whole one."""
        shape = tuple(1 if self.random.random() < 0.2 else n for n in self.shape)
        return Type(shape[self.random.choice((0, 0, 0, 1)) :], self.random.choice(self.dtypes))

    def _array(self, kind: Type) -> Array:
        """Numbers around 1, any integers, and a few special floats."""
        if kind.dtype == "bool":
            return self.generator.random(kind.shape) < 0.5
        if kind.dtype in INTEGERS:
            ends = np.iinfo(kind.numpy_dtype)
            span = (-9, 9) if self.random.random() < 0.5 else (ends.min, ends.max)
            low, high = max(span[0], ends.min), span[1]
            return self.generator.integers(low, high, kind.shape, kind.numpy_dtype, endpoint=True)
        numbers = np.asarray(self.generator.normal(scale=2, size=kind.shape))
        for special in (0, -0.0, np.inf, -np.inf, np.nan, 1e30, 1e-42):
            if self.random.random() < 0.15:
                numbers[self.generator.random(kind.shape) < 0.1] = special
        return convert(numbers, kind.numpy_dtype)

    def _run(self, *inputs: Any) -> Any:
        """Some twenty operations on the whole shape, and up to three results."""
        values = [graphc.broadcast_to(self._read(x), self.shape) for x in inputs]
        for _ in range(self.random.randint(3, 20)):
            a, b = self.random.choice(values[-4:]), self.random.choice(values)
            if a.dtype != b.dtype:
                b = _cast(b, a.dtype)
            values.append(self.random.choice(self._operations(a.dtype))(a, b))
            if self.random.random() < 0.25:
                values.append(_cast(values[-1], self.random.choice(self.dtypes)))
        made = values[len(inputs) :]
        results = [made[-1], *self.random.sample(made, self.random.randint(0, min(2, len(made))))]
        return tuple(dict.fromkeys(results))

    def _read(self, x: Any) -> Any:
        """An input as it is, or its elements along an axis in any order: what only
        arrays in memory allow."""
        if not x.ndim or self.random.random() < 0.8:
            return x
        axis = self.random.randrange(x.ndim)
        places = self.generator.integers(0, x.shape[axis], x.shape[axis])
        return graphc.take(x, places.astype(np.int32), axis=axis)

    def _operations(self, dtype: str) -> tuple[Operation, ...]:
        if dtype == "bool":
            return LOGIC + ANY[:3]
        if dtype in INTEGERS:
            return ANY + NUMBERS + WHOLE
        return ANY + NUMBERS + REAL + (FUNCTIONS if self.functions else ())


def _cast(x: Any, dtype: str) -> Any:
    """`x` as `dtype`, brought to numbers that it holds."""
    if x.dtype in FLOATS and dtype in INTEGERS:
        x = graphc.clip(graphc.nan_to_num(x, 1.0, 2.0, -2.0), 0 if dtype == "u8" else -100, 100)
    return graphc.astype(x, dtype)


def _kernel(name: str, graph: Graph) -> KernelNode:
    """The kernel of a graph without products beside their sums."""
    node = KernelNode(Fused(name, graph), graph.inputs, graph.outputs)
    (fused,) = fuse_multiply_add(
        Graph(name, graph.inputs, (), (node,), graph.outputs), Target("cpu")
    ).nodes
    assert isinstance(fused, KernelNode)
    return fused
