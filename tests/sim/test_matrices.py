"""Tensor cores on the simulated device: what each lane holds and gets, as the PTX ISA's figures
have it, written here once more and apart from the simulator's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from graphc.base.dtypes import convert
from graphc.ir import BFLOAT16
from graphc.runtime.sim.module import Module
from graphc.runtime.sim.native import ORDERS
from tests.sim.playing import InOrder, fetch, packed, place, simulator

TEXT = """
#include "cuda/shared/rounding.cuh"

// Lane l names row l of the 32 rows of 8 elements; matrix j gets rows 8 j to 8 j + 7.
template <bool Turned>
__device__ void load(const unsigned* x, unsigned* y) {
  __shared__ __align__(16) unsigned rows[128];
  const int t = threadIdx.x;
  for (int i = 0; i < 4; i++) rows[32 * i + t] = x[32 * i + t];
  __syncthreads();
  unsigned got[4];
  graphc::load_matrices<Turned>(got, rows + 4 * t);
  for (int i = 0; i < 4; i++) y[4 * t + i] = got[i];
}
extern "C" __global__ void load_straight(const unsigned* x, unsigned* y) { load<false>(x, y); }
extern "C" __global__ void load_turned(const unsigned* x, unsigned* y) { load<true>(x, y); }

extern "C" __global__ void round_all(const float* x, float* y) {
  const int t = threadIdx.x;
  for (int i = t; i < 256; i += 32) y[i] = graphc::float_to_tf32(x[i]);
}
"""
PRODUCT = """
extern "C" __global__ void %s_product(const unsigned* a, const unsigned* b, float* c) {
  const int t = threadIdx.x;
  const unsigned x[4] = {a[4 * t], a[4 * t + 1], a[4 * t + 2], a[4 * t + 3]};
  const unsigned y[2] = {b[2 * t], b[2 * t + 1]};
  float sum[4];
  for (int i = 0; i < 4; i++) sum[i] = c[4 * t + i];
  graphc::multiply_%s(sum, x, y);
  for (int i = 0; i < 4; i++) c[4 * t + i] = sum[i];
}
"""
KINDS = ("halves", "bfloats", "tf32")
LANES = [(lane, lane // 4, lane % 4) for lane in range(32)]


@pytest.fixture(scope="module", params=[False, True], ids=["fast", "check"])
def module(request: pytest.FixtureRequest) -> Module:
    device = simulator(check=request.param)
    return device.module_from_buffer(
        device.compile("".join([TEXT, *(PRODUCT % (k, k) for k in KINDS)]), "matrices")
    )


def run(module: Module, name: str, *arrays: np.ndarray) -> np.ndarray:
    """The last of the arrays after one warp has run; equal for every order of threads."""
    device, results = module._driver, []
    for order in ORDERS:
        device.scheduler.random = InOrder(order)
        given, stream = [place(device, a) for a in arrays], device.Stream(1)
        module.get_function(name)._launch_kernel((1, 1, 1), (32, 1, 1), packed(*given), 0, stream)
        stream.synchronize()
        results.append(fetch(device, given[-1], arrays[-1]))
    assert all(np.array_equal(r.view(np.uint32), results[0].view(np.uint32)) for r in results)
    return results[0]


def bits(x: np.ndarray, kind: str) -> np.ndarray:
    """The bits of floats that the format has, as words."""
    if kind == "tf32":
        return x.view(np.uint32)
    dtype = BFLOAT16 if kind == "bfloats" else np.dtype(np.float16)
    return convert(x, dtype).view(np.uint16).astype(np.uint32)


def fragments(a: np.ndarray, b: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """The registers of all lanes for a[16][k] and b[k][8]."""
    u, v = bits(a, kind), bits(b, kind)
    x, y = np.zeros((32, 4), np.uint32), np.zeros((32, 2), np.uint32)
    for lane, g, t in LANES:
        if kind == "tf32":
            x[lane] = u[g, t], u[g + 8, t], u[g, t + 4], u[g + 8, t + 4]
            y[lane] = v[t, g], v[t + 4, g]
            continue
        corners = [(g, 2 * t), (g + 8, 2 * t), (g, 2 * t + 8), (g + 8, 2 * t + 8)]
        x[lane] = [u[r, c] | u[r, c + 1] << 16 for r, c in corners]
        y[lane] = [v[k, g] | v[k + 1, g] << 16 for k in (2 * t, 2 * t + 8)]
    return x, y


def sums(c: np.ndarray) -> np.ndarray:
    """The registers of all lanes for c[16][8]."""
    return np.array(
        [[c[g, 2 * t], c[g, 2 * t + 1], c[g + 8, 2 * t], c[g + 8, 2 * t + 1]] for _, g, t in LANES],
        np.float32,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_takes_each_element_from_its_lane(module: Module, kind: str):
    random, depth = np.random.default_rng(0), 8 if kind == "tf32" else 16
    # Small integers have exact sums; each format holds them.
    a, b, c = (
        random.integers(-8, 9, s).astype(np.float32) for s in [(16, depth), (depth, 8), (16, 8)]
    )
    x, y = fragments(a, b, kind)
    got = run(module, f"{kind}_product", x, y, sums(c))
    np.testing.assert_array_equal(got, sums(c + a @ b))


def test_a_product_of_tf32_does_not_look_at_low_bits(module: Module):
    random = np.random.default_rng(1)
    a, b = (random.standard_normal(s).astype(np.float32) for s in [(16, 8), (8, 8)])
    x, y = fragments(a, b, "tf32")
    zero, cut = sums(np.zeros((16, 8), np.float32)), np.uint32(0xFFFFE000)
    np.testing.assert_array_equal(
        run(module, "tf32_product", x, y, zero),
        run(module, "tf32_product", x & cut, y & cut, zero),
    )


@pytest.mark.parametrize("turned", [False, True])
def test_matrices_are_loaded_by_rows_or_by_columns(module: Module, turned: bool):
    elements = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    given, out = elements.reshape(128, 2).view(np.uint32).ravel(), np.zeros((32, 4), np.uint32)
    got = run(module, "load_turned" if turned else "load_straight", given, out)
    for (lane, g, t), j in itertools.product(LANES, range(4)):
        matrix = elements[j].T if turned else elements[j]
        first, second = matrix[g, 2 * t : 2 * t + 2].tolist()
        assert got[lane, j] == first | second << 16


def test_floats_are_rounded_to_ten_bits_of_fraction(module: Module):
    random = np.random.default_rng(2)
    x = random.integers(0, 2**32, 256, np.uint32).view(np.float32)
    x[:6] = 1 + 2.0**-11, 1 + 3 * 2.0**-11, np.inf, -np.inf, np.nan, np.finfo(np.float32).max
    got = run(module, "round_all", x, np.zeros(256, np.float32))
    normal = np.isfinite(x) & (np.abs(x) >= np.finfo(np.float32).tiny)
    wide = x[normal].astype(np.float64)
    unit = 2.0 ** (np.floor(np.log2(np.abs(wide))) - 10)
    want = np.rint(wide / unit) * unit
    inside = np.abs(want) < 2.0**128
    np.testing.assert_array_equal(got[normal][inside], want[inside])
    np.testing.assert_array_equal(got[:6], [1, 1 + 2.0**-9, np.inf, -np.inf, np.nan, np.inf])
    assert np.all(np.isnan(got) == np.isnan(x))
