"""Products of bytes four at a time: exact, at every width, by AVX512-VNNI, AMX's tiles or loops."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import ops
from graphc.ir import Type
from graphc.runtime.compilers import shared_objects
from graphc.runtime.compilers.shared_objects import FLAGS, KERNEL_HEADERS, find_compiler
from graphc.trace import emit
from tests.support.amx import disassembled
from tests.tools import first_quick

SOURCE = """#include "cpu/contract/contract_pairs.h"
using namespace graphc;
extern "C" void add(const uint8_t* x, const int8_t* y, uint32_t* sums, long n) {
  for (long i = 0; i < n; i += W) {
    vec<uint32_t> sum = load(sums + i);
    contract::add_bytes(sum, load((const uint32_t*)x + i), load((const uint32_t*)y + i));
    store(sums + i, sum);
  }
}
"""
SIZES = [
    (64, 64, 64),
    (17, 68, 77),
    (4, 100, 51),
    (20, 36, 24),
    (9, 4, 5),
    (40, 160, 129),
    (70, 132, 200),
]
"""Rows, terms of a sum and columns."""


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    target = replace(
        shared_objects.cpu_target(), lanes=16, multiplies_pairs=True, multiplies_tiles=True
    )
    monkeypatch.setattr(shared_objects, "cpu_target", lambda: target)


def operands(m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """u8[m, k] and i8[n, k], of which some are the largest and the least."""
    random = np.random.default_rng(k)
    x, w = random.integers(0, 256, (m, k)), random.integers(-128, 128, (n, k))
    x[0], w[0], w[-1] = 255, -128, 127
    return x.astype(np.uint8), w.astype(np.int8)


def product(x: Any, w: Any) -> Any:
    return emit(ops.MatmulBytes(), x, graphc.permute_dims(w, (1, 0)))


def played(function: Callable[..., Any], *arrays: np.ndarray, **settings: Any) -> tuple[Any, Any]:
    """The kernel that multiplies, and the results."""
    program = graphc.compile(function, *arrays, device="cpu", **settings)
    (kernel,) = (k for k in program.plan.kernels.values() if k.template == "contract")
    return kernel, program(*arrays)


def exact(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x.astype(np.int32) @ w.T.astype(np.int32)


@pytest.mark.parametrize(
    "flags", [(), ("-mno-avx512vnni",), ("-DGRAPHC_LANES=8",), ("-DGRAPHC_LANES=4",)]
)
def test_four_bytes_of_each_lane_are_added(flags: tuple[str, ...], tmp_path: Path):
    (tmp_path / "bytes.cpp").write_text(SOURCE)
    flags = flags if shared_objects.cpu_target().lanes == 16 else ()
    command = [*find_compiler().command, *FLAGS, *flags, f"-I{KERNEL_HEADERS}"]
    made = tmp_path / "bytes.so"
    subprocess.run([*command, str(tmp_path / "bytes.cpp"), "-o", str(made)], check=True)
    x, y = operands(64, 4, 64)
    sums = np.full(64, 2**31 - 9, np.int32)
    want = (sums.astype(np.int64) + (x.astype(np.int64) * y).sum(1)).astype(np.int32)
    pointers = (a.ctypes.data_as(ctypes.c_void_p) for a in (x, y, sums))
    ctypes.CDLL(str(made)).add(*pointers, ctypes.c_long(64))
    np.testing.assert_array_equal(sums, want)


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_products_of_odd_sizes_are_exact(m: int, k: int, n: int):
    x, w = operands(m, k, n)
    kernel, got = played(product, x, w)
    assert "BYTES = true" in kernel.source
    np.testing.assert_array_equal(got, exact(x, w))


@pytest.mark.parametrize("size", first_quick(2, [SIZES[0], SIZES[1], SIZES[5]]))
def test_products_by_tiles_are_exact(size: tuple[int, int, int], tiles: None):
    x, w = operands(*size)
    kernel, got = played(product, x, w)
    assert "AMX = true" in kernel.source and "bytes by tiles (AMX)" in kernel.choice
    np.testing.assert_array_equal(got, exact(x, w))


def test_a_cpu_with_amx_gets_its_instruction(tiles: None, tmp_path: Path):
    kernel, _ = played(product, *operands(64, 64, 64))
    (tmp_path / "kernel.cpp").write_text(kernel.source)
    text = disassembled(tmp_path / "kernel.cpp", "-DGRAPHC_LANES=16")
    assert re.search(r"tdpbusd %tmm6,\s*%tmm4,\s*%tmm0", text)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_follows_is_computed_from_the_sums(threads: int):
    x, w = operands(50, 64, 70)

    def scaled(x: Any, w: Any) -> Any:
        y = graphc.astype(product(x, w) - 1000, "f32") * 0.25
        return graphc.relu(y), y[:, :35] * y[:, 35:]

    _, (got, gated) = played(scaled, x, w, threads=threads)
    want = (exact(x, w) - 1000).astype(np.float32) * np.float32(0.25)
    np.testing.assert_array_equal(got, np.maximum(want, 0))
    np.testing.assert_array_equal(gated, want[:, :35] * want[:, 35:])


def test_odd_sums_few_rows_and_columns_that_lie_together_go_one_by_one():
    for size in ((20, 30, 24), (3, 100, 50), (50, 100, 3), (5, 0, 5)):
        x, w = operands(*size)
        kernel, got = played(product, x, w)
        assert kernel.note.startswith("plain loop") and (got == exact(x, w)).all()
    x, w = operands(20, 32, 24)
    kernel, got = played(lambda x, w: emit(ops.MatmulBytes(), x, w), x, np.ascontiguousarray(w.T))
    assert kernel.note.startswith("plain loop") and (got == exact(x, w)).all()


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (
            Type((2, 4), "i8"),
            Type((4, 3), "i8"),
            "matmul_bytes: expected u8 and i8, got i8[2,4] and i8[4,3]",
        ),
        (
            Type((2, 4), "u8"),
            Type((5, 3), "i8"),
            "matmul_bytes: expected matrices [m, k] and [k, n], got u8[2,4] and i8[5,3]",
        ),
    ],
)
def test_operands_that_do_not_fit(a: Type, b: Type, message: str):
    with pytest.raises(graphc.GraphError, match=f"^{re.escape(message)}$"):
        ops.MatmulBytes().infer(a, b)
