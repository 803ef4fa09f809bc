"""Extents that 32 bits do not hold: an error that says so, never a wrong number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc
from graphc.base.errors import CompileError
from graphc.base.target import Target
from graphc.ir import Node, Type, Value
from graphc.kernels.lower import lower
from graphc.kernels.program.counts import MOST
from graphc.ops.attention import Attention
from graphc.ops.indexing import TakeGrad
from tests.kernels.cuda_harness import single, traced

CUDA, CPU = Target("cuda", lanes=1, arch="sm_90a"), Target("cpu", lanes=8)
BIG = 2**31


def contraction(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> Node:
    return traced("big", fn, *(graphc.spec(shape) for shape in shapes))


def attention(queries: int) -> Node:
    inputs = [
        Value(n, Type((1, 1, t, 8), "f32")) for n, t in zip("qkv", (queries, 4, 4), strict=True)
    ]
    return single(Attention(causal=False, scale=1.0), inputs, "big")


def gather_gradient(rows: int) -> Node:
    inputs = [Value("i", Type((4,), "i32")), Value("d", Type((4, 2), "f32"))]
    return single(TakeGrad(0, rows), inputs, "big")


NODES = {
    "rows": contraction(graphc.matmul, (BIG, 3), (3, 2)),
    "columns": contraction(graphc.matmul, (2, 3), (3, BIG)),
    "terms per sum": contraction(graphc.matmul, (2, BIG), (BIG, 2)),
    "batches": contraction(graphc.matmul, (BIG, 1, 3), (BIG, 3, 1)),
}
ON_BOTH = {
    "cummax": contraction(lambda x: graphc.cummax(x, 1)[0], (2, BIG)),
    "sort": contraction(lambda x: graphc.sort(x, axis=1), (2, BIG)),
}


@pytest.mark.parametrize("what", NODES)
def test_a_contraction_with_too_much_to_count_does_not_compile_on_a_gpu(what: str):
    with pytest.raises(CompileError) as caught:
        lower(NODES[what], CUDA)
    assert str(caught.value) == f"kernel big has {BIG} {what}, at most {MOST} can be counted"


def test_a_convolution_counts_the_rows_of_its_product():
    node = contraction(graphc.conv1d, (2**12, 1, 2**19 + 2), (4, 1, 3))
    with pytest.raises(CompileError, match=f"has {BIG} (rows|columns), at most"):
        lower(node, CUDA)


@pytest.mark.parametrize("target", [CUDA, CPU], ids=["cuda", "cpu"])
@pytest.mark.parametrize("what", ON_BOTH)
def test_places_along_an_axis_are_counted_on_every_device(what: str, target: Target):
    with pytest.raises(CompileError) as caught:
        lower(ON_BOTH[what], target)
    message = f"kernel big has {BIG} elements per row, at most {MOST} can be counted"
    assert str(caught.value) == message


@pytest.mark.parametrize("target", [CUDA, CPU], ids=["cuda", "cpu"])
def test_queries_of_an_attention_are_counted(target: Target):
    with pytest.raises(CompileError) as caught:
        lower(attention(BIG), target)
    assert str(caught.value) == f"kernel big has {BIG} queries, at most {MOST} can be counted"


def test_places_of_a_table_are_counted():
    with pytest.raises(CompileError) as caught:
        lower(gather_gradient(BIG), CUDA)
    assert str(caught.value) == f"kernel big has {BIG} places, at most {MOST} can be counted"


def test_a_launch_has_as_many_blocks_as_cuda_starts():
    with pytest.raises(CompileError) as caught:
        lower(contraction(graphc.exp, (2**45,)), CUDA)
    message = "takes 34359738368 blocks, a launch has at most 2147483647"
    assert str(caught.value) == f"kernel big {message}"


def test_what_just_fits_is_lowered():
    assert lower(contraction(graphc.matmul, (MOST, 3), (3, 2)), CUDA).launches
