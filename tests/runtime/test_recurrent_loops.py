"""Loops of recurrent cells, a package's and a user's, in every precision: how many nodes of a graph
their training steps take, and that the bits are the reference's however they are played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base import target
from graphc.ops.pointwise.bf16 import nearest_bf16
from graphc.ops.pointwise.tf32 import nearest_tf32
from graphc.runtime.cuda.compile import compile_cuda
from graphc.runtime.plan.plan import Launch, Plan, RepeatedParts
from graphc.runtime.plan.unroll import unrolled
from tests.support.recurrent_loops import CELLS, step_of
from tests.tools import first_quick, need_nvrtc

STEPS = 5


def nodes_of(plan: Plan) -> int:
    """The nodes of the graph that a GPU plays, each joined launch as one."""
    inside = {n for run in plan.joined for n in range(run.first, run.stop)}
    alone = [x.step for x in unrolled(plan) if x.number not in inside]
    launches = [len(plan.kernels[s.kernel].launches) if isinstance(s, Launch) else 1 for s in alone]
    return sum(launches) + len(plan.joined)


def loops(plan: Plan) -> list[RepeatedParts]:
    return [part for run in plan.joined for part in run.parts if isinstance(part, RepeatedParts)]


NODES = {
    ("LSTM", 64, "float32"): 9,
    ("LSTM", 64, "tf32"): 14,
    ("LSTM", 64, "bfloat16"): 13,
    ("LSTM", 512, "float32"): 26,
    ("LSTM", 512, "tf32"): 28,
    ("LSTM", 512, "bfloat16"): 32,
    ("GRU", 64, "float32"): 11,
    ("GRU", 64, "tf32"): 13,
    ("GRU", 64, "bfloat16"): 14,
    ("GRU", 512, "float32"): 26,
    ("GRU", 512, "tf32"): 29,
    ("GRU", 512, "bfloat16"): 37,
    ("LSTM", 1024, "bfloat16"): 28,
    ("GRU", 1024, "bfloat16"): 35,
    ("Peephole", 64, "float32"): 11,
    ("Peephole", 64, "tf32"): 9,
    ("Peephole", 64, "bfloat16"): 9,
    ("Peephole", 512, "float32"): 26,
    ("Peephole", 512, "tf32"): 24,
    ("Peephole", 512, "bfloat16"): 26,
    ("Gated", 64, "float32"): 3,
    ("Gated", 64, "tf32"): 9,
    ("Gated", 64, "bfloat16"): 11,
    ("Gated", 512, "float32"): 15,
    ("Gated", 512, "tf32"): 18,
    ("Gated", 512, "bfloat16"): 20,
    ("Cut", 64, "float32"): 3,
    ("Cut", 512, "float32"): 15,
    ("Cut", 512, "tf32"): 18,
    ("Cut", 512, "bfloat16"): 20,
    ("Whole", 64, "float32"): 3,
    ("Whole", 512, "float32"): 16,
    ("Whole", 512, "tf32"): 19,
    ("Whole", 512, "bfloat16"): 21,
    ("Normed", 64, "float32"): 1,
    ("Normed", 512, "float32"): 17,
    ("Normed", 512, "tf32"): 20,
    ("Normed", 512, "bfloat16"): 23,
}
"""By width and precision; an LSTM and a GRU have two layers."""
SIZES = {64: (256, 30), 512: (64, 64), 1024: (32, 50)}
"""Batch and steps, by width."""


@pytest.mark.parametrize(("case", "nodes"), NODES.items(), ids=lambda x: str(x))
def test_how_many_nodes_a_step_takes(case: tuple[str, int, str], nodes: int) -> None:
    cell, width, precision = case
    step, _ = step_of(cell, "cuda", width, *SIZES[width], 2, precision=precision)
    assert step.plan is not None
    assert nodes_of(step.plan) <= nodes
    assert len(loops(step.plan)) == (4 if cell in ("LSTM", "GRU") else 2)


PLAYED = [
    (cell, precision, size)
    for size in [(32, 16), (36, 40), (33, 9), (81, 20)]
    for precision in ["bfloat16", "tf32", "float32"]
    for cell in CELLS
    if precision == "float32" or size[0] < 81
]
"""Cell, precision, width and batch. The first width has blocks that own rows; the last one weights
that blocks hold in float32 too, but for the gated cell's."""


@pytest.mark.parametrize("case", first_quick(len(CELLS), PLAYED), ids=str)
def test_the_bits_are_the_same_however_it_is_played(
    case: tuple[str, str, tuple[int, int]], clean_environment: pytest.MonkeyPatch
) -> None:
    """Joined, apart, on two streams and on four; and what the reference means by it."""
    clean_environment.setitem(target.KINDS, "sim", target.GPU)
    clean_environment.setenv("GRAPHC_CHECK", "race")
    cell, precision, (width, batch) = case
    random = np.random.default_rng(0)
    x, y = (random.standard_normal((STEPS, batch, n)).astype(np.float32) for n in (width, 1))
    ways: list[tuple[str, dict[str, Any]]] = [
        ("sim", {}),
        ("sim", {"disable": ("join_launches",)}),
        ("sim", {"streams": 2}),
        ("sim", {"streams": 4}),
        ("reference", {}),
    ]
    losses, states = [], []
    for device, options in ways:
        step, model = step_of(cell, device, width, batch, STEPS, precision=precision, **options)
        if not losses and (precision != "float32" or width == 32 or (width, cell) == (81, "LSTM")):
            assert step.plan is not None and loops(step.plan)
        losses.append([float(step(x, y)) for _ in range(2)])
        states.append(model.state_dict())
    assert losses[0] == losses[1] == losses[2] == losses[3]
    np.testing.assert_allclose(losses[0], losses[4], rtol=1e-3)
    for name, value in states[0].items():
        assert all(np.array_equal(value, state[name]) for state in states[1:4]), name
        np.testing.assert_allclose(value, states[4][name], atol=1e-3)


