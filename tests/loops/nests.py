"""Plain nests of traced functions, with arrays for their memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import graphc
from graphc.ir import Graph, Type, Value
from graphc.ir.interpret import evaluate
from graphc.kernels.loops.interpret import interpret
from graphc.kernels.loops.language import Loop, Nest, Step
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.names import Identifiers, Pointers
from graphc.kernels.program.pieces import space
from graphc.kernels.program.pointwise_nest import group_outputs, make_pointwise_nest
from graphc.ops.base import Array
from graphc.ops.pooling import AvgPool2dGrad, MaxPool2dGrad
from graphc.trace.builder import emit
from tests.kernels.harness import traced

MATRIX, ROW, CUBE = Type((6, 8), "f32"), Type((8,), "f32"), Type((3, 4, 8), "f32")
PLACES = Type((5,), "i32")
PIXELS, WINDOW = (7, 6), ((3, 3), (2, 2), (1, 1))
IMAGE = Type((2, 3, *PIXELS), "f32")
POOLED = Type((2, 3, 4, 3), "f32"), Type((2, 3, 4, 3), "i32")

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Type, ...]]] = {
    "scale and shift": (lambda x, b: graphc.relu(x * b + 0.9), (MATRIX, ROW)),
    "one element": (lambda x: x + 1, (Type((), "f32"),)),
    "flip": (lambda x: graphc.flip(x, 1) * x, (MATRIX,)),
    "transpose": (lambda x: graphc.exp(graphc.permute_dims(x, (1, 0))), (MATRIX,)),
    "pad": (lambda x: graphc.pad(x[1:], ((1, 0), (2, 1))) + 1, (MATRIX,)),
    "concat": (lambda x: graphc.concat([x, x * 2], 1), (MATRIX,)),
    "uneven concat": (lambda x, y: graphc.concat([x, y[:, :3]], 1), (MATRIX, MATRIX)),
    "constant section": (lambda x: graphc.concat([x, x[:, :3] + np.arange(3)], 1), (MATRIX,)),
    "take": (lambda x, i: graphc.take(x, i, 0) + 1, (MATRIX, PLACES)),
    "constants": (lambda x: graphc.where(x > 0, x, float("nan")) + np.arange(8.0), (CUBE,)),
    "iota": (lambda x: x * graphc.arange(8), (MATRIX,)),
    "two outputs": (lambda x, b: (x - b, graphc.tanh(x - b)), (MATRIX, ROW)),
    "two shapes": (lambda x, b: (x + 1, b + 1), (MATRIX, ROW)),
    "narrow": (lambda x: x * 1.5, (Type((6, 8), "bf16"),)),
    "narrow booleans": (lambda x: graphc.astype(x > 0, "bf16"), (MATRIX,)),
    "integers": (lambda i: graphc.astype(i // 3, "f32"), (Type((6, 8), "i32"),)),
    "max pool": (lambda x: graphc.max_pool2d(x, 2), (IMAGE,)),
    "padded max pool": (lambda x: graphc.max_pool2d(x, 3, 2, 1) + 1, (IMAGE,)),
    "average pool": (lambda x: graphc.avg_pool2d(x, (3, 2), 2, 1), (IMAGE,)),
    "average without padding": (
        lambda x: graphc.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        (IMAGE,),
    ),
    "gradient of a max pool": (lambda d, i: emit(MaxPool2dGrad(*WINDOW, PIXELS), d, i), POOLED),
    "gradient of an average": (lambda d, _: emit(AvgPool2dGrad(*WINDOW, False, PIXELS), d), POOLED),
    "booleans": (lambda x: graphc.logical_and(x > 0, x < 1), (MATRIX,)),
}


@dataclass(frozen=True)
class Case:
    """The plain nests of a body, a pointer for each value, and arrays for its inputs."""

    body: Graph
    nests: tuple[Nest, ...]
    pointers: Pointers
    arrays: dict[Value, Array]

    def run(self, schedule: Callable[[Nest], Nest] = lambda nest: nest) -> dict[str, Array]:
        """The outputs' memory after all nests, each as `schedule` makes it."""
        memory = {self.pointers[v]: a.ravel().copy() for v, a in self.arrays.items()}
        for v in self.body.outputs:
            memory[self.pointers[v]] = np.zeros(v.type.size, v.type.numpy_dtype)
        for nest in self.nests:
            interpret(schedule(nest), memory)
        return {self.pointers[v]: memory[self.pointers[v]] for v in self.body.outputs}

    def expected(self) -> dict[str, Array]:
        """The outputs by the reference."""
        outputs, _ = evaluate(self.body, [self.arrays[v] for v in self.body.inputs])
        pairs = zip(self.body.outputs, outputs, strict=True)
        return {self.pointers[v]: np.asarray(a).ravel() for v, a in pairs}


def case(name: str, width: int = 1, lane: int = -1) -> Case:
    """The function `name`, with vector registers of `width` along axis `lane` if it is above 1."""
    function, inputs = FUNCTIONS[name]
    body = traced("nest", function, inputs).op.body
    pointers, random = Identifiers().pointers(body), np.random.default_rng(0)
    nests = []
    for outputs in group_outputs(body):
        shape = space(body, outputs[0]) or (1,)
        axis = range(len(shape))[lane] if width > 1 else None
        part = make_pointwise_nest(body, outputs, Domain(shape, axis, width), pointers)
        nests.append(plain_nest(part.merged))
    arrays = {v: _drawn(random, v.type) for v in body.inputs}
    return Case(body, tuple(nests), pointers, arrays)


def _drawn(random: np.random.Generator, kind: Type) -> Array:
    if kind.dtype == "i32":
        return random.integers(0, 5, kind.shape).astype(np.int32)
    return np.asarray(graphc.base.dtypes.convert(random.normal(size=kind.shape), kind.numpy_dtype))


def assert_equal(found: dict[str, Array], expected: dict[str, Array]) -> None:
    """Bit for bit, but that one NaN is as good as another."""
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def loops(body: Iterable[Step]) -> Iterator[Loop]:
    """All loops of the steps, outer ones before inner ones."""
    for step in body:
        if isinstance(step, Loop):
            yield step
            yield from loops(step.body)
