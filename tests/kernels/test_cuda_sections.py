"""Recurrent cells as CUDA: sections of a product in one launch, concats as stores by section."""

from __future__ import annotations

import re
from typing import Any

import pytest

import graphc
from graphc.kernels.lower import lower
from tests.kernels.cells import gru, lstm, lstm_backward, peephole
from tests.kernels.cuda_harness import (
    TARGET,
    build_device,
    traced,
)
from tests.sim.playing import assert_right_in_any_order
from tests.tools import first_quick, need_command


def node_of(cell: Any, n: int, h: int) -> Any:
    spec = graphc.spec
    state = spec((n, h))
    specs = {
        lstm: [state, state, spec((n, 4 * h)), spec((4 * h, h))],
        gru: [state, spec((n, 3 * h)), spec((3 * h, h)), spec((h,))],
        peephole: [state, state, spec((n, 4 * h)), spec((h, 4 * h)), spec((3 * h,))],
        lstm_backward: [state] * 4 + [spec((n, 4 * h))],
    }[cell]
    return traced(f"{cell.__name__}_{n}_{h}", cell, *specs)


CELLS = (lstm, gru, peephole, lstm_backward)
NODES = [node_of(cell, *size) for cell in CELLS for size in ((5, 1), (3, 7), (40, 24), (70, 33))]


def test_cells_of_any_size_are_right_in_any_order_of_threads():
    assert_right_in_any_order(NODES, 100)


def test_a_step_is_one_launch_that_overwrites_the_sums_it_came_from():
    for cell, xw in ((lstm, 2), (gru, 1)):
        kernel = lower(node_of(cell, 32, 256), TARGET)
        assert len(kernel.launches) == 1 and kernel.workspace == 0
        gates = {lstm: 2, gru: 1}[cell]
        assert (xw, gates) in kernel.inplace


def test_copies_of_a_section_do_not_reach_into_the_next_one():
    """Peephole's weight has its columns side by side: sections of 7 are copied one by one."""
    text = {h: lower(node_of(peephole, 8, h), TARGET).source for h in (7, 24)}
    assert re.findall(r"vector = (\d+)", text[7]) == ["1", "1"]
    assert re.findall(r"vector = (\d+)", text[24]) == ["4", "4"]


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_cells_stay_in_registers(arch: str, tmp_path):
    sizes = ((256, 64), (32, 256), (32, 1024))
    kernels = [lower(node_of(cell, *size), TARGET) for cell in CELLS for size in sizes]
    usage = build_device(kernels, tmp_path, need_command("nvcc"), arch)
    assert all(u.spilled == 0 and u.shared <= 48 * 1024 for u in usage.values()), usage
