"""Copies by TMA, barriers that count bytes, and clusters: kernels for the test, what they leave,
and what is found where they are wrong. tests/kernels/test_cuda_wgmma_bulk.py has products."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

from graphc.base.errors import RunError
from graphc.kernels.program.kernel import GridLaunch, TensorMap
from graphc.runtime.cuda.tensor_maps import encode_tiled
from graphc.runtime.cuda.tensor_maps import packed as arguments
from graphc.runtime.sim import LaunchError, LogicError, Simulator
from graphc.runtime.sim.native import ORDERS
from tests.sim.playing import InOrder, fetch, place, simulator, whole

LINES, LENGTH, PITCH = 70, 72, 80
"""Of a matrix of two-byte elements; from one line to the next."""
X = np.arange(LINES * PITCH, dtype=np.uint16).reshape(LINES, PITCH)
PANEL = 64
MAP = TensorMap(0, "bf16", 0, LENGTH, LINES, 2 * PITCH)

HEAD = """#include "cuda/shared/bulk.cuh"
extern __shared__ __align__(1024) unsigned char panels[];
namespace graphc {
extern "C" __global__ void __launch_bounds__(64) CLUSTER
kernel(const unsigned short* x, unsigned short* y, const __grid_constant__ TensorMap map) {
  const int t = threadIdx.x;
  BulkBarrier* const barrier = reinterpret_cast<BulkBarrier*>(panels + 8192);
  unsigned short* const panel = reinterpret_cast<unsigned short*>(panels);
  y += blockIdx.x * 4096;
"""
BEGIN = "if (t == 0) { phase_begin(barrier, 1); phase_fence(); }\n"
COPY = """if (t == 0) {
  phase_expect(barrier, 8192);
  bulk_copy<false>(panel, map, X0, Y0, barrier, 0);
}
"""
WAIT = "phase_wait(barrier, 0);\n"
STORE = "for (int i = t; i < 4096; i += 64) y[i] = panel[i];\n"
SYNC = "__syncthreads();\n"
EVERYWHERE = "cluster_arrive();\ncluster_wait();\n"
HALVES = """if (t == 0) {
  phase_expect(barrier, 8192);
  if (cluster_rank() == 1) bulk_copy<true>(panel, map, X0, Y0, barrier, 3);
}
"""


@pytest.fixture
def device() -> Simulator:
    return simulator(check=True)


def play(
    device: Simulator, body: str, order: int, x0: int = 0, y0: int = 0, **changed: int
) -> np.ndarray:
    """The panel that each block stores; `changed` are the extents of a launch, or its cluster."""
    blocks, cluster = changed.get("blocks", 1), changed.get("cluster", 1)
    dims = f"__cluster_dims__({cluster}, 1, 1)" * (cluster > 1)
    text = f"{HEAD}{body}\n}}\n}}\n".replace("X0", str(x0)).replace("Y0", str(y0))
    image = device.compile(text.replace("CLUSTER", dims), "kernel")
    function = device.module_from_buffer(image).get_function("kernel")
    device.scheduler.random = InOrder(order)
    y = np.empty((blocks, PANEL, PANEL), np.uint16)
    given, result = place(device, X), device.mem_alloc(y.nbytes)
    launch = GridLaunch("kernel", (blocks, 1, 1), (64, 1, 1), 8192 + 64, maps=(MAP,))
    packed = arguments([int(given), int(result)], launch, device)
    function._launch_kernel(
        launch.grid,
        launch.block,
        packed,
        launch.shared_bytes,
        device.Stream(1),
        reads=[whole(given, X.nbytes, "x")],
        writes=[whole(result, y.nbytes, "y")],
    )
    device.Context.synchronize()
    return fetch(device, result, y)


def panel(x0: int, y0: int) -> np.ndarray:
    """The part of x as it lies in shared memory: zeros outside, chunks permuted by their line."""
    padded = np.zeros((LINES + PANEL, LENGTH + PANEL), np.uint16)
    padded[:LINES, :LENGTH] = X[:, :LENGTH]
    part = padded[y0 : y0 + PANEL, x0 : x0 + PANEL].reshape(PANEL, 8, 8)
    line, chunk = np.indices((PANEL, 8))
    return part[line, chunk ^ line % 8].reshape(PANEL, PANEL)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("x0", "y0"), [(0, 0), (64, 0), (8, 64)])
def test_a_panel_is_permuted_and_zero_outside(device: Simulator, order: int, x0: int, y0: int):
    got = play(device, BEGIN + SYNC + COPY + WAIT + STORE, order, x0, y0)
    np.testing.assert_array_equal(got[0], panel(x0, y0))


@pytest.mark.parametrize("order", ORDERS)
def test_a_panel_comes_to_all_blocks_of_a_cluster(device: Simulator, order: int):
    body = BEGIN + EVERYWHERE + HALVES + WAIT + STORE + EVERYWHERE
    got = play(device, body, order, 8, 8, blocks=4, cluster=2)
    np.testing.assert_array_equal(got, [panel(8, 8)] * 4)


@pytest.mark.parametrize("order", ORDERS)
def test_what_one_thread_has_waited_for_others_know_behind_a_barrier(device: Simulator, order: int):
    body = BEGIN + SYNC + COPY + f"if (t == 0) {WAIT}" + SYNC + STORE
    np.testing.assert_array_equal(play(device, body, order)[0], panel(0, 0))


FILL = "for (int i = t; i < 4096; i += 64) panel[i] = 1;\n"
WRONG = {
    "no wait": (BEGIN + SYNC + COPY + STORE, "(which nobody has written|may be under way)"),
    "a wait of another warp": (
        BEGIN + SYNC + COPY + "if (t < 32) " + WAIT + STORE,
        "(which nobody has written|may be under way|without waiting for its barrier)",
    ),
    "no fence behind stores": (
        BEGIN + FILL + SYNC + COPY + WAIT + STORE,
        "copies over what thread \\d+ wrote, with no fence for the asynchronous proxy before the "
        "barrier",
    ),
    "stores under way": (BEGIN + SYNC + COPY + FILL + WAIT + STORE, "may be under way"),
    "two copies at once": (
        BEGIN + SYNC + COPY.replace("8192", "16384") + COPY + WAIT + STORE,
        "(copies over what another copy that is under way writes|has had all of its arrivals)",
    ),
    "no tensor map": (
        BEGIN + SYNC + COPY.replace("map,", "*reinterpret_cast<const TensorMap*>(x),") + WAIT,
        "copies by what is no tensor map",
    ),
    "a barrier twice": (BEGIN + BEGIN + SYNC, "begins a barrier again"),
    "no such block": (
        BEGIN + SYNC + "phase_arrive(barrier, 1);",
        "names block 1, its cluster has none",
    ),
    "a wait without an arrival": (
        "cluster_wait();",
        "waits for its cluster without having arrived",
    ),
    "arrivals without a wait": (
        "cluster_arrive(); cluster_arrive();",
        "arrives at the barrier of its cluster again before it has waited",
    ),
    "an end too soon": (
        BEGIN + SYNC + COPY,
        "lets block 0 end while a copy to its memory is under way",
    ),
    "a panel that begins anywhere": (
        BEGIN + SYNC + COPY.replace("panel,", "panel + 64,"),
        "copies a panel to 1024 bytes at an address that 1024 does not divide",
    ),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("what", WRONG)
def test_mistakes_are_found_in_every_order(device: Simulator, what: str, order: int):
    body, found = WRONG[what]
    with pytest.raises(LaunchError, match=found):
        play(device, body, order)


@pytest.mark.parametrize("order", ORDERS)
def test_stores_behind_a_fence_may_be_copied_over(device: Simulator, order: int):
    body = BEGIN + FILL + "fence_async_proxy();\n" + SYNC + COPY + WAIT + STORE
    np.testing.assert_array_equal(play(device, body, order)[0], panel(0, 0))


def test_a_grid_is_whole_clusters(device: Simulator):
    with pytest.raises(LogicError, match=r"^kernel: 3 blocks along x, of which 2 are a cluster$"):
        play(device, EVERYWHERE, 0, blocks=3, cluster=2)


def test_a_matrix_begins_and_steps_by_16_bytes(device: Simulator):
    wanted = "tensor_map: 16 has to divide the address 0x1008 and the pitch of 160 bytes"
    with pytest.raises(LogicError, match=f"^{re.escape(wanted)}$"):
        device.tensor_map(0x1008, MAP)


def test_an_old_driver_is_named():
    wanted = (
        "the driver has no cuTensorMapEncodeTiled: TMA cannot be used here, leave GRAPHC_TMA unset"
    )
    with pytest.raises(RunError, match=f"^{wanted}$"):
        encode_tiled(SimpleNamespace(), 0, MAP)
