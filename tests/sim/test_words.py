"""Blocks that wait for a word that another one puts, and what is found where they do so wrongly."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.runtime.sim import LaunchError, Simulator
from graphc.runtime.sim.native import ORDERS
from tests.sim.playing import fetch, launch_twice, packed, place, simulator, whole

BLOCKS, THREADS = 11, 64
X = np.arange(BLOCKS * THREADS, dtype=np.float32) % 7
HEAD = """#include "cuda/shared/intrinsics.cuh"
using namespace graphc;
__device__ unsigned counter;
extern "C" __global__ void kernel(const float* x, float* z, unsigned* word) {
  __shared__ float own[64];
  const unsigned t = threadIdx.x, block = blockIdx.x;
"""
TURNS = """own[t] = x[block * 64 + t];
if (t == 33) await_word(COUNTER, block);
__syncthreads();
z[63 - t] = (block ? z[63 - t] * 2 : 0) + own[63 - t];
__syncthreads();
if (t == 0) {
  device_fence();
  put_word(COUNTER, (block + 1) % gridDim.x);
}
"""
"""Each block doubles what those before it left in z, and adds its own."""


@pytest.fixture(scope="module")
def device() -> Simulator:
    return simulator(check=True)


def play(device: Simulator, body: str, order: int, counter: str = "&counter") -> np.ndarray:
    """What a kernel of this body leaves in z, launched twice."""
    text = f"{HEAD}{body.replace('COUNTER', counter)}\n}}\n"
    x, word = place(device, X), place(device, np.zeros(1, np.uint32))
    z = device.mem_alloc(4 * THREADS)
    own = whole(word, 4, "word")
    uses = {
        "reads": [whole(x, X.nbytes, "x"), own],
        "writes": [whole(z, 4 * THREADS, "z")],
        "scratch": [own],
    }
    launch_twice(device, text, order, (BLOCKS, THREADS), x, z, word, **uses)
    return fetch(device, z, X[:THREADS])


@pytest.mark.parametrize("counter", ["&counter", "word"])
@pytest.mark.parametrize("order", ORDERS)
def test_blocks_take_turns_in_every_order(device: Simulator, order: int, counter: str) -> None:
    """More of them than are put aside, with shared memory of their own."""
    want = np.zeros(THREADS, np.float32)
    for share in X.reshape(BLOCKS, THREADS):
        want = want * 2 + share
    np.testing.assert_array_equal(play(device, TURNS, order, counter), want)


WAIT, FENCE = "if (t == 33) await_word(COUNTER, block);\n", "  device_fence();\n"
PUT = "put_word(COUNTER, (block + 1) % gridDim.x);"
BROKEN = {
    "no wait": (WAIT, "", "with no barrier between"),
    "no barrier behind the wait": (f"{WAIT}__syncthreads();\n", WAIT, "with no barrier between"),
    "no barrier before the fence": ("__syncthreads();\nif (t == 0)", "if (t == 0)", "no barrier"),
    "no fence": (FENCE, "", "with no barrier between"),
    "a fence behind": (f"{FENCE}  {PUT}", f"  {PUT}\n{FENCE}", "with no barrier between"),
    "the fence of another thread": (
        f"if (t == 0) {{\n{FENCE}",
        "if (t == 1) device_fence();\nif (t == 0) {\n",
        "with no barrier between",
    ),
    "a store behind the fence": (PUT, f"z[0] = 1;\n{PUT}", "with no barrier between"),
    "one too early": (WAIT, WAIT.replace("block", "block - (block == 9)"), "z, which|cannot go on"),
    "a counter that is not set back": (
        PUT,
        "put_word(COUNTER, block + 1);",
        "leaves 11 in a variable that was 0, with which the next launch begins",
    ),
    "a turn that never comes": (
        WAIT,
        WAIT.replace("block", "block + 1"),
        "a block cannot go on: 1 threads wait at kernel.cu:8, 63 threads wait at kernel.cu:9",
    ),
    "turns from the last block on": (
        TURNS,
        TURNS.replace("block = blockIdx.x", "block").replace("block", "(10 - block)"),
        "waits at .* for block 10, of a higher number, which need not have begun",
    ),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_found(device: Simulator, name: str, order: int) -> None:
    right, wrong, text = BROKEN[name]
    assert right in TURNS
    with pytest.raises(LaunchError, match=text):
        play(device, TURNS.replace(right, wrong, 1), order)


def test_words_are_not_awaited_where_blocks_run_together(device: Simulator) -> None:
    text = f"{HEAD}{TURNS.replace('COUNTER', 'word')}\n}}\n"
    text = text.replace("__global__ void", "__global__ void __cluster_dims__(2, 1, 1)")
    function = device.module_from_buffer(device.compile(text, "kernel")).get_function("kernel")
    x, word = place(device, X), place(device, np.zeros(1, np.uint32))
    arguments = packed(x, device.mem_alloc(4 * THREADS), word)
    function._launch_kernel((2, 1, 1), (THREADS, 1, 1), arguments, 0, device.Stream(1))
    with pytest.raises(LaunchError, match=r"waits for a word at .* whose blocks run together"):
        device.Context.synchronize()
