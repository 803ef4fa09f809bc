"""Attention by tensor cores: what each dtype rounds, in the simulator, on registers and on the CPU
against the op's meaning; and what nvcc makes of heads of real models."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphc.ir import Node
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.lower import lower
from graphc.runtime.sim.native import BACKWARD, FORWARD
from tests.kernels.cuda_harness import TARGET, build_device
from tests.kernels.harness import build
from tests.sim.playing import Played, simulator
from tests.support.cuda_attend_tensor import (
    CASES,
    MODELS,
    UNIT,
    arrays_of,
    assert_near,
    node_of,
)
from tests.tools import first_quick, need_command

SMALL = [name for name in CASES if name not in MODELS]
SOME = [("aligned", "tf32"), ("aligned", "bf16"), ("odd", "f16"), ("grouped", "tf32")]
ALL = SOME + [case for case in itertools.product(SMALL, UNIT) if case not in SOME]


def large_nodes() -> list[Node]:
    return [node_of(n, d, g) for n in MODELS for d in ("tf32", "bf16") for g in (False, True)]


def text_of(node: Node) -> str:
    return lower(node, TARGET).source


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("case", first_quick(4, ALL), ids="-".join)
def test_tensor_cores_compute_what_the_op_means(case: tuple[str, str], gradient: bool) -> None:
    """Checked for races, with threads and blocks in both orders, to the same bits."""
    need_command("g++", "clang++")
    name, dtype = case
    node = node_of(name, dtype, gradient)
    header = "attend_tensor_gradient.cuh" if gradient else "attend_tensor.cuh"
    assert (header in text_of(node)) == (name != "too wide")
    played, arrays = Played(simulator(check=True), [node]), arrays_of(node)
    ahead, back = (played.run(node, arrays, order) for order in (FORWARD, BACKWARD))
    assert_near(node, arrays, ahead, dtype)
    for a, b in zip(ahead, back, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_blocks_of_one_launch_where_these_are_alike(name: str) -> None:
    """Those of heads of 128 features have fewer threads for keys than for queries, and those of
    144 features no tensor cores."""
    launches = lower(node_of(name, "tf32", True), TARGET).launches
    apart = name in ("wide", "d128", "too wide")
    assert [grid.symbol.rpartition("_")[2] for grid in launches] == (
        ["key", "query"] if apart else ["kernel"]
    )


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("dtype", UNIT)
def test_registers_round_weights_too(dtype: str, gradient: bool) -> None:
    """Those of the CPU, and of a GPU whose operands are of float32 in memory."""
    node = node_of("dropped", dtype, gradient, reads=False)
    arrays = arrays_of(node)
    assert "attend.cuh" in text_of(node)
    (built,) = build([node])
    for got in (Played(simulator(), [node]).run(node, arrays), built.run(arrays)):
        assert_near(node, arrays, got, dtype)
        (inner,) = node.op.body.nodes  # type: ignore[attr-defined]
        exact = replace(inner.op, rounded="").reference(*arrays)
        assert max(float(np.abs(a - b).max()) for a, b in zip(got, exact, strict=True)) > 2e-6


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_heads_of_real_models_fit_a_multiprocessor(arch: str, tmp_path: Path) -> None:
    compiler = need_command("nvcc")
    kernels = [lower(n, TARGET) for n in large_nodes()]
    usage = build_device(kernels, tmp_path, compiler, arch)
    assert {symbol for symbol, u in usage.items() if u.spilled} == set()
    for kernel in kernels:
        assert all(grid.shared_bytes <= GPU.block_shared for grid in kernel.launches)
        assert "tensor cores" in kernel.note
