"""What threads do together, on the simulated device: each function against what CUDA says of it, in
every order of threads and in both builds."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.runtime.sim.module import Module
from graphc.runtime.sim.native import ORDERS
from tests.sim.playing import InOrder, fetch, packed, place, simulator

VALUES = {
    "up": "__shfl_up_sync(0xffffffffu, x[t], 3)",
    "down": "__shfl_down_sync(0xffffffffu, x[t], 3)",
    "exchange": "__shfl_xor_sync(0xffffffffu, x[t], 5)",
    "broadcast": "__shfl_sync(0xffffffffu, x[t], 9)",
    "within_eight": "__shfl_down_sync(0xffffffffu, x[t], 6, 8)",
    "doubles": "static_cast<int>(2 * __shfl_xor_sync(0xffffffffu, x[t] + 0.5, 1))",
    "ballot": "static_cast<int>(__ballot_sync(0xffffffffu, x[t] % 3 == 0))",
    "any": "__any_sync(0xffffffffu, lane == 40) + 2 * __any_sync(0xffffffffu, lane == 4)",
    "all": "__all_sync(0xffffffffu, lane < 31) + 2 * __all_sync(0xffffffffu, lane < 32)",
    "half": "lane < 16 ? __shfl_xor_sync(0xffffu, x[t], 1) : -1",
    "count": "__syncthreads_count(x[t] % 5 == 0)",
    "both": "__syncthreads_and(t < 63) + 2 * __syncthreads_and(t < 64)",
    "either": "__syncthreads_or(t == 70) + 2 * __syncthreads_or(t == 7)",
    "bits": "__popc(t) + 100 * __ffs(t) + 10000 * __clz(t)",
}
"""What one thread of each kernel stores; `t` is its number, `lane` that in its warp."""

WHOLE = """
// Each lane gets the payload of the lane that lies opposite.
struct Payload { int mine, opposite; };
void swap_all(void** lanes) {
  for (int i = 0; i < 32; i++)
    static_cast<Payload*>(lanes[i])->opposite = static_cast<Payload*>(lanes[31 - i])->mine;
}
extern "C" __global__ void opposite(const int* x, int* y) {
  Payload payload{x[threadIdx.x], 0};
  graphc_sim_together(swap_all, &payload, __FILE__, __LINE__);
  y[threadIdx.x] = payload.opposite;
}

extern "C" __global__ void atomics(const int* x, int* y) {
  __shared__ int s[4];
  const int t = threadIdx.x;
  if (t < 4) s[t] = t == 1 ? 1000 : 0;
  __syncthreads();
  atomicAdd(&s[0], x[t]);
  atomicMin(&s[1], x[t]);
  atomicMax(&s[2], x[t]);
  if (atomicCAS(&s[3], 0, 1) == 0) atomicExch(&s[3], 77);
  __syncthreads();
  y[t] = s[t % 4];
}

extern "C" __global__ void places(const int* x, int* y) {
  const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const int threads = blockDim.x * blockDim.y * blockDim.z;
  y[block * threads + thread] = x[0] + 1000 * block + thread;
}

extern "C" __global__ void vectors(const int* x, int* y) {
  const int4 four = reinterpret_cast<const int4*>(x)[threadIdx.x];
  reinterpret_cast<int4*>(y)[threadIdx.x] = make_int4(four.w, four.z, four.y, four.x);
}
"""


def text() -> str:
    kernels = [
        f'extern "C" __global__ void {name}(const int* x, int* y) {{\n'
        "  const int t = threadIdx.x;\n  [[maybe_unused]] const int lane = t % 32;\n"
        f"  y[t] = {value};\n}}\n"
        for name, value in VALUES.items()
    ]
    return "".join([*kernels, WHOLE])


@pytest.fixture(scope="module", params=[False, True], ids=["fast", "check"])
def module(request: pytest.FixtureRequest) -> Module:
    device = simulator(check=request.param)
    return device.module_from_buffer(device.compile(text(), "functions"))


def run(module: Module, name: str, grid=(1, 1, 1), block=(64, 1, 1)) -> np.ndarray:
    """What y holds in the end, which is the same for every order; x is 0, 1, 2, ..."""
    device, results = module._driver, []
    size = int(np.prod(grid) * np.prod(block)) * (4 if name == "vectors" else 1)
    for order in ORDERS:
        device.scheduler.random = InOrder(order)
        x, y = place(device, np.arange(size, dtype=np.int32)), device.mem_alloc(4 * size)
        stream = device.Stream(1)
        module.get_function(name)._launch_kernel(grid, block, packed(x, y), 0, stream)
        stream.synchronize()
        results.append(fetch(device, y, np.empty(size, np.int32)))
    assert all(np.array_equal(result, results[0]) for result in results)
    return results[0]


THREADS = np.arange(64)
EXPECTED = {
    "up": np.where(THREADS % 32 < 3, THREADS, THREADS - 3),
    "down": np.where(THREADS % 32 > 28, THREADS, THREADS + 3),
    "exchange": THREADS ^ 5,
    "broadcast": THREADS // 32 * 32 + 9,
    "within_eight": np.where(THREADS % 8 < 2, THREADS + 6, THREADS),
    "doubles": 2 * (THREADS ^ 1) + 1,
    "ballot": np.repeat(
        [sum(1 << i for i in range(32) if (32 * w + i) % 3 == 0) for w in (0, 1)], 32
    ),
    "any": np.full(64, 2),
    "all": np.full(64, 2),
    "half": np.where(THREADS % 32 < 16, THREADS ^ 1, -1),
    "count": np.full(64, 13),
    "both": np.full(64, 2),
    "either": np.full(64, 2),
    "opposite": THREADS // 32 * 32 + 31 - THREADS % 32,
    "atomics": np.tile([64 * 63 // 2, 0, 63, 77], 16),
    "bits": [
        bin(t).count("1") + 100 * ((t & -t).bit_length()) + 10000 * (32 - t.bit_length())
        for t in range(64)
    ],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_function_does_what_cuda_says(module: Module, name: str):
    expected = np.asarray(EXPECTED[name]).astype(np.uint32).view(np.int32)
    np.testing.assert_array_equal(run(module, name), expected)


def test_blocks_and_threads_have_three_axes(module: Module):
    got = run(module, "places", (3, 2, 2), (5, 4, 3))
    np.testing.assert_array_equal(got, [1000 * b + t for b in range(12) for t in range(60)])


def test_vectors_move_as_a_whole(module: Module):
    got = run(module, "vectors").reshape(-1, 4)
    np.testing.assert_array_equal(got, np.arange(256).reshape(-1, 4)[:, ::-1])
