"""Blocks that are ordered by fences and atomic operations, and what is found where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.runtime.sim import LaunchError, Simulator
from graphc.runtime.sim.native import ORDERS
from tests.sim.playing import fetch, launch_twice, place, simulator, whole

BLOCKS, THREADS = 5, 64
X = np.arange(BLOCKS * THREADS, dtype=np.float32)
HEAD = """#include "cuda/shared/intrinsics.cuh"
__device__ unsigned drawn;
extern "C" __global__ void kernel(const float* x, float* y, float* z, unsigned* word) {
  __shared__ int last;
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, n = blockDim.x * gridDim.x;
"""
LAST = """y[i] = x[i];
__syncthreads();
if (t == 0) {
  __threadfence();
  last = atomicInc(COUNTER, gridDim.x - 1) == gridDim.x - 1;
  __threadfence();
}
__syncthreads();
if (last) for (int j = t; j < n; j += blockDim.x) z[j] = y[n - 1 - j];
"""
"""The block that is last to draw reads what all have written."""


@pytest.fixture(scope="module")
def device() -> Simulator:
    return simulator(check=True)


def play(device: Simulator, body: str, order: int, counter: str = "&drawn") -> np.ndarray:
    """What a kernel of this body leaves in z."""
    text = f"{HEAD}{body.replace('COUNTER', counter)}\n}}\n"
    x, word = place(device, X), place(device, np.zeros(1, np.uint32))
    y, z = device.mem_alloc(X.nbytes), device.mem_alloc(X.nbytes)
    own = whole(word, 4, "word")
    uses = {
        "reads": [whole(x, X.nbytes, "x"), own],
        "writes": [whole(z, X.nbytes, "z")],
        "scratch": [whole(y, X.nbytes, "y"), own],
    }
    launch_twice(device, text, order, (BLOCKS, THREADS), x, y, z, word, **uses)
    return fetch(device, z, X)


@pytest.mark.parametrize("order", ORDERS)
def test_the_last_block_sees_what_all_have_written(device: Simulator, order: int) -> None:
    np.testing.assert_array_equal(play(device, LAST, order), X[::-1])


FENCE = "  __threadfence();\n"
DRAWN = "atomicInc(COUNTER, gridDim.x - 1) == gridDim.x - 1"
BROKEN = {
    "no fence before": (f"{FENCE}  last", "  last", "with no barrier between"),
    "no fence behind": (f"1;\n{FENCE}", "1;\n", "with no barrier between"),
    "no barrier before": ("__syncthreads();\nif (t == 0)", "if (t == 0)", "with no barrier"),
    "no barrier behind": ("__syncthreads();\nif (last)", "if (last)", "of shared last, which"),
    "a warp's barrier": ("__syncthreads();\nif (t == 0)", "__syncwarp();\nif (t == 0)", "barrier"),
    "the fence of another thread": (
        f"{FENCE}  last",
        "  last",
        "with no barrier between",
    ),
    "a store behind the fence": ("  last =", "  y[i] = x[i];\n  last =", "with no barrier between"),
    "one too early": (f"== gridDim.x - 1;\n{FENCE}", f">= gridDim.x - 2;\n{FENCE}", "^kernel "),
    "a counter that is not set back": (
        DRAWN,
        "atomicAdd(COUNTER, 1u) == gridDim.x - 1",
        "leaves 5 in a variable that was 0, with which the next launch begins",
    ),
    "a counter that is read and written": (DRAWN, "++*COUNTER == gridDim.x", "^kernel "),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_found(device: Simulator, name: str, order: int) -> None:
    right, wrong, text = BROKEN[name]
    assert right in LAST
    body = LAST.replace(right, wrong, 1)
    if name.startswith("the fence of"):
        body = body.replace("y[i] = x[i];\n", f"y[i] = x[i];\nif (t == 1) {FENCE}", 1)
    with pytest.raises(LaunchError, match=text):
        play(device, body, order)


@pytest.mark.parametrize("order", ORDERS)
def test_a_counter_may_be_memory_of_the_device(device: Simulator, order: int) -> None:
    np.testing.assert_array_equal(play(device, LAST, order, "word"), X[::-1])
    body = LAST.replace(f"{FENCE}  last", "  last", 1)
    with pytest.raises(LaunchError, match="with no barrier between"):
        play(device, body, order, "word")


@pytest.mark.parametrize("order", ORDERS)
def test_counters_of_shared_memory_order_no_blocks(device: Simulator, order: int) -> None:
    """They are at one address for all blocks."""
    body = LAST.replace(DRAWN, "atomicAdd(&own, 1) < 9").replace("y[i]", "own = 0;\ny[i]", 1)
    with pytest.raises(LaunchError, match=r"of y, which|nobody has written|with no barrier"):
        play(device, f"__shared__ int own;\n{body}", order)
