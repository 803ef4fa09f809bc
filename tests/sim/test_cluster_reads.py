"""Loads from the shared memory of another block of the cluster: what they give, and what is found
where they are wrong. tests/kernels/test_cuda_clusters.py has products."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.runtime.sim import LaunchError, Simulator
from graphc.runtime.sim.native import ORDERS
from tests.sim.playing import InOrder, fetch, packed, simulator, whole

HEAD = """#include "cuda/shared/bulk.cuh"
#include "cuda/shared/memory.cuh"
namespace graphc {
extern "C" __global__ void __launch_bounds__(64) __cluster_dims__(BLOCKS, 1, 1) kernel(float* y) {
  __shared__ __align__(16) float own[256];
  const int t = threadIdx.x, rank = cluster_rank(), next = (rank + 1) % BLOCKS;
  y += 256 * blockIdx.x;
  Run<float, 4> value = {};
"""
FILL = "for (int i = t; i < 256; i += 64) own[i] = 1000 * blockIdx.x + i;\n"
MEET = "cluster_arrive(); cluster_wait();\n"
RUN = "reinterpret_cast<const Run<float, 4>*>(own)"
READ = f"value = cluster_read({RUN} + t, next);\n"
STORE = "*(reinterpret_cast<Run<float, 4>*>(y) + t) = value;\n"
RIGHT = FILL + MEET + READ + STORE + MEET


@pytest.fixture
def device() -> Simulator:
    return simulator(check=True)


def play(device: Simulator, body: str, order: int, cluster: int, blocks: int = 8) -> np.ndarray:
    text = f"{HEAD}{body}\n}}\n}}\n".replace("BLOCKS", str(cluster))
    function = device.module_from_buffer(device.compile(text, "kernel")).get_function("kernel")
    device.scheduler.random = InOrder(order)
    y = np.empty((blocks, 256), np.float32)
    result = device.mem_alloc(y.nbytes)
    stream, writes = device.Stream(1), [whole(result, y.nbytes, "y")]
    function._launch_kernel(
        (blocks, 1, 1), (64, 1, 1), packed(result), 0, stream, reads=[], writes=writes
    )
    device.Context.synchronize()
    return fetch(device, result, y)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("cluster", [2, 4, 8])
def test_a_block_reads_what_the_next_has(device: Simulator, cluster: int, order: int) -> None:
    got = play(device, RIGHT, order, cluster)
    blocks = np.arange(8)
    after = blocks // cluster * cluster + (blocks + 1) % cluster
    np.testing.assert_array_equal(got, 1000 * after[:, None] + np.arange(256))


@pytest.mark.parametrize("order", ORDERS)
def test_memory_may_be_written_again_behind_a_barrier(device: Simulator, order: int) -> None:
    body = FILL + MEET + READ + MEET + "own[t] = 0;\n" + STORE + MEET
    np.testing.assert_array_equal(play(device, body, order, 2)[0], 1000 + np.arange(256))


WRONG = {
    "no barrier of the cluster": (
        FILL + "__syncthreads();\n" + READ + STORE + MEET,
        "(need not have begun|which nobody has written|with no barrier of the cluster between)",
    ),
    "an end too soon": (FILL + MEET + READ + STORE, "which has ended"),
    "stores behind the barrier": (
        FILL + MEET + READ + "own[t] = 0;\n" + STORE + MEET,
        "with no barrier of the cluster between",
    ),
    "stores behind the barrier, and one of the block": (
        FILL + MEET + READ + "__syncthreads(); own[t] = 0;\n" + STORE + MEET,
        "with no barrier of the cluster between",
    ),
    "no value": (MEET + READ + STORE + MEET, "which nobody has written"),
    "no wait": (
        FILL + "cluster_arrive();\n" + READ + "cluster_wait();\n" + STORE + MEET,
        "before it has waited for the barrier at which it arrived",
    ),
    "no such block": (RIGHT.replace("next)", "2)"), "names block 2, its cluster has none"),
    "no whole run": (
        RIGHT.replace("(own) + t", "(own + 1) + t"),
        "reads in its cluster 16 bytes at an address that 16 does not divide",
    ),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("what", WRONG)
def test_mistakes_are_found_in_every_order(device: Simulator, what: str, order: int) -> None:
    body, found = WRONG[what]
    with pytest.raises(LaunchError, match=found):
        play(device, body, order, 2)
