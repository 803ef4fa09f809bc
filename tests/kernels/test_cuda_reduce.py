"""Bodies with reductions as CUDA: stages, rows and columns, splits over several launches."""

from __future__ import annotations

from typing import Any

import pytest

import graphc
from graphc.kernels.cuda.reduce.reduce import choose_shape
from graphc.kernels.loops.rows import find_rows, reduced_shape
from graphc.kernels.lower import lower
from graphc.kernels.program.access import Domain
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import Fused
from tests.kernels.cuda_harness import (
    TARGET,
    build_device,
    traced,
)
from tests.sim.playing import assert_right_in_any_order
from tests.support.cuda_reduce import NODES, spec
from tests.tools import first_quick, need_command

BY_NAME = {n.op.kernel: n for n in NODES if isinstance(n.op, Fused)}


def test_each_form_of_reduction_is_right_in_any_order_of_threads():
    assert_right_in_any_order(NODES)


def kernel_of(name: str) -> Kernel:
    return lower(BY_NAME[name], TARGET)


def shape_of(name: str) -> Any:
    return shape_for(BY_NAME[name].op)


def shape_for(op: Any) -> Any:
    assert isinstance(op, Fused)
    return choose_shape(find_rows(op.body, Domain(reduced_shape(op.body)), recompute=True))


def test_a_softmax_is_one_launch_of_three_loops():
    kernel = kernel_of("softmax_rows")
    assert len(kernel.launches) == 1
    assert kernel.source.count("rows.reduce<") == 2
    assert kernel.source.count("rows.each(") == 1
    assert kernel.workspace == 0


def test_long_rows_load_four_elements_before_they_store_one():
    text = kernel_of("softmax_long").source.partition("rows.each<")[2]
    loading, _, storing = text.partition("const Loads")
    assert "reinterpret_cast<const Run<" in loading
    assert "reinterpret_cast<const" not in storing
    assert "store<" in storing


@pytest.mark.parametrize(
    ("name", "expected", "rows", "bytes_of_row"),
    [
        ("softmax_split", ["kernel", "stage1", "finish"], 12, [4, 4]),
        ("normalised_split", ["kernel", "finish"], 3, [4 + 16]),
    ],
)
def test_few_channels_are_split_one_launch_per_stage_and_one_that_finishes(
    name: str, expected: list[str], rows: int, bytes_of_row: list[int]
):
    kernel = kernel_of(name)
    parts = [launch.symbol.removeprefix(f"{name}_") for launch in kernel.launches]
    assert parts == expected
    splits = shape_of(name).splits
    assert splits > 1
    assert all(launch.grid[1] == splits for launch in kernel.launches)
    assert kernel.workspace == sum(-(-splits * rows * n // 16) * 16 for n in bytes_of_row)


def test_split_statistics_may_overwrite_what_only_the_last_launch_reads():
    def moved(x: Any, running: Any, scale: Any) -> Any:
        mean = graphc.mean(x, axis=0)
        return (x - mean) * scale, running * 0.9 + mean * 0.1, scale + mean

    node = traced("moved", moved, spec(5000, 12), spec(12), spec(12))
    kernel = lower(node, TARGET)
    assert len(kernel.launches) == 2
    assert kernel.inplace == ((0, 0), (1, 1), (1, 2))


def test_activation_backward_and_bias_gradient_read_the_data_in_one_launch():
    kernel = kernel_of("bias_split")
    assert [launch.grid[1] > 1 for launch in kernel.launches] == [True, False]
    finish = kernel.source.partition("bias_split_finish")[2].partition("{")[2]
    assert "combine_partial" in finish
    assert "load<" not in finish


def test_neighbouring_threads_read_neighbours():
    assert shape_of("softmax_rows").rows_apart
    assert not shape_of("columns").rows_apart
    assert not shape_of("softmax_columns").rows_apart
    assert shape_of("everything").splits > 1


def test_values_for_each_row_do_not_decide_what_threads_read():
    """Three of them have neighbours along the reduced axis, but one element for each row."""

    def of_scale(dy: Any, x: Any, *rows: Any) -> Any:
        mean, root, shift = (graphc.reshape(row, (-1, 1)) for row in rows)
        return graphc.sum(dy * ((x - mean) * root + shift), axis=0)

    node = traced("of_scale", of_scale, *[spec(512, 96)] * 2, *[spec(512)] * 3)
    assert not shape_for(node.op).rows_apart


def test_a_result_per_row_may_not_overwrite_what_other_threads_of_the_row_read():
    def smoothed(x: Any, mean: Any) -> Any:
        now = graphc.sum(x - graphc.reshape(mean, (-1, 1)), axis=1)
        return mean * 0.9 + now * 0.1

    assert lower(traced("smoothed", smoothed, spec(9, 9), spec(9)), TARGET).inplace == ()


def test_softmax_may_overwrite_its_input_after_the_last_read():
    assert kernel_of("softmax_rows").inplace == ((0, 0),)


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_reductions_spill_nothing(arch: str, tmp_path):
    kernels = [lower(node, TARGET) for node in NODES]
    usage = build_device(kernels, tmp_path, need_command("nvcc"), arch)
    assert {symbol for symbol, u in usage.items() if u.spilled} == set()
