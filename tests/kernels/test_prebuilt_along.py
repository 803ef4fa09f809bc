"""Prebuilt running results and sorts: the bytes of the generated kernels."""

from __future__ import annotations

import numpy as np
import pytest

from graphc import functions as f
from graphc.base.target import Target
from graphc.ir import Node, Type
from graphc.kernels.lower import lower, prebuilt
from graphc.kernels.prebuilt.along import ELEMENTS
from graphc.ops import Cumprod, Cumsum, Logcumsumexp, Sort
from graphc.ops.fused import KernelNode
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.trace import Tensor, emit
from tests.kernels.harness import build, single, traced
from tests.kernels.prebuilt_twins import assert_same_bytes, twin, with_specials
from tests.ops.samples_order import ORDERS


@pytest.fixture(params=["", "avx2", "sse2"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setenv("GRAPHC_ISA", request.param)
    return cpu_target()


def known(node: Node) -> bool:
    """Whether there is a prebuilt function for a node of one op."""
    assert isinstance(node, KernelNode)
    (inner,) = node.op.body.nodes
    return not isinstance(inner.op, Logcumsumexp) and inner.inputs[0].type.dtype in ELEMENTS


def assert_same(nodes: list[Node], target: Target) -> None:
    random = np.random.default_rng(0)
    for built in build(nodes, target):
        other = twin(built, target)
        assert other is not None, built.kernel.name
        arrays = [
            (3 * random.standard_normal(v.type.shape)).astype(v.type.numpy_dtype)
            for v in built.node.inputs
        ]
        assert_same_bytes(built, other, arrays)
        assert_same_bytes(built, other, with_specials(arrays))


def test_samples(target: Target) -> None:
    """Along axes of every kind, both ways, of several pieces; with what only sorts do."""
    templates = ("prefix", "sort")
    nodes = [single(s.op, s.inputs) for s in ORDERS if s.op.own_template in templates]
    assert_same([node for node in nodes if known(node)], target)


def test_random_extents(target: Target) -> None:
    random = np.random.default_rng(target.lanes)
    nodes = []
    for _ in range(8):
        shape = tuple(int(n) for n in random.integers(1, (5, 40, 70)))
        axis, turned = int(random.integers(3)), bool(random.integers(2))
        dtype = str(random.choice(ELEMENTS))
        x = Type(shape, dtype)
        nodes.append(single(Cumsum(axis, turned), [x]))
        nodes.append(single(Cumprod(axis, not turned), [x]))
        nodes.append(single(Sort(axis, int(random.integers(1 + shape[axis])), turned), [x]))
    nodes += [
        single(Cumsum(axis), [Type(shape)]) for axis, shape in ((0, (9000, 3)), (1, (2, 20000)))
    ]
    nodes.append(single(Cumsum(0, reverse=True), [Type((17000,))]))
    assert_same(nodes, target)


def test_parts_of_arrays(target: Target) -> None:
    def parts(x: Tensor) -> Tensor:
        return emit(Cumsum(1), f.permute_dims(x[1:, :, 2], (1, 0)))

    def order(x: Tensor) -> Tensor:
        return f.argsort(x[:, ::2], axis=0)

    types = [Type((20, 35, 4))], [Type((50, 9))]
    assert_same([traced("parts", parts, types[0]), traced("order", order, types[1])], target)


def test_computed_elements_wait_for_their_kernel() -> None:
    target = cpu_target()
    computed = traced("computed", lambda x: emit(Cumsum(0), x * x), [Type((40, 3))])
    for node in (
        computed,
        single(Logcumsumexp(0), [Type((9,))]),
        single(Sort(0, 4), [Type((4,), "u8")]),
    ):
        assert prebuilt(node, lower(node, target), target) is None
