"""The check build finds each of the seeded bugs, and nothing in the same kernels without them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from graphc.runtime.sim import LaunchError, Simulator
from graphc.runtime.sim.native import FORWARD, ORDERS
from tests.sim.bugs import BUGS, Bug
from tests.sim.playing import InOrder, packed, place, simulator, whole

X = np.arange(256, dtype=np.float32)


def joined(wrong: bool) -> str:
    parts = [f'#line 1 "{bug.name}.cu"\n{bug.text(wrong)}' for bug in BUGS if not bug.alone]
    return "\n".join(['#include "cuda/shared/intrinsics.cuh"', *parts])


@pytest.fixture(scope="module")
def play() -> Callable[[Bug, bool, int], np.ndarray]:
    """Runs a kernel of a bug, wrong or right, in an order; what it writes."""
    device = simulator(check=True)
    modules = {w: device.module_from_buffer(device.compile(joined(w), "bugs")) for w in (0, 1)}

    def run(bug: Bug, wrong: bool, order: int) -> np.ndarray:
        module = modules[wrong]
        if bug.alone:
            module = device.module_from_buffer(device.compile(bug.text(wrong), bug.name))
        function = module.get_function(bug.name if wrong else f"{bug.name}_right")
        device.scheduler.random = InOrder(order)
        nbytes = 4 * bug.written
        x, y = place(device, X), device.mem_alloc(nbytes)
        function._launch_kernel(
            (bug.grid, 1, 1),
            (bug.block, 1, 1),
            packed(x, y),
            bug.dynamic,
            stream := device.Stream(1),
            reads=[whole(x, 1024, "x")],
            writes=[whole(y, nbytes, "y")],
        )
        stream.synchronize()
        result = np.empty(bug.written, np.float32)
        device.memcpy_dtoh(result, y)
        return result

    return run


@pytest.mark.parametrize("order", ORDERS, ids=["forward", "backward", "shuffled"])
@pytest.mark.parametrize("bug", BUGS, ids=[b.name for b in BUGS])
def test_the_bug_is_found(play: Callable, bug: Bug, order: int):
    with pytest.raises(LaunchError) as caught:
        play(bug, True, order)
    message = str(caught.value)
    assert message.startswith(f"{bug.name} ")
    assert bug.finding in message
    if "unwritten" not in message:
        assert f"{bug.name}.cu:" in message


@pytest.mark.parametrize("bug", BUGS, ids=[b.name for b in BUGS])
def test_nothing_is_found_once_it_is_repaired(play: Callable, bug: Bug):
    results = [play(bug, False, order) for order in ORDERS]
    assert all(np.array_equal(result, results[0]) for result in results)


def test_a_finding_names_kernel_block_thread_and_line():
    device: Simulator = simulator(check=True)
    text = 'extern "C" __global__ void copy(const float* x, float* y) {\n  y[0] = x[256];\n}\n'
    function = device.module_from_buffer(device.compile(text, "one")).get_function("copy")
    x, y, stream = place(device, X), device.mem_alloc(4), device.Stream(1)
    function._launch_kernel((1, 1, 1), (1, 1, 1), packed(x, y), 0, stream)
    with pytest.raises(LaunchError) as caught:
        stream.synchronize()
    assert str(caught.value) == (
        "copy reads 4 bytes, 0 bytes behind the end of 1024 bytes "
        "[block (0, 0, 0), thread (0, 0, 0), one.cu:2]"
    )


@pytest.mark.parametrize("check", [False, True])
def test_a_block_that_waits_for_another_is_ended(check: bool):
    device = simulator(check=check, seconds=0.1)
    text = """extern "C" __global__ void spin(volatile float* flag) {
      if (blockIdx.x != 0) *flag = 1;
      while (*flag != 1) {}
    }"""
    function = device.module_from_buffer(device.compile(text, "spin")).get_function("spin")
    flag, stream = place(device, np.zeros(1, np.float32)), device.Stream(1)
    device.scheduler.random = InOrder(FORWARD)
    function._launch_kernel((2, 1, 1), (1, 1, 1), packed(flag), 0, stream)
    with pytest.raises(LaunchError) as caught:
        stream.synchronize()
    assert str(caught.value) == (
        "spin has taken 100 ms of processor time and goes on "
        "[block (0, 0, 0), thread (0, 0, 0), spin.cu:3]"
    )
