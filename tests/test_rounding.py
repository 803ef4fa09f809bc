"""Every product and sum is rounded as the graph says: random programs of exact operations have the
same bits by the reference, on the CPU, on the simulated GPU and by the interpreter of nests."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.kernels.loops.interpret import interpret
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.rewrites import bind, hoist, split_last
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.pieces import space
from graphc.kernels.program.pointwise_nest import group_outputs, make_pointwise_nest
from graphc.ops.fused import KernelNode, kernels_in

Array = np.ndarray[Any, Any]
Bits = tuple[Any, ...]

OPERATIONS: tuple[Callable[..., Any], ...] = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a * b + a,
    lambda a, b: b - a * a,
    lambda a, b: a / (b * b + 1.5),
    lambda a, b: graphc.maximum(a, b),
    lambda a, b: graphc.where(a > b, a, b * 0.75),
    lambda a, b: graphc.sqrt(graphc.abs(a)) - b,
    lambda a, b: graphc.relu(a) * 1.25 - b,
)
SHAPES = ((7, 33), (33,), (7, 1), (7, 33))
PROGRAMS = 24


def program(seed: int) -> Callable[..., Any]:
    """A random expression of the inputs, of some twenty operations, with two results."""

    def function(*inputs: Any) -> Any:
        drawn, values = random.Random(seed), list(inputs)
        for _ in range(20):
            operation = drawn.choice(OPERATIONS)
            a, b = drawn.choice(values[-4:]), drawn.choice(values)
            values.append(operation(a, b))
        return values[-1], values[-2]

    return function


def inputs_of(seed: int, dtype: str) -> list[Array]:
    """Numbers around 1, and of some programs' inputs a few that are special."""
    draw = np.random.default_rng(seed)
    arrays = [draw.normal(size=shape).astype(dtype) for shape in SHAPES]
    if seed % 2:
        special = np.array([0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).max / 2], dtype)
        arrays[0].flat[: 12 * 19 : 19] = np.tile(special, 2)
    return arrays


def bits(arrays: Sequence[Any]) -> list[Bits]:
    """Shapes and bits, of NaN one pattern."""
    plain = (np.asarray(a) for a in arrays)
    return [
        (a.shape, a.dtype, np.where(np.isnan(a), np.nan, a).astype(a.dtype).tobytes())
        for a in plain
    ]


def run(seed: int, dtype: str, device: str, **options: Any) -> tuple[list[Bits], Any]:
    arrays = inputs_of(seed, dtype)
    specs = [graphc.spec(a.shape, dtype) for a in arrays]
    compiled = graphc.compile(program(seed), *specs, device=device, **options)
    return bits(compiled(*arrays)), compiled


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_the_cpu_rounds_as_the_reference_does(seed: int, dtype: str):
    expected, _ = run(seed, dtype, "reference")
    assert run(seed, dtype, "cpu", threads=1)[0] == expected


@pytest.mark.parametrize("seed", range(0, PROGRAMS, 4))
def test_the_simulated_gpu_rounds_as_the_reference_does(seed: int):
    expected, _ = run(seed, "float32", "reference")
    assert run(seed, "float32", "sim")[0] == expected


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_interpreted_loops_compute_what_the_reference_does(seed: int):
    expected, compiled = run(seed, "float32", "reference")
    known = dict(zip(compiled.graph.inputs, inputs_of(seed, "float32"), strict=True))
    for node in kernels_in(compiled.graph):
        known.update(interpreted(node, [known[v] for v in node.inputs]))
    assert bits([known[v] for v in compiled.graph.outputs]) == expected


def interpreted(node: KernelNode, inputs: Sequence[Array]) -> dict[Any, Array]:
    """The outputs of a pointwise kernel by the interpreter of its nests, cut in chunks of registers
    of eight lanes."""
    body = node.body
    pointers = Identifiers().pointers(body)
    memory = {pointers[v]: a.ravel().copy() for v, a in zip(body.inputs, inputs, strict=True)}
    for v in body.outputs:
        memory[pointers[v]] = np.zeros(v.type.size, v.type.numpy_dtype)
    for outputs in group_outputs(body):
        shape = space(body, outputs[0]) or (1,)
        domain = Domain(shape, len(shape) - 1, 8)
        part = make_pointwise_nest(body, outputs, domain, pointers).merged
        interpret(split_last(hoist(bind(plain_nest(part), "chunk"))), memory)
    pairs = zip(node.outputs, body.outputs, strict=True)
    return {outer: memory[pointers[v]].reshape(v.type.shape) for outer, v in pairs}


@pytest.mark.parametrize("device", ["reference", "cpu", "sim"])
def test_a_difference_of_equal_squares_is_zero(device: str):
    def function(x: Any, y: Any) -> Any:
        square = y * y
        return x * x - y * y, x * x - square, square, x**2 - y**2, x * x - y**2

    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    compiled = graphc.compile(function, graphc.spec(x.shape), graphc.spec(x.shape), device=device)
    *differences, square, further, last = map(np.asarray, compiled(x, x))
    assert square.any()
    assert not any(a.any() for a in (*differences, further, last))


def test_the_first_of_two_products_is_fused():
    function = lambda x, y, z, w: x * y + z * w  # noqa: E731
    specs = [graphc.spec((9,))] * 4
    text = str(graphc.compile(function, *specs, device="cpu").graph)
    assert "fma(%x, %y, %multiply.1)" in text
    assert text.count("multiply(") == 1


@pytest.mark.parametrize("columns", [1, 5])
def test_products_of_fewer_elements_are_fused_too(columns: int):
    """Or rows of one element, whose product has as many, would have bits of their own."""

    def function(x: Any) -> Any:
        total = graphc.sum(x, 1, keepdims=True)
        return x + total * graphc.max(x, 1, keepdims=True)

    compiled = graphc.compile(function, graphc.spec((7, columns)), device="cpu")
    assert "fma(" in str(compiled.graph)


def test_a_multiply_add_of_numbers_is_a_number():
    x = np.float32(1.5)
    for device in ("reference", "cpu"):
        compiled = graphc.compile(
            lambda x, y: x * x + y, graphc.spec(()), graphc.spec(()), device=device
        )
        assert np.shape(compiled(x, x)) == ()


def test_factors_leave_sums_that_a_reduction_reads():
    """A sum within the sum that is added up, too, is left to the passes behind."""

    def function(x: Any, g: Any, s: Any) -> Any:
        return graphc.sum((x * g + s) + x, 1), graphc.sum(-(x * g + s), 1), x * g + s

    specs = [graphc.spec(shape) for shape in ((7, 33), (7, 33), (7, 33))]
    compiled = graphc.compile(function, *specs, device="cpu")
    bodies = [n.body for n in kernels_in(compiled.graph) if n.op.template == "reduce"]
    reduced = [n.op.name for body in bodies for n in body.nodes]
    assert "multiply" in reduced
