"""Pointwise kernels whose threads move runs of neighbours at once: where, of what, and rightly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.kernels.cuda.shared.kernel_source import BLOCKS, THREADS
from graphc.kernels.lower import lower
from graphc.ops.fused import Fused
from graphc.runtime.cuda.compile import OPTIONS, parse_usage
from tests.kernels.cuda_harness import (
    TARGET,
    arrays_of,
    build_device,
    joined,
    traced,
)
from tests.sim.playing import assert_right_in_any_order
from tests.tools import need_command, need_nvrtc


def spec(*shape: int, dtype: str = "float32") -> Any:
    return graphc.spec(shape, dtype)


LARGE = (264, 1024)
ODD = (265, 1025)
"""Both are large launches; rows of the one are whole runs."""
DTYPES = ("float16", "bfloat16", "float64", "int64", "int8", "bool")


def halves(x: Any, y: Any) -> Any:
    """Two sections, so that one array is stored in two runs."""
    return graphc.concat([x + y, x * y], 1)


def sliced(start: int, shape: tuple[int, int] = LARGE) -> Any:
    wide = spec(shape[0], shape[1] + 8)
    fn = lambda x: x[:, start : start + shape[1]] * 2.0  # noqa: E731
    return traced(f"slice_{start}_{shape[1]}", fn, wide)


IN_RUNS = [
    traced("add", lambda x, y: x + y, spec(*LARGE), spec(*LARGE)),
    traced("row", lambda x, b: graphc.exp(x) * b, spec(*LARGE), spec(LARGE[1])),
    traced("column", lambda x, b: x * graphc.sqrt(b * b), spec(*LARGE), spec(LARGE[0], 1)),
    traced("scalar", lambda x, b: x * b, spec(*LARGE), spec()),
    traced("less", lambda x, y: (x < y, x * y), spec(*LARGE), spec(*LARGE)),
    traced("sections", halves, spec(264, 1024), spec(264, 1024)),
    traced("counted", lambda x: x + graphc.arange(1024, dtype="float32"), spec(*LARGE)),
    traced("filled", lambda b: graphc.zeros(LARGE) + b, spec(LARGE[0], 1)),
    traced("narrowed", lambda x, y: (x + y).astype("float16"), spec(*LARGE), spec(*LARGE)),
    traced("halved", lambda x: x.astype("float16"), spec(*LARGE, dtype="float64")),
    traced("some", lambda x, y: x + y, spec(66, 1024, dtype="float16"), spec(66, 1024)),
    sliced(4),
    *(
        traced(d, lambda x, y: graphc.where(x < y, x, y), *[spec(264, 2048, dtype=d)] * 2)
        for d in DTYPES
    ),
]
ONE_BY_ONE = [
    traced("odd", lambda x, b: x * b, spec(*ODD), spec(ODD[1])),
    traced("turned", lambda x: graphc.permute_dims(x, (1, 0)) + 1.0, spec(*LARGE)),
    traced("small", lambda x: x * 2.0, spec(8, 1024)),
    traced("padded", lambda x: graphc.pad(x, ((0, 0), (4, 4))) * 2.0, spec(264, 1016)),
    sliced(3),
    sliced(4, (265, 1022)),
]
PARTS = traced(
    "parts",
    lambda x, y, z: (x * 2.0, y * 2.0, z * 2.0),
    spec(*LARGE),
    spec(1025),
    spec(3, 1, 340),
)
NODES = [*IN_RUNS, *ONE_BY_ONE, PARTS]


def source(node: Any) -> str:
    return lower(node, TARGET).source


def numbers_of(node: Any) -> list[Any]:
    """Arrays for the node's inputs; a bfloat16 is the upper half of a normal float32."""
    arrays = arrays_of(node)
    random = np.random.default_rng(0)
    for i, value in enumerate(node.inputs):
        if value.type.dtype == "bf16":
            floats = random.standard_normal(value.type.shape).astype(np.float32)
            upper = (floats.view(np.uint32) >> 16).astype(np.uint16)
            arrays[i] = upper.view(value.type.numpy_dtype)
    return arrays


def name_of(node: Any) -> str:
    assert isinstance(node.op, Fused)
    return node.op.kernel


@pytest.mark.parametrize("node", IN_RUNS, ids=name_of)
def test_whole_aligned_rows_move_in_runs(node: Any):
    text = source(node)
    assert "each_run<" in text
    assert "each<" not in text
    assert text.count("*reinterpret_cast<Run<") >= 1


@pytest.mark.parametrize("node", ONE_BY_ONE, ids=name_of)
def test_other_elements_move_one_by_one(node: Any):
    assert "Run<" not in source(node)


def test_narrow_elements_have_longer_runs():
    """Also beside those of four bytes, not beside those of eight."""
    lengths = {name_of(n): 8 if "each_run<8>" in source(n) else 4 for n in IN_RUNS}
    assert {n for n, length in lengths.items() if length == 8} == {
        "float16",
        "bfloat16",
        "int8",
        "bool",
        "less",
        "narrowed",
    }


def test_a_value_that_ends_within_a_run_may_begin_within_one():
    """As a slice of a loop's stack would."""
    rows = BLOCKS * THREADS
    node = traced("end", lambda x, b: x + b[4:8], spec(rows, 4), spec(9))
    assert "Run<" not in source(node)
    node = traced("whole", lambda x, b: x + b[4:8], spec(rows, 4), spec(12))
    assert "each_run<4>" in source(node)


def test_parts_of_a_launch_share_a_functor_only_if_both_go_in_runs():
    text = source(PARTS)
    assert text.count("each_run<4>(") == 1
    assert text.count("each<4>(") == 1
    assert lower(PARTS, TARGET).launches[0].grid == (264 + 2 + 1, 1, 1)


def test_what_is_the_same_along_a_row_is_computed_once_per_run():
    before, _, loop = source(IN_RUNS[2]).partition("for (int step")
    assert "sqrt(" in before
    assert "sqrt(" not in loop


def test_sums_of_rows_in_place_are_read_before_they_are_stored():
    kernel = lower(IN_RUNS[0], TARGET)
    assert kernel.inplace == ((0, 0), (1, 0))


def test_runs_are_right_in_any_order_of_threads():
    assert_right_in_any_order(NODES, 1, numbers_of)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nvcc_takes_runs_and_spills_nothing(arch: str, tmp_path: Any):
    usage = build_device([lower(n, TARGET) for n in NODES], tmp_path, need_command("nvcc"), arch)
    assert usage
    assert {symbol for symbol, u in usage.items() if u.spilled} == set()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nvrtc_takes_runs_and_spills_nothing(arch: str, tmp_path: Any):
    compiler = need_nvrtc()
    kernels = [lower(n, TARGET) for n in NODES]
    text = tmp_path / "runs.cu"
    text.write_text(joined(kernels))
    _, log = compiler.compile(text, (*OPTIONS, f"-arch={arch}", *compiler.options))
    usage = parse_usage(log)
    assert set(usage) == {launch.symbol for k in kernels for launch in k.launches}
    assert {symbol for symbol, u in usage.items() if u.spilled} == set()