@pytest.mark.parametrize("size", [(16, 32), (20, 162)])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_operands_are_rounded_where_they_are_read(
    precision: str, size: tuple[int, int], clean_environment: pytest.MonkeyPatch
) -> None:
    """Whole numbers of more bits than are multiplied in less than float32, by blocks that own rows
    and those that hold columns: sums are exact."""
    clean_environment.setitem(target.KINDS, "sim", target.GPU)
    rounds: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "float32": np.array,
        "tf32": nearest_tf32,
        "bfloat16": nearest_bf16,
    }
    nearest = rounds[precision]
    rows, k = size
    random = np.random.default_rng(k)
    h = random.integers(-5000, 5000, (rows, k)).astype(np.float32)
    w = random.integers(-1, 2, (k, k)) * (random.random((k, k)) < 12 / k)
    w = w.astype(np.float32)

    def turned(h: graphc.Tensor, w: graphc.Tensor) -> graphc.Tensor:
        def body(h: graphc.Tensor, _: graphc.Tensor) -> tuple[graphc.Tensor, graphc.Tensor]:
            return (graphc.matmul(h, graphc.permute_dims(w, (1, 0))) * -1.0,) * 2

        return graphc.scan(body, h, np.zeros(2, "f4"))[1]

    specs = graphc.spec(h.shape), graphc.spec(w.shape)
    program = graphc.compile(turned, *specs, device="sim", precision=precision)
    assert program.plan is not None
    (kernel,) = (x for x in program.plan.kernels.values() if x.resident_bytes)
    assert ("own" in kernel.choice) == (size == (16, 32))
    first, second = program(h, w)
    assert np.array_equal(first, -nearest(h) @ w.T)
    assert np.array_equal(first, -h @ w.T) == (precision == "float32")
    assert np.array_equal(second, -nearest(first) @ w.T)


def test_what_no_block_holds_is_rounded_as_it_is_read(
    clean_environment: pytest.MonkeyPatch,
) -> None:
    """More columns than all blocks have, and more of k than one holds: by a tile of each kind."""
    random = np.random.default_rng(0)
    h = random.integers(-5000, 5000, (64, 64)).astype(np.float32)
    a, b = random.integers(-1, 2, (2, 64, 4 * 2113)).astype(np.float32)

    def turned(h: graphc.Tensor, a: graphc.Tensor, b: graphc.Tensor) -> graphc.Tensor:
        def body(h: graphc.Tensor, _: graphc.Tensor) -> tuple[graphc.Tensor, graphc.Tensor]:
            wide = graphc.maximum(graphc.matmul(h, a), 0.0)
            return (graphc.matmul(wide, graphc.permute_dims(b, (1, 0))) / 128.0,) * 2

        return graphc.scan(body, h, np.zeros(1, "f4"))[1]

    specs = [graphc.spec(x.shape) for x in (h, a, b)]
    program = graphc.compile(turned, *specs, device="sim", precision="bfloat16")
    assert program.plan is not None and not any(
        x.resident_bytes for x in program.plan.kernels.values()
    )
    texts = program.kernels.values()
    assert all("element = as_bfloat" in x for x in texts if "struct Problem" in x)
    assert any("TensorCores<" in x for x in texts)
    wide = np.maximum(nearest_bf16(h) @ a, 0)
    assert np.array_equal(program(h, a, b)[0], nearest_bf16(wide) @ b.T / 128)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [(16, 32), (20, 130)])
def test_floats_of_two_bytes_are_read_as_they_lie(
    dtype: str, size: tuple[int, int], clean_environment: pytest.MonkeyPatch
) -> None:
    clean_environment.setitem(target.KINDS, "sim", target.GPU)
    rows, k = size
    random = np.random.default_rng(k)
    h = random.integers(-1, 2, (rows, k)).astype(np.float32)
    w = (random.integers(-1, 2, (k, k)) * (random.random((k, k)) < 12 / k)).astype(np.float32)

    def turned(h: graphc.Tensor, w: graphc.Tensor) -> graphc.Tensor:
        h, w = graphc.astype(h, dtype), graphc.astype(w, dtype)

        def body(h: graphc.Tensor, _: graphc.Tensor) -> tuple[graphc.Tensor, graphc.Tensor]:
            return (graphc.matmul(h, graphc.permute_dims(w, (1, 0))),) * 2

        return graphc.astype(graphc.scan(body, h, np.zeros(2, "f4"))[1], "float32")

    specs = graphc.spec(h.shape), graphc.spec(w.shape)
    program = graphc.compile(turned, *specs, device="sim")
    assert program.plan is not None and any(x.resident_bytes for x in program.plan.kernels.values())
    first, second = program(h, w)
    assert np.array_equal(first, h @ w.T) and np.array_equal(second, h @ w.T @ w.T)
    assert np.abs(second).max() <= 256


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
@pytest.mark.parametrize("case", first_quick(2, sorted(NODES, key=lambda x: x[2])), ids=str)
def test_no_loop_spills(case: tuple[str, int, str], arch: str) -> None:
    need_nvrtc()
    cell, width, precision = case
    step, _ = step_of(cell, "cuda", width, *SIZES[width], precision=precision)
    assert step.plan is not None and loops(step.plan)
    for run in step.plan.joined:
        (used,) = compile_cuda(run.kernel.source, run.kernel.name, arch).usage.values()
        assert used.spilled == 0
