"""Matrix products by a library: what is one, what cuBLASLt is asked for, and what it answers."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import CompileError
from graphc.ir import Node
from graphc.ir.state import aligned_empty
from graphc.kernels.cuda.libraries.call_kernel import call_kernel
from graphc.kernels.cuda.libraries.product import product_of
from graphc.kernels.program.calls import Product
from graphc.runtime.cuda.cublas import WORKSPACE, CublasLt
from tests.kernels.cuda_harness import traced
from tests.sim.playing import fetch, place, simulator
from tests.support.cublas import aligned, build_fake, close, given, spec


def turned(x: Any) -> Any:
    return graphc.permute_dims(x, (1, 0))


def short(*shape: int) -> Any:
    return spec(*shape, dtype="bfloat16")


def fused(fn: Any, *specs: Any, **options: Any) -> Node:
    """The one contraction of what `fn` is compiled to."""
    program = graphc.compile(fn, *specs, device="cuda", **options)
    (node,) = (n for n in program.graph.nodes if getattr(n.op, "template", "") == "contract")
    return node


def both(x: Any, w: Any, b: Any) -> Any:
    return graphc.relu(x @ w + b)


NODES = [
    traced("nn", graphc.matmul, spec(6, 8), spec(8, 12)),
    traced("nt", lambda a, b: graphc.matmul(a, turned(b)), spec(6, 8), spec(12, 8)),
    traced("tn", lambda a, b: graphc.matmul(turned(a), b), spec(8, 6), spec(8, 12)),
    traced("tt", lambda a, b: graphc.matmul(turned(a), turned(b)), spec(8, 6), spec(12, 8)),
    traced("bias", lambda x, w, b: x @ w + b, spec(6, 8), spec(8, 12), spec(12)),
    traced("relu", lambda x, w: graphc.relu(x @ w), spec(6, 8), spec(8, 12)),
    traced("both", lambda x, w, b: graphc.relu(b + x @ w), spec(6, 8), spec(8, 12), spec(1, 12)),
    traced("batched", graphc.matmul, spec(3, 2, 6, 8), spec(3, 2, 8, 12)),
    traced("shared", graphc.matmul, spec(3, 6, 8), spec(1, 8, 12)),
    fused(graphc.matmul, short(6, 8), short(8, 12)),
    fused(lambda x, w: graphc.relu(x @ w), spec(6, 8), spec(8, 12), precision="bfloat16"),
    fused(both, spec(6, 8), spec(8, 12), spec(12), precision="bfloat16"),
]
OTHERS = [
    traced("vector", graphc.matmul, spec(1, 8), spec(8, 12)),
    traced("doubles", graphc.matmul, *[spec(8, 8, dtype="float64")] * 2),
    traced("tanh", lambda x, w: graphc.tanh(x @ w), spec(6, 8), spec(8, 12)),
    traced("late_bias", lambda x, w, b: graphc.relu(x @ w) + b, *[spec(8, 8)] * 2, spec(8)),
    traced("bias_of_rows", lambda x, w, b: x @ w + b, spec(6, 8), spec(8, 12), spec(6, 1)),
    traced("residual", lambda x, w, r: x @ w + r, spec(6, 8), spec(8, 12), spec(6, 12)),
    fused(lambda x, w, b: (y := x @ w, y + b), spec(6, 8), spec(8, 12), spec(12)),
    fused(both, short(6, 8), short(8, 12), short(12)),
    fused(both, spec(6, 8), spec(8, 12), spec(12), precision="tf32"),
    traced("sliced", lambda x, w: x[:, 4:] @ w, spec(6, 12), spec(8, 12)),
    traced("backward", lambda x, w: x @ w[::-1], spec(6, 8), spec(8, 12)),
    traced("two_strides", graphc.matmul, spec(3, 2, 6, 8), spec(2, 8, 12)),
    traced(
        "padded", lambda x, w: graphc.conv2d(x, w, padding=1), spec(2, 4, 8, 8), spec(6, 4, 3, 3)
    ),
    traced("sums", lambda x: graphc.sum(x), spec(6, 8)),
]


def product(node: Node) -> Product:
    found = product_of(node)
    assert found is not None, f"{node.op.kernel} is a product"
    return found


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> CublasLt:
    return CublasLt(ctypes.CDLL(str(build_fake(tmp_path_factory.mktemp("cublas")))))


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.op.kernel)
def test_cublas_is_asked_for_what_the_node_computes(node: Node, library: CublasLt):
    prepared, arrays = library.prepare(product(node)), [aligned(a) for a in given(node)]
    assert prepared.workspaces == [WORKSPACE] * 3
    (expected,) = node.op.reference(*arrays)
    out, workspace = aligned(np.zeros_like(expected)), aligned_empty((WORKSPACE,), np.uint8)
    addresses = [a.ctypes.data for a in (*arrays, out, workspace)]
    for rank in range(3):
        out[...] = np.zeros_like(out)
        prepared.issue(rank, addresses, SimpleNamespace(handle=5))()
        close(out, expected)


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.op.kernel)
def test_the_simulated_library_computes_the_same(node: Node):
    device = simulator()
    arrays = given(node)
    (expected,) = node.op.reference(*arrays)
    places = [place(device, a) for a in (*arrays, np.zeros_like(expected))]
    stream = device.Stream(1)
    issue = device.products.prepare(product(node)).issue(0, [int(a) for a in places], stream)
    issue()
    stream.synchronize()
    close(fetch(device, places[-1], expected), expected)


@pytest.mark.parametrize("node", OTHERS, ids=lambda node: node.op.kernel)
def test_what_is_more_than_a_product_or_lies_otherwise_is_none(node: Node):
    assert product_of(node) is None


def test_operands_and_results_may_be_short_and_sums_are_not():
    kinds = [(p.a.dtype, p.b.dtype, p.d.dtype) for p in map(product, NODES[-3:])]
    assert kinds == [("bf16", "bf16", "bf16"), *[("bf16", "bf16", "f32")] * 2]


def test_an_algorithm_that_is_not_there_is_named(library: CublasLt):
    library._library.fake_proposals(1)
    try:
        prepared = library.prepare(product(NODES[0]))
        assert prepared.workspaces == [WORKSPACE]
        with pytest.raises(
            CompileError, match=r"^cuBLASLt 13\.2\.3 has no algorithm 2 for this product$"
        ):
            prepared.issue(1, [0, 0, 0, 0], SimpleNamespace(handle=1))
    finally:
        library._library.fake_proposals(3)


def test_what_the_library_does_not_take_is_an_error_with_its_status(library: CublasLt):
    prepared = library.prepare(product(NODES[0]))
    with pytest.raises(
        CompileError, match=r"^cuBLASLt 13\.2\.3: cublasLtMatmul failed with status 7$"
    ):
        prepared.issue(0, [64, 64, 64, 32], SimpleNamespace(handle=1))()


def test_a_kernel_of_a_library_says_what_it_is():
    node = NODES[6]
    kernel = call_kernel(node, product(node), "cuBLASLt 13.2.3", 1, WORKSPACE)
    assert kernel.note == (
        "a call of cuBLASLt 13.2.3, algorithm 2 of its heuristic, 8388608 bytes of workspace"
    )
    assert "f32[6, 12] (rows of 12) = relu(" in kernel.source and kernel.launches == ()
    other = call_kernel(node, product(node), "cuBLASLt 13.2.3", 0, WORKSPACE)
    assert other.canonical != kernel.canonical
