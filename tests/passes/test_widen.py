"""Widen: arithmetic on f16 and bf16 becomes arithmetic on f32 between conversions."""

from __future__ import annotations

import numpy as np
import pytest

import graphc
from graphc import functions as f
from graphc.base.dtypes import convert
from graphc.base.errors import GraphError
from graphc.base.target import Target
from graphc.ir import NARROW, Graph, Type, verify
from graphc.ir.interpret import evaluate
from graphc.ops.fused import Fused
from graphc.ops.pointwise.widen import Widen
from graphc.passes.fuse.widen import widen
from graphc.passes.pipeline import AFTER_GRADIENT

CPU, GPU = Target("cpu"), Target("cuda", lanes=1, arch="sm_90a")


def ops(graph: Graph) -> list[str]:
    """The nodes as `op dtype(dtypes of the inputs)`."""
    return [
        f"{n.op.name} {n.outputs[0].type.dtype}({','.join(v.type.dtype for v in n.inputs)})"
        for n in graph.nodes
    ]


def traced(function, *shapes: tuple[int, ...], dtype: str = "bf16") -> Graph:
    return graphc.trace(function, *(graphc.spec(s, dtype) for s in shapes))


def fused(graph: Graph, target: Target) -> list[list[str]]:
    """The ops of each kernel after all passes."""
    for _, function in AFTER_GRADIENT:
        graph = function(graph, target)
    return [ops(n.op.body) for n in graph.nodes if isinstance(n.op, Fused)]


def test_an_op_computes_in_f32_and_rounds_once():
    assert ops(widen(traced(lambda x, y: f.exp(x) + y, (3,), (3,)), CPU)) == [
        "widen f32(bf16)", "exp f32(f32)", "cast bf16(f32)",
        "widen f32(bf16)", "widen f32(bf16)", "add f32(f32,f32)", "cast bf16(f32)",
    ]  # fmt: skip


def test_what_moves_elements_moves_two_bytes():
    def moves(x):
        return f.where(x > 0, f.concat([x[:, ::2], x[:, :2]], 1), f.flip(x, axis=1)[:, :5])

    graph = widen(traced(moves, (4, 5)), CPU)
    assert ops(graph) == [op for op in ops(graph) if not op.startswith(("slice f32", "where f32"))]
    assert sum(op.startswith(("widen", "cast")) for op in ops(graph)) == 2  # those of x > 0


def test_other_dtypes_are_left_alone():
    graph = traced(lambda x: f.exp(x) @ x, (3, 3), dtype="f32")
    assert widen(graph, CPU) is graph


def test_a_contraction_reads_two_bytes_where_its_kernel_can():
    graph = traced(lambda x, w: f.relu(x @ f.permute_dims(w, (1, 0))), (600, 6), (5, 6))
    (kernel,) = fused(graph, GPU)
    assert sorted(kernel) == [
        "cast bf16(f32)", "cast bf16(f32)", "matmul f32(f32,f32)", "permute_dims bf16(bf16)",
        "relu f32(f32)", "widen f32(bf16)", "widen f32(bf16)", "widen f32(bf16)",
    ]  # fmt: skip
    copy, kernel = fused(graph, CPU)  # the weight is read 600 times, the rows 5 times
    assert copy == ["cast f32(bf16)"]
    assert "permute_dims f32(f32)" in kernel  # the copy lies as the weight does
    assert sum(op == "widen f32(bf16)" for op in kernel) == 2


def test_an_epilogue_holds_its_roundings():
    """One kernel where f32 has one: roundings to the dtype do not keep ops apart."""

    def layer(x, w, b):
        return f.softmax(f.relu(x @ w + b), axis=1), f.tanh(x) * 2 + x

    shapes = (4, 6), (6, 5), (5,)
    counts = [len(fused(traced(layer, *shapes, dtype=d), GPU)) for d in ("f32", "bf16", "f16")]
    assert counts[0] == counts[1] == counts[2]


def test_a_cast_of_the_users_is_read_for_nothing_too():
    graph = traced(lambda w, x: f.astype(w, "f32")[None] * f.astype(x, "f32"), (5,), (4, 5))
    assert ops(widen(graph, CPU)).count("cast f32(bf16)") == 0


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "cuda"])
def test_the_meaning_stays_to_the_bit(dtype: str, target: Target):
    def function(x, w):
        y = f.max_pool2d(f.conv2d(x, w, padding=1), 2)
        return f.softmax(y, axis=1), f.sum(y, axis=(0, 2)), y[:, :, ::-1] / 3, f.mean(y)

    graph = traced(function, (2, 3, 6, 6), (4, 3, 3, 3), dtype=dtype)
    after = widen(graph, target)
    verify(after)
    random = np.random.default_rng(0)
    inputs = [convert(random.normal(size=v.type.shape), v.type.numpy_dtype) for v in graph.inputs]
    for got, want in zip(evaluate(after, inputs)[0], evaluate(graph, inputs)[0], strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))


def test_a_ramp_is_made_in_f32_and_rounded_once():
    graph = widen(traced(lambda x: f.arange(3, dtype="bf16") + x, (3,)), CPU)
    verify(graph)
    assert ops(graph)[:2] == ["iota f32()", "cast bf16(f32)"]


def test_only_floats_of_two_bytes_are_widened():
    with pytest.raises(GraphError) as error:
        Widen().infer(Type((2,)))
    assert str(error.value) == "widen: expected f16 or bf16, got f32[2]"
