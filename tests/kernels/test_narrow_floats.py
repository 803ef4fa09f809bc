"""Floats of two bytes in kernels: conversions by their bits, and what nvcc makes of them."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

import graphc
from graphc import functions as f
from graphc import nn, optim
from graphc.base.dtypes import convert, shown
from graphc.ir import DTYPES, NARROW
from graphc.runtime.compilers.shared_objects import FLAGS, KERNEL_HEADERS, find_compiler
from tests.kernels.cuda_harness import build_device
from tests.tools import first_quick, need_command


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_every_bit_pattern_is_read_and_written(dtype: str, device: str):
    every = np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype])
    wide = shown(every).astype(np.float32)
    program = graphc.compile(
        lambda x, y: (f.astype(x, "f32"), f.astype(y, dtype)),
        graphc.spec((2**16,), dtype),
        graphc.spec((2**16,), "f32"),
        device=device,
    )
    read, written = program(every, wide)
    np.testing.assert_array_equal(read, wide)
    np.testing.assert_array_equal(written, wide)
    np.testing.assert_array_equal(np.signbit(read[wide == 0]), np.signbit(wide[wide == 0]))


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_ties_go_to_even_everywhere(dtype: str, device: str):
    """Around every number of the dtype: half-way to the next, and the floats beside that."""
    numbers = np.arange(2**15, dtype=np.uint16).view(DTYPES[dtype])
    values = shown(numbers)
    values = values[np.isfinite(values)].astype(np.float64)
    middle = ((values[:-1] + values[1:]) / 2).astype(np.float32)
    wide = np.concatenate([np.nextafter(middle, -np.inf), middle, np.nextafter(middle, np.inf)])
    wide = np.concatenate([wide, -wide])
    program = graphc.compile(
        lambda x: f.astype(x, dtype), graphc.spec(wide.shape, "f32"), device=device
    )
    np.testing.assert_array_equal(program(wide), shown(convert(wide, DTYPES[dtype])))


SOURCE = """#include "cpu/shared/simd.h"
using namespace graphc;
"""
SOURCE += "".join(
    f'extern "C" void {work}_{kind}(const {source}* x, {target}* y, long n) '
    f"{{ for (long i = 0; i < n; i += W) store(y + i, load(x + i)); }}\n"
    for kind in ("half", "bfloat")
    for work, source, target in (("read", kind, "float"), ("write", "float", kind))
)


@pytest.mark.parametrize("lanes, flags", [(4, ()), (8, ()), (8, ("-mno-f16c",)), (16, ())])
def test_conversions_are_the_same_at_every_width(lanes: int, flags: tuple[str, ...], tmp_path):
    """Instructions where there are some, else integers."""
    (tmp_path / "narrow.cpp").write_text(SOURCE)
    command = [*find_compiler().command, *FLAGS, *flags, f"-I{KERNEL_HEADERS}"]
    command += [f"-DGRAPHC_LANES={lanes}", str(tmp_path / "narrow.cpp")]
    subprocess.run([*command, "-o", str(tmp_path / "narrow.so")], check=True)
    library = ctypes.CDLL(str(tmp_path / "narrow.so"))

    def call(name: str, x: np.ndarray, dtype: np.dtype) -> np.ndarray:
        y = np.empty(x.shape, dtype)
        pointers = (a.ctypes.data_as(ctypes.c_void_p) for a in (x, y))
        getattr(library, name)(*pointers, ctypes.c_long(x.size))
        return y

    wide = np.arange(0, 2**32, 4001, dtype=np.uint64).astype(np.uint32).view(np.float32)
    wide = np.ascontiguousarray(wide[wide.size % 16 :])
    for dtype, kind in (("f16", "half"), ("bf16", "bfloat")):
        every = np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype])
        got = call(f"read_{kind}", every, np.dtype(np.float32))
        np.testing.assert_array_equal(got, shown(every).astype(np.float32))
        written = call(f"write_{kind}", wide, DTYPES[dtype])
        np.testing.assert_array_equal(shown(written), shown(convert(wide, DTYPES[dtype])))


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_nvcc_takes_a_training_step_in_each_dtype_and_spills_nothing(arch: str, tmp_path):
    compiler = need_command("nvcc")
    kernels = []
    for dtype in NARROW:
        layers = nn.Conv2d(2, 5, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(45, 7)
        program = graphc.compile(
            lambda model, x, y: f.cross_entropy(model(x), y),
            nn.Sequential(*layers).to(dtype),
            graphc.spec((4, 2, 8, 8), dtype),
            graphc.spec((4,), "int64"),
            update=optim.Adam(),
            device="cuda",
        )
        kernels += [
            (dtype, kernel) for name, kernel in program.plan.kernels.items() if kernel.launches
        ]
    for dtype in NARROW:
        folder = tmp_path / dtype
        folder.mkdir()
        usage = build_device([k for d, k in kernels if d == dtype], folder, compiler, arch)
        assert usage and all(u.spilled == 0 for u in usage.values())
