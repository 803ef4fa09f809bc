"""Prebuilt attention: the bytes of the generated kernels, on every instruction set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphc import functions as f
from graphc.base.target import Target
from graphc.ir import Node, Type
from graphc.kernels.lower import lower, prebuilt
from graphc.ops import Attention, AttentionGrad
from graphc.ops.base import Array, Op
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.trace import Tensor, current_builder
from tests.kernels.harness import build, single, traced
from tests.kernels.prebuilt_twins import assert_same_bytes, twin, with_specials
from tests.kernels.test_attend import arrays_of, node_of
from tests.ops.samples_attention import ATTENTIONS


@pytest.fixture(params=["", "avx2", "sse2"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setenv("GRAPHC_ISA", request.param)
    return cpu_target()


def drawn(node: Node, seed: int) -> list[Array]:
    """Random inputs; logs and gradients near those of random queries and keys."""
    random = np.random.default_rng(seed)
    return [
        random.random(v.type.shape) < 0.7
        if v.type.dtype == "bool"
        else random.integers(0, 9, v.type.shape).astype(np.int32)
        if v.type.dtype == "i32"
        else (random.standard_normal(v.type.shape) * 0.8).astype(np.float32)
        for v in node.inputs
    ]


def assert_same(nodes: list[Node], target: Target, special: bool = True) -> None:
    for seed, built in enumerate(build(nodes, target)):
        other = twin(built, target)
        assert other is not None, built.kernel.name
        arrays = drawn(built.node, seed)
        assert_same_bytes(built, other, arrays)
        if special:
            assert_same_bytes(built, other, with_specials(arrays))


def random_nodes(count: int, seed: int) -> list[Node]:
    """Attention and gradients with random extents, masks, groups of heads, dropout and rounding."""
    random = np.random.default_rng(seed)
    nodes = []
    for _ in range(count):
        g, t, u = (int(x) for x in random.integers(1, (4, 90, 130)))
        n, h = int(random.integers(1, 3)), g * int(random.integers(1, 3))
        e, d = (int(x) for x in random.choice([1, 5, 8, 16, 19, 32, 48], 2))
        q, k, v = Type((n, h, t, e)), Type((n, g, u, e)), Type((n, g, u, d))
        shape = tuple(int(x) if random.random() < 0.6 else 1 for x in (n, h, t, u))
        dtype = str(random.choice(["none", "bool", "f32"]))
        more = [] if dtype == "none" else [Type(shape, dtype)]
        dropout = float(random.choice([0, 0, 0.3]))
        more += [Type((), "i32")] if dropout else []
        settings = (
            bool(random.random() < 0.4),
            float(random.random()),
            dropout,
            int(random.integers(2**32)),
            3,
            str(random.choice(["", "", "tf32", "bf16", "f16"])),
        )
        y, logs = Attention(settings[0], 1.0).infer(q, k, v)
        nodes += [
            single(Attention(*settings), [q, k, v, *more]),
            single(AttentionGrad(*settings), [q, k, v, y, logs, logs, *more]),
        ]
    return nodes


def test_samples(target: Target) -> None:
    nodes: list[Node] = [single(s.op, s.inputs) for s in ATTENTIONS]
    assert_same(nodes, target)


def test_random_attentions(target: Target) -> None:
    assert_same(random_nodes(6, target.lanes), target)


def test_blocks_of_every_number_of_registers(target: Target) -> None:
    """Also the last block, which has fewer, and steps of which some registers see nothing."""
    nodes = []
    for extent in (10, 30, 40, 64, 90, 197):
        nodes += node_of((1, 2, 1, extent, extent, 8, 24), causal=True)
    nodes += node_of((1, 2, 2, 33, 100, 16, 16), causal=True)
    nodes += node_of((1, 1, 1, 100, 33, 64, 64), causal=True)
    assert_same(nodes, target)


def part(op: Op, *inputs: Tensor) -> tuple[Tensor, ...]:
    return current_builder().emit(op, *inputs)


def test_operands_and_results_are_parts_of_arrays(target: Target) -> None:
    """Queries, keys and values of one array, gradients joined in one, a mask that is a constant,
    and results that nothing reads."""
    seen = np.random.default_rng(1).random((1, 1, 21, 21)) < 0.6

    def attend(x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = (f.permute_dims(x[:, :, i], (0, 2, 1, 3)) for i in range(3))
        return part(Attention(False, 0.3), q, k, v, f.asarray(seen))

    op = AttentionGrad(True, 8**-0.5)
    _, backward = node_of((2, 4, 4, 21, 21, 8, 8), causal=True)

    def joined(*inputs: Tensor) -> Tensor:
        gradients = part(op, *inputs)
        return f.concat([gradients[i] for i in (2, 0, 1)], axis=2)

    types = [v.type for v in backward.inputs]
    nodes = [traced("parts", attend, [Type((2, 21, 3, 4, 8))]), traced("joined", joined, types)]
    for which in range(3):
        nodes.append(traced("one", lambda *x, i=which: part(op, *x)[i], types))
    for which in range(2):
        function = lambda *x, i=which: part(Attention(True, 0.3), *x)[i]  # noqa: E731
        nodes.append(traced("one", function, types[:3]))
    assert_same(nodes, target)


def test_gradients_of_what_the_forward_kernel_gives(target: Target) -> None:
    for built in build(node_of((2, 3, 1, 50, 61, 16, 8)), target):
        other = twin(built, target)
        assert other is not None
        assert_same_bytes(built, other, arrays_of(built.node))


def test_offsets_into_operands(target: Target) -> None:
    """The description takes back what the executable adds to addresses."""
    for built in build(node_of((1, 2, 1, 19, 30, 8, 8)), target):
        kernel = replace(built.kernel, offsets=(64, 128, 192))
        found = prebuilt(built.node, kernel, target)
        assert found is not None
        other = twin(built, target)
        assert other is not None
        moved = replace(other, kernel=kernel, description=found.data)
        arrays = drawn(built.node, 0)
        for a, b in zip(built.run(arrays), moved.run(arrays), strict=True):
            assert a.tobytes() == b.tobytes()


def test_double_precision_waits_for_its_kernel(target: Target) -> None:
    for node in node_of((1, 1, 1, 5, 5, 4, 4), dtype="f64"):
        assert prebuilt(node, lower(node, target), target) is None
