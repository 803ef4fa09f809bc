"""No kernel grows beyond what a compiler builds in a second or so, however long a chain is."""

from __future__ import annotations

import numpy as np
import pytest

import graphc
from graphc.passes.fuse.places import LARGEST, MOST, size
from tests.tools import need_command

X = np.linspace(-1, 1, 300, dtype=np.float32)


def chain(x: graphc.Tensor, length: int) -> graphc.Tensor:
    for _ in range(length):
        x = graphc.sin(x) + 0.1
    return x


def sizes(program: graphc.Program) -> list[int]:
    return [sum(map(size, node.body.nodes)) for node in program.graph.nodes]


@pytest.mark.parametrize("length", [40, 120])
def test_a_long_chain_is_cut_into_kernels_of_one_text(length: int) -> None:
    need_command("g++", "clang++")
    program = graphc.compile(chain, graphc.spec(X.shape), length, device="cpu")
    assert (
        max(sizes(program)) <= LARGEST + MOST and len(sizes(program)) >= length * MOST / LARGEST / 2
    )
    assert len({kernel.canonical for kernel in program.plan.kernels.values()}) <= 3
    reference = graphc.compile(chain, graphc.spec(X.shape), length, device="reference")
    np.testing.assert_allclose(program(X), reference(X), rtol=1e-4, atol=1e-5)


def test_a_chain_behind_a_product_is_cut() -> None:
    need_command("g++", "clang++")

    def behind(x: graphc.Tensor, w: graphc.Tensor) -> graphc.Tensor:
        return chain(x @ w, 40)

    specs = graphc.spec((5, 6)), graphc.spec((6, 7))
    arrays = [np.full(s.shape, 0.1, np.float32) for s in specs]
    program = graphc.compile(behind, *specs, device="cpu")
    assert max(sizes(program)) <= LARGEST + MOST
    reference = graphc.compile(behind, *specs, device="reference")
    np.testing.assert_allclose(program(*arrays), reference(*arrays), rtol=1e-4, atol=1e-5)


def test_a_gradient_of_a_chain_is_cut_and_right() -> None:
    need_command("g++", "clang++")
    slope = graphc.grad(lambda x: graphc.sum(chain(x, 30)))
    program = graphc.compile(slope, graphc.spec(X.shape), device="cpu")
    assert max(sizes(program)) <= LARGEST + MOST
    reference = graphc.compile(slope, graphc.spec(X.shape), device="reference")
    np.testing.assert_allclose(program(X), reference(X), rtol=1e-3, atol=1e-6)
