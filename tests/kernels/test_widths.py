"""Kernels give the same bits whatever the width of vector registers: here 4, 8 and 16 lanes, of
which the compiler makes what the machine has not."""

from __future__ import annotations

import numpy as np
import pytest

from graphc import functions as f
from graphc.base.target import Target
from graphc.ir import Node, Type
from graphc.ops import Cumprod, Cumsum, Logcumsumexp, Scatter
from graphc.ops.base import Array
from graphc.ops.random import PhiloxUniform
from tests.kernels.harness import build, single, traced
from tests.kernels.test_attend import arrays_of, node_of

WIDTHS = (4, 8, 16)


def outputs(nodes: list[Node], inputs: list[list[Array]]) -> list[list[list[Array]]]:
    """The outputs of each node, at each width."""
    of_width = [
        [kernel.run(arrays) for kernel, arrays in zip(build(nodes, target), inputs, strict=True)]
        for target in (Target("cpu", width) for width in WIDTHS)
    ]
    return [list(found) for found in zip(*of_width, strict=True)]


def assert_same(found: list[list[Array]]) -> None:
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(x, y)


ATTENTIONS = [
    *node_of((1, 2, 1, 101, 101, 20, 11), causal=True),
    *node_of((2, 1, 1, 67, 150, 7, 5), causal=True, mask=Type((1, 1, 67, 150))),
    node_of((1, 1, 1, 33, 100, 9, 6))[0],
    node_of((1, 1, 1, 50, 50, 4, 4), causal=True, dtype="f64")[0],
]


def test_attention() -> None:
    for found in outputs(ATTENTIONS, [arrays_of(node) for node in ATTENTIONS]):
        assert_same(found)


RUNNING = [
    (op(axis, reverse), Type(shape, dtype))
    for op, axis, reverse, shape, dtype in (
        (Cumsum, 1, False, (3, 37), "f32"),
        (Cumsum, 1, True, (2, 53), "f32"),
        (Cumsum, 0, False, (21, 5), "f32"),
        (Cumsum, 0, True, (9, 1), "f32"),
        (Cumsum, 0, False, (30000,), "f32"),
        (Cumsum, 1, True, (17, 9001), "f32"),
        (Cumsum, 0, False, (9000, 3), "f32"),
        (Cumsum, 1, False, (3, 7), "f64"),
        (Cumsum, 0, True, (70,), "f64"),
        (Cumprod, 1, False, (20, 19), "f32"),
        (Logcumsumexp, 1, False, (3, 41), "f32"),
    )
]


def test_running_results() -> None:
    """Sums and products have the bits of the reference too."""
    random = np.random.default_rng(0)
    nodes = [single(op, [type], f"running{i}") for i, (op, type) in enumerate(RUNNING)]
    inputs = [[random.uniform(0.5, 1.5, t.shape).astype(t.numpy_dtype)] for _, t in RUNNING]
    for (op, _), arrays, found in zip(RUNNING, inputs, outputs(nodes, inputs), strict=True):
        assert_same(found)
        if not isinstance(op, Logcumsumexp):
            np.testing.assert_array_equal(found[0][0], op.reference(*arrays)[0])


@pytest.mark.parametrize("rows", [1, 2, 9, 40])
def test_running_results_of_a_row_do_not_depend_on_the_rows_beside_it(rows: int) -> None:
    x = np.random.default_rng(0).standard_normal((40, 8200)).astype(np.float32)[:rows]
    (along,) = build([single(Cumsum(1), [Type(x.shape)], "along")])
    (across,) = build([single(Cumsum(0), [Type(x.T.shape)], "across")])
    for row in (0, rows - 1):
        (alone,) = Cumsum(1).reference(x[row : row + 1])
        np.testing.assert_array_equal(along.run([x])[0][row], alone[0])
        (alone,) = Cumsum(0).reference(x[row : row + 1].T)
        np.testing.assert_array_equal(across.run([x.T])[0][:, row], alone[:, 0])


def test_sums_by_index() -> None:
    """In ascending order of the indices' places, as in NumPy."""
    random = np.random.default_rng(0)
    op = Scatter(0, "sum")
    types = [Type((7, 70)), Type((50, 70), "i32"), Type((50, 70))]
    x, values = (random.standard_normal(types[i].shape).astype(np.float32) for i in (0, 2))
    places = random.integers(0, 7, (50, 70)).astype(np.int32)
    (found,) = outputs([single(op, types)], [[x, places, values]])
    assert_same(found)
    np.testing.assert_array_equal(found[0][0], op.reference(x, places, values)[0])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_floats(dtype: str) -> None:
    """Every one of 16 bits, and rounding of floats of all sizes."""
    every = np.arange(2**16, dtype=np.uint16)
    many = np.arange(0, 2**32, 40_009, dtype=np.uint64).astype(np.uint32).view(np.float32)
    nodes = [
        traced("widened", lambda x: f.astype(x, "f32"), [Type(every.shape, dtype)]),
        traced("rounded", lambda x: f.astype(x, dtype), [Type(many.shape)]),
    ]
    held = every.view(Type((), dtype).numpy_dtype)
    for found in outputs(nodes, [[held], [many]]):
        first, *others = (a[0].view(np.uint8) for a in found)
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_draws() -> None:
    nodes = [single(PhiloxUniform(3, 1, (5, 33), n), [Type((), "i32")], f"n{n}") for n in range(4)]
    for found in outputs(nodes, [[np.array(7, np.int32)]] * 4):
        assert_same(found)
