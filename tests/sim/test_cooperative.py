"""Cooperative launches: blocks that wait for each other, and what is found where they do not."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.runtime.sim import LaunchError, LogicError, Simulator
from graphc.runtime.sim.native import ORDERS
from tests.sim.playing import InOrder, fetch, packed, place, simulator, whole

BLOCKS, THREADS = 6, 64
X = np.arange(BLOCKS * THREADS, dtype=np.float32)

HEAD = """#include "cuda/shared/intrinsics.cuh"
extern "C" __global__ void kernel(const float* x, float* y, float* z) {
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, n = blockDim.x * gridDim.x;
"""
PASSED = "y[i] = x[i];\n{barrier}\nz[i] = y[n - 1 - i];"
"""Each block reads what the one at the other end of the grid wrote."""
KEPT = """__shared__ float s[64]; s[t] = x[i];
y[i] = 0; graphc::grid_barrier(nullptr); z[i] = s[63 - t];"""
TURNS = """float own = x[i];
for (int turn = 0; turn < 5; turn++) {
  float* const to = turn % 2 ? z : y;
  to[i] = own;
  graphc::grid_barrier(nullptr);
  own = to[(i + blockDim.x) % n];
}
"""


@pytest.fixture(scope="module", params=[True, False], ids=["check", "fast"])
def device(request: pytest.FixtureRequest) -> Simulator:
    return simulator(check=request.param)


@pytest.fixture
def checked() -> Simulator:
    return simulator(check=True)


def play(
    device: Simulator, body: str, order: int, cooperative: bool = True, blocks: int = BLOCKS
) -> np.ndarray:
    """What a kernel of this body leaves in z."""
    module = device.module_from_buffer(device.compile(f"{HEAD}{body}\n}}\n", "kernel"))
    function = (module.get_cooperative if cooperative else module.get_function)("kernel")
    device.scheduler.random = InOrder(order)
    x, y, z = place(device, X), device.mem_alloc(X.nbytes), device.mem_alloc(X.nbytes)
    size = X.nbytes
    writes = [whole(y, size, "y"), whole(z, size, "z")]
    declared = {"reads": [whole(x, size, "x")], "writes": writes}
    function._launch_kernel(
        (blocks, 1, 1), (THREADS, 1, 1), packed(x, y, z), 0, device.Stream(1), **declared
    )
    device.Context.synchronize()
    return fetch(device, z, X)


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_see_what_others_wrote_before_the_barrier(device: Simulator, order: int) -> None:
    body = PASSED.format(barrier="graphc::grid_barrier(nullptr);")
    assert np.array_equal(play(device, body, order), X[::-1])


@pytest.mark.parametrize("order", ORDERS)
def test_shared_memory_is_kept_over_a_barrier(device: Simulator, order: int) -> None:
    expected = X.reshape(BLOCKS, THREADS)[:, ::-1].ravel()
    assert np.array_equal(play(device, KEPT, order), expected)


@pytest.mark.parametrize("order", ORDERS)
def test_a_loop_of_barriers(device: Simulator, order: int) -> None:
    """z holds what was written in the last turn but one, values that had moved three blocks on."""
    assert np.array_equal(play(device, TURNS, order), np.roll(X, -3 * THREADS))


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_barrier_is_a_race(checked: Simulator, order: int) -> None:
    with pytest.raises(LaunchError, match=r"byte .* with no barrier between"):
        play(checked, PASSED.format(barrier=""), order)


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_barrier_between_turns_is_a_race(checked: Simulator, order: int) -> None:
    body = TURNS.replace("turn % 2 ? z : y", "y") + "z[i] = own;"
    with pytest.raises(LaunchError, match="with no barrier between"):
        play(checked, body, order)


def test_blocks_that_wait_at_different_barriers(device: Simulator) -> None:
    body = """if (blockIdx.x == 2) {
  graphc::grid_barrier(nullptr);
} else {
  graphc::grid_barrier(nullptr);
}
y[i] = z[i] = 0;"""
    message = r"cannot go on: block 0 waits for all blocks at kernel.cu:7, block 2 at kernel.cu:5"
    with pytest.raises(LaunchError, match=message):
        play(device, body, ORDERS[0])


def test_blocks_that_end_while_others_wait(device: Simulator) -> None:
    body = "y[i] = z[i] = 0;\nif (blockIdx.x) graphc::grid_barrier(nullptr);"
    message = r"block 1 waits for all blocks at kernel.cu:5, where 1 blocks that have ended never"
    with pytest.raises(LaunchError, match=message):
        play(device, body, ORDERS[0])


def test_threads_of_a_block_that_wait_apart(device: Simulator) -> None:
    body = "if (t < 32) graphc::grid_barrier(nullptr);\nelse __syncthreads();\ny[i] = z[i] = 0;"
    with pytest.raises(LaunchError, match=r"waits at the barrier at .* while .* threads wait at"):
        play(device, body, ORDERS[0])


def test_a_launch_that_is_not_cooperative_cannot_wait(device: Simulator) -> None:
    body = PASSED.format(barrier="graphc::grid_barrier(nullptr);")
    with pytest.raises(LaunchError, match=r"waits for all blocks at kernel.cu:5, in a launch that"):
        play(device, body, ORDERS[0], cooperative=False)


def test_more_blocks_than_run_at_once(device: Simulator) -> None:
    with pytest.raises(LogicError, match=r"kernel: a cooperative launch of 9 blocks, of which 8"):
        play(device, "", ORDERS[0], blocks=9)


@pytest.mark.parametrize("order", ORDERS)
def test_the_first_threads_wait_for_each_other(device: Simulator, order: int) -> None:
    body = """__shared__ float s[32];
if (t < 32) s[t] = x[i];
if (t < 32) { graphc::part_barrier<32>(); y[i] = s[31 - t]; } else y[i] = 0;
__syncthreads();
z[i] = s[t % 32];"""
    expected = X.reshape(BLOCKS, 2, 32)[:, [0, 0]].ravel()
    assert np.array_equal(play(device, body, order), expected)


def test_a_thread_that_a_barrier_does_not_know(device: Simulator) -> None:
    with pytest.raises(LaunchError, match=r"of the first 32 threads, it is number \d+ of 64"):
        play(device, "graphc::part_barrier<32>();", ORDERS[1])
