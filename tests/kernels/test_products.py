"""Contractions as nests: sums of products, and what is done to them, have the same bits by the
reference, the interpreter of nests, in C++ with tiles of registers and in plain C. CUDA, whose sums
have an order of their own, has them where sums are exact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.kernels.c.lower import serial_nests
from graphc.kernels.loops.interpret import interpret
from graphc.kernels.loops.text import nest_text, parse_nest
from graphc.kernels.loops.verify import verify_nest
from graphc.ops import Conv2d, Matmul
from graphc.ops.base import Array
from tests.kernels.c_harness import assert_same_bits, build_c
from tests.kernels.contract_samples import convolutions, matmuls
from tests.kernels.harness import build, single, traced
from tests.kernels.test_contract import _conv_pool
from tests.kernels.test_sum_orders import _converts_operands, inputs_of, ordered
from tests.sim.playing import Played, simulator

DTYPES = ("f32", "f32", "f64", "bf16", "f16", "i32")
FEW, MANY = 18, 30


def row_major(node: Any) -> bool:
    return all(v.type.layout.axis is None for v in (*node.inputs, *node.outputs))


def random_nodes(seed: int, count: int) -> list[Any]:
    """Products and convolutions, with their gradients and epilogues, in names of their own."""
    dtype = DTYPES[seed % len(DTYPES)]
    found = matmuls(seed, 2 * count, 1, dtype)
    if dtype != "i32":
        found += convolutions(seed, 2 * count, 1, dtype)
    nodes = [ordered(n) for n in found[::3] if row_major(n) and not _converts_operands(n)]
    return named(nodes[:count])


def named(nodes: Iterable[Any]) -> list[Any]:
    """The kernels in names of their own."""
    return [replace(n, op=replace(n.op, kernel=f"k{i}")) for i, n in enumerate(nodes)]


def interpreted(node: Any, inputs: Sequence[Array]) -> list[Array]:
    """The outputs by the interpreter, of nests that are proved, print and parse."""
    nests, parameters = serial_nests(node)
    memory = dict[str, Array]()
    for nest in nests:
        assert parse_nest(nest_text(nest)) == nest
        for m in nest.memory:
            memory.setdefault(m.name, np.zeros(m.size, Type((), m.dtype).numpy_dtype))
    for m, x in zip(parameters, inputs, strict=False):
        memory[m.name] = x.ravel().copy()
    for nest in nests:
        with np.errstate(all="ignore"):
            interpret(nest, memory)
    made = parameters[len(inputs) :]
    return [memory[m.name].reshape(v.type.shape) for m, v in zip(made, node.outputs, strict=True)]


def assert_agreement(nodes: Sequence[Any], folder: Path, slow: bool = True) -> None:
    """The interpreter goes through sums term by term, and computes those of some nodes alone."""
    cpu, plain = build(nodes), build_c(nodes, folder)
    for number, node in enumerate(nodes):
        inputs, what = inputs_of(node), f"{number}: {node.op.body.name} of {node.inputs}"
        want = node.op.reference(*inputs)
        assert_same_bits(plain[number].run(inputs), want, f"C, {what}")
        assert_same_bits(cpu[number].run(inputs), want, f"C++, {what}")
        if slow or number % 4 == 0:
            assert_same_bits(interpreted(node, inputs), want, f"interpreter, {what}")


@pytest.mark.parametrize("seed", range(2))
def test_products_have_the_bits_of_the_reference(seed: int, tmp_path: Path):
    assert_agreement(random_nodes(seed, FEW), tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 38))
def test_many_products_have_the_bits_of_the_reference(seed: int, tmp_path: Path):
    assert_agreement(random_nodes(seed, MANY), tmp_path)


def gated(x: Any, weight: Any) -> Any:
    """A batch of products, cut in two."""
    z = graphc.matmul(x, weight)
    return graphc.relu(z[..., :7]) * z[..., 7:]


def test_pooled_sums_and_gates_have_the_bits_of_the_reference(tmp_path: Path):
    pooled = [
        _conv_pool(Type((3, 2, 7, 8), dtype), 4, 3, padding, window)
        for dtype, padding, window in (("f32", 0, (2, 2)), ("f64", 1, (3, 3)), ("f32", 2, (1, 2)))
    ]
    gates = traced("gates", gated, [Type((2, 5, 12)), Type((2, 12, 14))])
    assert_agreement(named(map(ordered, (*pooled, gates))), tmp_path)


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_exact_sums_are_those_of_cuda(seed: int):
    nodes = random_nodes(seed, FEW)
    device = Played(simulator(), nodes)
    for node in nodes:
        inputs = [np.rint(3 * x).astype(x.dtype) for x in inputs_of(node)]
        assert_same_bits(device.run(node, inputs), node.op.reference(*inputs), node.op.body.name)


def test_what_lies_beyond_an_image_is_left_out(tmp_path: Path):
    """A product of 0 and infinity would be NaN."""
    conv = Conv2d((1, 1), (1, 1), (1, 1), 1)
    node: Any = ordered(single(conv, [Type((1, 1, 3, 3)), Type((1, 1, 3, 3))], "padded"))
    x, weight = np.ones((1, 1, 3, 3), np.float32), np.full((1, 1, 3, 3), np.inf, np.float32)
    (plain,) = build_c([node], tmp_path)
    for made in (plain.run([x, weight]), interpreted(node, [x, weight])):
        np.testing.assert_array_equal(made[0], np.full((1, 1, 3, 3), np.inf))


def test_an_order_of_lanes_and_parts_is_that_of_the_reference(tmp_path: Path):
    kinds = [Type((5, 100)), Type((100, 7))]
    orders = ("k", "k%16", "3*k/4,k%4", "2*k")
    nodes = named(ordered(single(Matmul(), kinds, "sums"), order) for order in orders)
    inputs, found = inputs_of(nodes[0]), set()
    for node, plain in zip(nodes, build_c(nodes, tmp_path), strict=True):
        want = node.op.reference(*inputs)
        assert_same_bits(plain.run(inputs), want)
        assert_same_bits(interpreted(node, inputs), want)
        found.add(want[0].tobytes())
    assert len(found) == len(orders)


def test_reads_beyond_an_operand_are_refused():
    node: Any = single(Matmul(), [Type((3, 4)), Type((4, 5))], "product")
    (nest,), _ = serial_nests(node)
    text = nest_text(nest)
    for old, new in (("x0_data[4*i0", "x0_data[4*i0 + 1"), ("f32[20]", "f32[19]")):
        assert old in text
        with pytest.raises(GraphError):
            verify_nest(parse_nest(text.replace(old, new).replace("+ 1 + 1*i2", "+ 1*i2 + 1")))


def test_a_product_is_printed_as_a_loop():
    node: Any = single(Matmul(), [Type((3, 4)), Type((4, 5))], "product")
    (nest,), _ = serial_nests(node)
    assert nest_text(nest).splitlines()[-3:] == [
        "    x1_ : f32 = load x1_data[1*i1 + 5*i2]",
        "    sum_ : f32 = reduce products x0_, x1_ over i2 in 2",
        "  store y0_data[5*i0 + 1*i1], sum_",
    ]
